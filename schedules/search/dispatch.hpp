// A linear pipeline run in the order of time: whenever a device is free, it takes by a rule what is
// there, or waits. What its neighbours have begun is known to it, so it sees gaps coming and fills
// them with W. One pass over the ops, O(log p) each, nothing allocated.
#pragma once

#include "schedules/search/linear.hpp"

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
  explicit Dispatch(const LinearProblem& problem);

  /// Runs the rules of the devices, writes the order it makes and returns what that takes;
  /// infinite when a device cannot hold a single microbatch.
  /// `target`: the stage time and makespan aimed at. They say how long each device may stand idle
  /// in all; one that cannot afford a wait runs a W instead, also one that is longer than the wait.
  LinearCost run(const std::vector<DispatchRule>& rules, const LinearCost& target,
                 std::vector<OpKind>& letters);

 private:
  struct Device {
    StageTimes time;
    double limit = 0, held = 0;
    double now = 0, begin = 0;   // end of its last op, start of its first
    double idle = 0, spare = 0;  // so far; what the target allows
    std::uint32_t f = 0, i = 0, w = 0;
    DispatchRule rule;
    OpKind last = OpKind::backward_input;  // of F and I

    std::uint32_t done() const { return f + i + w; }
  };

  void reset(const std::vector<DispatchRule>& rules, const LinearCost& target);
  void decide(std::uint32_t d);
  void decide_on_weight(std::uint32_t d, bool may_forward, double forward, double input);
  void start(std::uint32_t d, OpKind kind);
  bool start_any_weight();
  bool is_ahead(std::uint32_t d) const;
  double forward_at(std::uint32_t d) const;
  double input_at(std::uint32_t d) const;
  double forward_not_before(std::uint32_t d) const;
  double input_not_before(std::uint32_t d) const;
  bool can_catch_up(std::uint32_t d) const;
  void wake(std::uint32_t d, double time);
  void wake_sleeper(std::uint32_t d);

  const LinearProblem& problem_;
  std::uint32_t p_, m_, leaves_;
  double clock_ = 0;
  std::size_t done_ = 0;
  std::vector<Device> devices_;
  std::vector<double> forward_end_, input_end_;  // [device][microbatch]
  std::vector<double> key_;                      // when a device decides next; kNever: asleep
  std::vector<std::uint32_t> tree_;              // tournament of the keys; its winner is in [1]
  std::vector<double> way_back_;  // of an I, from the end on the last device to the arrival
  OpKind* letters_ = nullptr;
};

}  // namespace penstock
