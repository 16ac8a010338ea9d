// The search for orders of a linear pipeline (stage s on device s) whose backward is split, for any
// times, transfer and memory limits: zero-bubble schedules (Qi et al., "Zero Bubble Pipeline
// Parallelism", ICLR'24, section 3), and what improves on them.
//
// On every device F, I and W each run in the order of the microbatches, so an order is one word of
// the letters F, I and W per device. All of it is linear in ops:
//   1. words in closed form: 1F1B, ZB-H1 and ZB-H2, kept within the limit;
//   2. a simulation in the order of time in which each device takes by a rule what is there
//      (dispatch.hpp), for the rules known to be good, and then for rules changed at random;
//   3. moves of single letters along the critical path (moves.hpp).
// What no order can beat is known (`least_cost`) and ends the search when it is reached; otherwise
// a number of simulated ops does, so the same problem always has the same answer.
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

struct LinearProblem {
  std::uint32_t depth = 1, microbatches = 1;
  double transfer = 0;
  std::vector<StageTimes> times;
  std::vector<double> limits;  ///< per device, in the unit of StageTimes::activation

  std::size_t word() const { return std::size_t{3} * microbatches; }  ///< letters of a device
  std::size_t letters() const { return depth * word(); }
};

/// What an order takes.
struct LinearCost {
  double stage_time = std::numeric_limits<double>::infinity();  ///< of the longest device
  double makespan = std::numeric_limits<double>::infinity();
  double mean = std::numeric_limits<double>::infinity();  ///< of the stage times

  /// The longest device first, then the makespan, both up to rounding.
  bool operator<(const LinearCost& other) const;
  /// For walks through orders: a smooth mixture, in which every device counts.
  double mixed() const { return stage_time + 0.01 * mean + 0.01 * makespan; }
};

/// The letters (forward, backward_input, backward_weight) of all devices, one after the other.
struct LinearOrder {
  std::vector<OpKind> letters;
  LinearCost cost;
};

/// Most activations on a device, with room for the rounding of sums.
inline double with_slack(double limit) { return limit * (1 + 1e-9); }

/// How a handcrafted order runs on a device: up to `ahead` forwards before the first I, then F and
/// I in turn, and a W as soon as `behind` more I have run than W.
struct Handcrafted {
  std::uint32_t ahead = 1, behind = 0;
};

/// ZB-H1 with reach 1, ZB-H2 with reach 2: device d runs reach (p-1-d) + 1 forwards ahead, and its
/// W are reach d behind.
inline Handcrafted handcrafted(std::uint32_t depth, std::uint32_t device, std::uint32_t reach) {
  return {reach * (depth - 1 - device) + 1, reach * device};
}

/// Calls put(kind, microbatch) for every op of a device, with W earlier than they should be where
/// an F would not fit without. Precondition: `ahead` activations fit.
template <class Put>
void each_handcrafted(Handcrafted how, std::uint32_t m, const StageTimes& time, double limit,
                      Put put) {
  double held = 0;
  std::uint32_t f = 0, w = 0;
  const auto weight = [&] {
    held -= time.activation_after_input;
    put(OpKind::backward_weight, w++);
  };
  const auto fits = [&] { return held + time.activation <= with_slack(limit); };
  for (std::uint32_t i = 0; i < m; ++i) {
    while (f < m && f < i + how.ahead) {
      while (w < i && !fits()) weight();
      if (f > i && !fits()) break;
      held += time.activation;
      put(OpKind::forward, f++);
    }
    held -= time.activation - time.activation_after_input;
    put(OpKind::backward_input, i);
    if (i >= w + how.behind) weight();
  }
  while (w < m) weight();
}

/// The problem of a shape: its limits are `multiple` (the shape's own where it has them) times
/// one_f_one_b_peak(shape). Where no stage keeps any activations each counts as one.
LinearProblem linear_problem(const ScheduleShape& shape, double multiple);

/// The most that a device keeps of one microbatch.
double most_activation(const LinearProblem& problem);

/// What no order of the problem can beat.
LinearCost least_cost(const LinearProblem& problem);

inline constexpr std::uint64_t kUsualSteps = 8'000'000;

/// The best order found, never worse than 1F1B with a split backward, ZB-H1 and ZB-H2 where those
/// are kept within the same limits. Precondition: every device can hold one microbatch.
/// `steps`: what to spend beyond that; one is an op replayed, about 5 ns.
LinearOrder search_linear(const LinearProblem& problem, std::uint64_t steps = kUsualSteps);

/// Appends the letters as ops.
void append_letters(const LinearProblem& problem, const std::vector<OpKind>& letters,
                    OpLists& order);

}  // namespace penstock
