// A linear pipeline run in the order of time: whenever a device is free, it takes by a rule what is
// there, or waits. What its neighbours have started is known to it, so it sees gaps coming and fills
// them with W. One pass over the ops, O(log p) each, nothing allocated.
#pragma once

#include "schedules/search/linear.hpp"

namespace penstock {

/// What a device prefers.
struct DispatchRule {
  enum class First : std::uint8_t { input, in_turn, forward };
  First first = First::input;  ///< when both an F and an I are there
  /// A W is begun when nothing else will be there for this share of its time.
  double patience = 1;
  /// Forwards without their I on device d: at most 1 + reach (p-1-d).
  double reach = std::numeric_limits<double>::infinity();
  /// Forwards that a device may be ahead of the next one.
  std::uint32_t lead = std::numeric_limits<std::uint32_t>::max();
  bool eager_weight = false;
};

class Dispatch {
 public:
  explicit Dispatch(const LinearProblem& problem);

  /// Runs the rule and writes the order it makes.
  LinearCost run(const DispatchRule& rule, std::vector<OpKind>& letters);

 private:
  struct Device {
    StageTimes time;
    double limit = 0, held = 0;
    double now = 0, begin = 0, end = 0;
    std::uint32_t f = 0, i = 0, w = 0, most_ahead = 0;
    OpKind last = OpKind::backward_input;
  };

  void reset(const DispatchRule& rule);
  void decide(std::uint32_t d);
  void start(std::uint32_t d, OpKind kind);
  double forward_at(std::uint32_t d) const;
  double input_at(std::uint32_t d) const;
  double forward_not_before(std::uint32_t d) const;
  double input_not_before(std::uint32_t d) const;
  bool room(const Device& device) const;
  void wake(std::uint32_t d, double time);
  std::uint32_t earliest() const { return tree_[1]; }

  const LinearProblem& problem_;
  DispatchRule rule_;
  std::uint32_t p_, m_, leaves_;
  double clock_ = 0;
  std::vector<Device> devices_;
  std::vector<double> forward_end_, input_end_;  // [device][microbatch]
  std::vector<double> key_;                      // when a device decides next
  std::vector<std::uint32_t> tree_;              // tournament of the keys
  OpKind* letters_ = nullptr;
};

}  // namespace penstock
