// SPDX-License-Identifier: Apache-2.0
// A linear pipeline run in the order of time: whenever a device is free, it takes by a rule what is
// there, or waits. What its neighbours have begun is known to it, so it sees gaps coming and fills
// them with W. One pass over the ops, O(log p) each, nothing allocated.
#pragma once

#include "schedules/search/run.hpp"

namespace penstock {

/// What a device prefers.
struct DispatchRule {
  bool in_turn = false;  ///< F after I and I after F when both are there; otherwise I first
  /// A W is begun when nothing else will be there for this share of its time.
  float patience = 1;
  /// Forwards that a device may be ahead of the next one.
  std::uint32_t lead = std::numeric_limits<std::uint32_t>::max();
  /// Forwards at most without their I.
  std::uint32_t ahead = std::numeric_limits<std::uint32_t>::max();
  /// After its last F a device waits only where a W would hold up the last I: idle time is spent
  /// late. Otherwise it waits as long as it can afford to.
  bool waits_late = false;
};

class Dispatch {
 public:
  explicit Dispatch(const OrderProblem& problem);

  /// Runs the rules of the devices and returns what the order they make takes; not found() when a
  /// device cannot hold a single microbatch. Its word is `word()` until the next run.
  /// `target`: the stage time and makespan aimed at. They say how long each device may stand idle
  /// in all; one that cannot afford a wait runs a W instead, also one that is longer than the wait.
  OrderCost run_rules(const std::vector<DispatchRule>& rules, const OrderCost& target);
  const std::vector<Pass>& word() const { return run_.word(); }

 private:
  struct Device {
    double idle = 0, spare = 0;  // so far; what the target allows
    DispatchRule rule;
    Pass last = kI0;  // of F and I
  };

  void reset(const std::vector<DispatchRule>& rules, const OrderCost& target);
  void decide(std::uint32_t d);
  void decide_on_weight(std::uint32_t d, bool may_forward, double forward, double input);
  void start(std::uint32_t d, Pass pass);
  bool start_any_weight();
  std::uint32_t left(std::uint32_t d, Pass pass) const {
    return problem_.microbatches - run_.count(d, pass);
  }
  bool is_ahead(std::uint32_t d) const;
  double not_before(std::uint32_t d, std::uint32_t neighbour, Pass pass) const;
  bool can_catch_up(std::uint32_t d) const;
  void wake_sleeper(std::uint32_t d);

  const OrderProblem& problem_;
  std::uint32_t last_;  // device
  double clock_ = 0;
  DeviceRun run_;
  WakeTimes wake_;
  std::vector<Device> devices_;
  std::vector<double> return_time_;  // of an I, from the end on the last device to the arrival
};

}  // namespace penstock
