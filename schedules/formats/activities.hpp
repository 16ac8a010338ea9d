// SPDX-License-Identifier: Apache-2.0
// A Program as the graphs other simulators read: what every device computes, sends, receives and
// reduces, and what each of these waits for.
//
// Computing goes in the order of the Program: each op waits for the one before. A message is sent
// when its op has run and received before the op that needs it; transfers that hold their ends
// (blocking, coupled) also keep the next op waiting for the send, and the receive for the op
// before. With post-validation a partial norm is a message from STEP to STEP that leaves when the
// first of them may start. How long a message or a reduction takes is left to the network of the
// reader.
#pragma once

#include "program/dependencies.hpp"
#include "program/norm_chain.hpp"

#include <functional>

namespace penstock {

struct Activity {
  enum class Kind : std::uint8_t { compute, send, receive, reduce };
  Kind kind = Kind::compute;
  std::string name{};      ///< of its op: "2F5", "(0F7;7B3)OVERLAP_F_B"
  double seconds = 0;      ///< compute
  double flops = 0;        ///< compute: model FLOPs
  std::int64_t bytes = 0;  ///< send, receive; reduce: of a member's gradients
  int peer = -1;           ///< send, receive
  std::uint32_t tag =
      0;  ///< send, receive: its number among the messages from one end to the other
  std::uint32_t meeting = 0;           ///< reduce: the same for all members
  std::vector<int> members{};          ///< reduce: devices, in order
  std::vector<std::uint32_t> needs{};  ///< earlier activities of the device
};

/// Seconds of op number g of the Program on a device; of the first of a pair, of both together.
using OpSeconds = std::function<double(const Op& op, int device, std::uint32_t g)>;

/// The activities of a device, in an order that respects what they need.
class ActivityGraph {
 public:
  /// Throws InputError for what the graph cannot say: replicas that update servers' weights.
  ActivityGraph(const Program& program, const DependencyTable& table,
                const std::vector<StageCosts>& costs, OpSeconds seconds);

  int devices() const { return program_.ops.devices(); }
  std::vector<Activity> activities_of(int device) const;

 private:
  class Device;
  const Program& program_;
  const DependencyTable& table_;
  const std::vector<StageCosts>& costs_;
  OpSeconds seconds_;
  NormChain norms_;
  std::vector<std::uint32_t> tags_;  // per op that sends; of a norm, per STEP that takes it
};

}  // namespace penstock
