// SPDX-License-Identifier: Apache-2.0
// Orders improved by moves of single ops. A device ends when it does because of a chain of ops
// without a gap, the critical path (as in job-shop scheduling); only a change on it can shorten the
// whole. So a move takes an op of the path and puts it some places earlier or later on its device.
#pragma once

#include "schedules/search/replay.hpp"

#include <random>

namespace penstock {

/// Numbers that look random, the same in every run (Marsaglia's xorshift).
class Dice {
 public:
  std::uint32_t below(std::size_t n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>((state_ >> 32) % n);
  }

 private:
  std::uint64_t state_ = 88172645463325252U;
};

/// Improves an order by `trials` moves, now and then of any op, or until its cost is not more than
/// `enough`. What makes nothing worse is kept.
void climb(const OrderProblem& problem, std::uint64_t trials, const OrderCost& enough,
           Replay& replay, Dice& dice, Order& order);

/// What a good order is: no worse in stage time and in makespan than the known order that is best
/// by stage time, then makespan; and then the least sum of the two.
struct PairAim {
  double stage_time = kNever, makespan = kNever;

  void add_known(const OrderCost& known);
  double cost(const OrderCost& order) const;
};

/// Replaces `order` by the best order found in `evaluations`, if that costs less. A move stays when
/// it costs little more than before, ever less of it as the search goes on (threshold accepting:
/// Dueck and Scheuer, J. Comput. Phys. 90, 1990). `enough`: stage time and makespan that no order
/// is below.
void improve_by_thresholds(const OrderProblem& problem, const PairAim& aim, const OrderCost& enough,
                           std::size_t evaluations, Replay& replay, std::mt19937_64& random,
                           Order& order);

}  // namespace penstock
