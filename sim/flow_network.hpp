// SPDX-License-Identifier: Apache-2.0
// What shares links among flows, and the clock of that: SimGrid (sim/simgrid) or ourselves
// (fluid.hpp).
//
// Flows that run at the same time share every link fairly (max-min). Bytes are counted in whole
// units, so that all agree on what moves at all.
#pragma once

#include "sim/link_shares.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace penstock {

/// So many units are one byte. A power of two changes no digit.
inline constexpr double kUnitsPerByte = 1024;
inline std::uint64_t flow_units(double bytes) {
  return static_cast<std::uint64_t>(std::llround(bytes * kUnitsPerByte));
}

class FlowNetwork {
 public:
  FlowNetwork() = default;
  virtual ~FlowNetwork() = default;
  FlowNetwork(const FlowNetwork&) = delete;
  FlowNetwork& operator=(const FlowNetwork&) = delete;

  /// Flow i crosses `routes[i]`, links of `links`; the shares of these are there to stay. Once.
  virtual void open(const std::vector<NetworkLink>& links,
                    const std::vector<const LinkFlow*>& routes, LinkShares& shares) = 0;
  /// A flow sends so many units (> 0) from now on.
  virtual void start(std::size_t flow, std::uint64_t units) = 0;
  /// Calls `due` at this time, which is not before now. A later one is forgotten.
  virtual void wake_at(double time_s) = 0;
  virtual double now_s() const = 0;
  /// Until nothing is left to wait for.
  virtual void run() = 0;
  /// Called when all callbacks have been left that saw a flow end.
  virtual void forget() {}
  /// Flows that never end, because a link that they cross is gone for ever; after `run`.
  virtual std::vector<std::size_t> stalled() const = 0;

  std::function<void(std::size_t flow)> ended;  ///< a flow has sent everything, now
  std::function<void(double time_s)> due;       ///< the time of `wake_at` has come
};

}  // namespace penstock
