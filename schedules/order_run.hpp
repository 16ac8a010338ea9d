// SPDX-License-Identifier: Apache-2.0
// Runs an order of compute ops with any durations, and says which ops wait for one another.
//
// Each device runs its list strictly in order: start = max(end of the device's op before, end of
// the producer + message where that is another device). An F and a B that run together begin when
// both can, take what they take one after the other, and end together.
#pragma once

#include "schedules/generator.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace penstock {

/// What ops are made of: an F, an I, a W of one part each, a B of two.
enum OpPart : std::size_t { kForwardPart, kInputPart, kWeightPart, kOpParts };

/// A number for each part of a stage's ops.
using OpParts = std::array<double, kOpParts>;

/// A chain of ops that wait for one another: how often it has each part of each stage.
struct OpPath {
  std::vector<OpParts> times;  ///< [stage]
  double messages = 0;
  std::size_t device = 0;  ///< on which it ends
};

class OrderRun {
 public:
  /// Microbatches 0 ... m-1 of one batch. `order` must outlive it.
  OrderRun(const OpLists& order, std::size_t stages, std::size_t microbatches);

  std::int64_t ops() const { return static_cast<std::int64_t>(end_.size()); }
  /// `duration`: [stage].
  void run_order(const std::vector<OpParts>& duration, double message);

  // Of the last run, by device.
  const std::vector<double>& ends() const { return ends_; }
  /// Of its first op; 0: it has none.
  const std::vector<double>& begins() const { return begins_; }
  /// Ops that devices are stuck before, when the order can never finish.
  const std::vector<Op>& stuck() const { return stuck_; }
  /// The longest chain to the end of a device. Precondition: none is stuck.
  OpPath path_to(std::size_t device) const;

 private:
  std::size_t at(std::size_t stage, std::size_t k) const { return stage * m_ + k; }
  std::size_t input(const Op& op) const;
  std::size_t advance(std::size_t d, std::size_t next, const std::vector<OpParts>& duration,
                      double message);

  const OpLists& order_;
  std::size_t stages_, m_;
  std::vector<std::size_t> first_;  // op of a device
  std::vector<std::uint32_t> device_;
  std::vector<double> end_;  // [op]
  std::vector<std::size_t> after_, forward_,
      backward_;  // op that it waits for; [stage][microbatch]
  std::vector<double> ends_, begins_;
  std::vector<Op> stuck_;
};

}  // namespace penstock
