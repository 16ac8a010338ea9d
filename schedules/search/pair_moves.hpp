// Improves an order of two chunks per device by moving single ops: of the longest chain of ops that
// wait for nothing but one another (the critical path, as in job-shop scheduling), an op changes
// places with the one before it, or one of the two moves further away; a move stays when it costs
// little more than before, ever less of it as the search goes on (threshold accepting: Dueck and
// Scheuer, J. Comput. Phys. 90, 1990). One evaluation is one pass over all ops.
#pragma once

#include "schedules/search/pair_problem.hpp"

#include <random>

namespace penstock {

class PairMoves {
 public:
  PairMoves(const PairProblem& problem, const PairAim& aim);

  /// What a word takes; not found() when it is no order of the problem, or above a limit.
  PairOrder evaluated(std::vector<Pass> word);
  /// Replaces `order` by the best order found in `evaluations`, if that costs less.
  void improve(PairOrder& order, std::size_t evaluations, std::mt19937_64& random);

 private:
  struct Place {
    std::uint32_t device, position;
  };
  /// When everything of a word starts and ends.
  struct Times {
    std::vector<double> start, end;  // [device][position]
    double makespan = 0, stage_time = 0, ends = 0;
    std::uint32_t last = 0, longest = 0;  // the devices that these are of
  };

  bool evaluate(Times& times);
  std::uint32_t advance(Times& times, std::uint32_t d);
  double cost(const Times& times) const;
  void number();
  void find_critical(std::uint32_t d);
  bool producer(Place& place) const;
  Place pass_at(std::uint32_t stage, bool forward, std::uint32_t k) const;
  bool move(Place place, std::mt19937_64& random);

  std::size_t at(std::uint32_t d, std::uint32_t i) const { return std::size_t{d} * length_ + i; }
  std::size_t input(std::uint32_t stage, std::uint32_t k) const {
    return std::size_t{stage} * problem_.microbatches + k;
  }

  const PairProblem& problem_;
  PairAim aim_, least_;
  std::uint32_t length_;
  std::vector<Pass> word_;
  std::vector<std::uint32_t> microbatch_, position_;  // [device][position]; [device][pass][k]
  std::vector<double> forward_in_, backward_in_;      // [stage][microbatch]
  std::vector<std::array<double, kPasses>> durations_;
  std::vector<std::array<std::uint32_t, kPasses>> next_;
  std::vector<std::uint32_t> cursor_;
  std::vector<Place> critical_;  // ops that start when the one before them on the device ends
  Times now_, trial_;
};

}  // namespace penstock
