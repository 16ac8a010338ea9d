// A linear pipeline run in the order of time: whenever a device is free, it takes by a rule what is
// there, or waits. What its neighbours have begun is known to it, so it sees gaps coming and fills
// them with W. One pass over the ops, O(log p) each, nothing allocated.
#pragma once

#include "schedules/search/linear.hpp"

namespace penstock {

/// What a device prefers.
struct DispatchRule {
  enum class First : std::uint8_t { input, in_turn };
  First first = First::input;  ///< when both an F and an I are there
  /// The stage time aimed at. It says how long each device may stand idle in all; one that cannot
  /// afford a wait runs a W instead, also one that is longer than the wait.
  double target = std::numeric_limits<double>::infinity();
  /// A W is begun when nothing else will be there for this share of its time.
  double patience = 1;
  /// Forwards that a device may be ahead of the next one.
  std::uint32_t lead = std::numeric_limits<std::uint32_t>::max();
  /// By device: forwards at most without their I; null: as many as fit.
  const std::vector<std::uint32_t>* ahead = nullptr;
};

class Dispatch {
 public:
  explicit Dispatch(const LinearProblem& problem);

  /// Runs the rule, writes the order it makes and returns what that takes.
  LinearCost run(const DispatchRule& rule, std::vector<OpKind>& letters);

 private:
  struct Device {
    StageTimes time;
    double limit = 0, held = 0;
    double now = 0, begin = 0;   // end of its last op, start of its first
    double idle = 0, spare = 0;  // so far; what the target allows
    std::uint32_t f = 0, i = 0, w = 0, most_ahead = 0;
    OpKind last = OpKind::backward_input;  // of F and I

    std::uint32_t done() const { return f + i + w; }
  };

  void reset(const DispatchRule& rule);
  void decide(std::uint32_t d);
  void decide_on_weight(std::uint32_t d, bool may_forward, double forward, double input);
  void start(std::uint32_t d, OpKind kind);
  void start_any_weight();
  bool is_ahead(std::uint32_t d) const;
  double forward_at(std::uint32_t d) const;
  double input_at(std::uint32_t d) const;
  double forward_not_before(std::uint32_t d) const;
  double input_not_before(std::uint32_t d) const;
  void wake(std::uint32_t d, double time);
  void wake_sleeper(std::uint32_t d);

  const LinearProblem& problem_;
  DispatchRule rule_;
  std::uint32_t p_, m_, leaves_;
  double clock_ = 0;
  std::size_t done_ = 0;
  std::vector<Device> devices_;
  std::vector<double> forward_end_, input_end_;  // [device][microbatch]
  std::vector<double> key_;                      // when a device decides next; kNever: asleep
  std::vector<std::uint32_t> tree_;              // tournament of the keys; its winner is in [1]
  OpKind* letters_ = nullptr;
};

}  // namespace penstock
