// Runs an order of ops with any durations, and says which ops wait for one another.
#pragma once

#include "schedules/generator.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace penstock {

enum Part : std::size_t { kForward, kInput, kWeight, kParts };  // of a stage; a B has two

/// A number for each part of a stage.
using StageParts = std::array<double, kParts>;

/// A chain of ops that wait for one another: how often it has each part of each stage.
struct Path {
  std::vector<StageParts> times;  ///< [stage]
  double messages = 0;
  std::size_t device = 0;  ///< on which it ends
};

class OrderRun {
 public:
  /// Of m microbatches on one replica; `position`: the device of each stage. Both must outlive it.
  OrderRun(const OpLists& order, const std::vector<std::uint32_t>& position, std::size_t m);

  std::int64_t ops() const { return static_cast<std::int64_t>(end_s_.size()); }
  /// When each device ends; empty: devices wait for one another. [stage]
  std::vector<double> run(const std::vector<StageParts>& duration_s, double message_s);
  /// The longest chain of that run to the end of a device.
  Path path_to(std::size_t device) const;

 private:
  std::size_t input(const Op& op) const;
  std::size_t advance(std::size_t d, std::size_t& next, const std::vector<StageParts>& duration_s,
                      double message_s);

  const OpLists& order_;
  const std::vector<std::uint32_t>& position_;
  std::size_t m_;
  std::vector<std::size_t> first_;  // op of a device
  std::vector<double> end_s_;       // [op]
  std::vector<std::uint32_t> device_;
  std::vector<std::size_t> after_, forward_,
      backward_;  // op that it waits for; [stage][microbatch]
};

}  // namespace penstock
