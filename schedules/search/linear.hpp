// The search for orders of a linear pipeline (stage s on device s) whose backward is split, for any
// times, transfer and memory limits: the zero-bubble schedules of Qi et al., "Zero Bubble Pipeline
// Parallelism" (ICLR'24, section 3), and what improves on them.
//
// On every device F, I and W each run in the order of the microbatches, so an order is one word of
// the letters F, I and W per device. Candidates come from two sources, both linear in ops: words in
// closed form (1F1B, ZB-H1, ZB-H2 and what lies between them, kept within the limit), and a
// simulation in order of time in which each device takes what its rule prefers of what is there.
// The best is then improved by moves of single ops while the budget lasts. What no order can beat
// is known (`least_stage_time`), and ends the search when it is reached.
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

struct LinearProblem {
  std::uint32_t depth = 1, microbatches = 1;
  double transfer = 0;
  std::vector<StageTimes> times;
  std::vector<double> limits;  ///< per device, in the unit of StageTimes::activation

  std::size_t word() const { return std::size_t{3} * microbatches; }  ///< letters of a device
};

/// What an order takes; less is better, the longest device first.
struct LinearCost {
  double stage_time = std::numeric_limits<double>::infinity();
  double makespan = std::numeric_limits<double>::infinity();

  bool operator<(const LinearCost& other) const;
};

/// The letters (forward, backward_input, backward_weight) of all devices, one after the other.
struct LinearOrder {
  std::vector<OpKind> letters;
  LinearCost cost;
};

/// Which forwards run ahead and which W wait in an order in closed form: device d runs up to
/// `ahead[d]` forwards before its first I, then F and I in turn; a W waits for `behind[d]` further I.
/// Fewer forwards and earlier W where the limit demands it.
struct LinearShape {
  std::vector<std::uint32_t> ahead, behind;
};
/// 1F1B (reach 1, W at once), ZB-H1 (reach 1) and ZB-H2 (reach 2), and what lies between and beyond:
/// device d is reach (p-1-d) + 1 forwards ahead, and its W are reach d behind.
LinearShape handcrafted(std::uint32_t depth, double reach);

/// Appends the order of such a shape, without any limit on memory.
void append_handcrafted(const ScheduleShape& shape, double reach, OpLists& order);

/// The problem of a shape: its limits are `multiple` (where the shape names none) times what 1F1B
/// holds on device 0.
LinearProblem linear_problem(const ScheduleShape& shape, double multiple);

/// A bound on the longest device that no order of the problem can beat.
double least_stage_time(const LinearProblem& problem);

/// Runs an order; its cost is infinite when it can never finish. Precondition: every letter as often
/// as there are microbatches.
LinearCost replay(const LinearProblem& problem, const std::vector<OpKind>& letters);

/// The best order found. Precondition: every device may hold the activation of one microbatch.
/// `steps`: ops to simulate beyond the candidates, in the search for improvements.
LinearOrder search_linear(const LinearProblem& problem, std::uint64_t steps = 1000000);

}  // namespace penstock
