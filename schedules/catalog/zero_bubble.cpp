// SPDX-License-Identifier: Apache-2.0
// Zero-bubble schedules (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR'24; arXiv 2401.10241):
// the backward is split into I, which the device before waits for, and W, which nobody waits for
// and which fills what would be bubbles. With F, I, W = f, b, w on every device and free transfers,
// the longest device stands idle for
//   ZB-H1   (p-1)(f + b - w)     with 1F1B's memory, p microbatches
//   ZB-H2   (p-1)(f + b - 2w)    with almost twice that, 2p-1
// where w <= f, m >= p (2p-1 for ZB-H2), and that is not negative. ZB-1p and ZB-2p are the orders
// that a search finds within 1 and 2 times 1F1B's memory; it takes any limit, times and transfer,
// also those of stages that differ (search/linear.hpp). With m <= p and w <= f it comes to
// (m+p-1)(f+b) + w.
#include "schedules/catalog.hpp"
#include "schedules/search/linear.hpp"
#include "schedules/search/remembered.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// Where the formulas speak: stages that are all alike, transfers that are free.
bool alike(const ScheduleShape& shape) {
  return shape.transfer == 0 && std::ranges::all_of(shape.times, [&](const StageTimes& t) {
           return t == shape.times.front();
         });
}

double share_of_idle(const ScheduleShape& shape, double idle) {
  const StageTimes t = shape.time(0);
  return idle / (shape.microbatches_per_update * (t.forward + t.backward()) + idle);
}

Refusal refuse_replicas(const ScheduleShape& shape) {
  if (shape.replicas.alike()) return {};
  return {
      "zero-bubble schedules are defined for as many replicas of every stage: width must be one "
      "number",
      "width"};
}

void generate_handcrafted(const ScheduleShape& shape, std::uint32_t reach, OpLists& order) {
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    each_handcrafted(
        handcrafted(shape.depth, d, reach), shape.microbatches_per_update, shape.time(d),
        std::numeric_limits<double>::infinity(),
        [&](Pass pass, std::uint32_t k) { order.add_op(make_op(kind_of(pass), d, k)); });
    order.end_device();
  }
}

void generate_h1(const ScheduleShape& shape, OpLists& order) {
  generate_handcrafted(shape, 1, order);
}
void generate_h2(const ScheduleShape& shape, OpLists& order) {
  generate_handcrafted(shape, 2, order);
}

double idle_of_handcrafted(const ScheduleShape& shape, std::uint32_t reach) {
  const StageTimes t = shape.time(0);
  const double idle = t.forward + t.backward_input - reach * t.backward_weight;
  const std::uint32_t enough = reach * (shape.depth - 1) + 1;
  if (shape.microbatches_per_update < enough || !alike(shape)) return kNoClaim;
  if (idle < 0 || t.backward_weight > t.forward) return kNoClaim;
  return share_of_idle(shape, (shape.depth - 1) * idle);
}

double bubble_of_h1(const ScheduleShape& shape) { return idle_of_handcrafted(shape, 1); }
double bubble_of_h2(const ScheduleShape& shape) { return idle_of_handcrafted(shape, 2); }

double peak_of_h1(const ScheduleShape& shape, std::uint32_t) {
  return std::min(shape.depth, shape.microbatches_per_update);
}
double peak_of_h2(const ScheduleShape& shape, std::uint32_t) {
  return std::min(2 * shape.depth - 1, shape.microbatches_per_update);
}

/// Searches within `multiple` of 1F1B's memory where the shape has no limits of its own.
void generate_within(const ScheduleShape& shape, double multiple, OpLists& order) {
  const OrderProblem problem = order_problem(shape, multiple);
  static thread_local RememberedOrders known;
  append_order(problem, known.word(problem, [](const auto& p) { return search_linear(p); }), order);
}

}  // namespace

Refusal refuse_limit_of_line(const ScheduleShape& shape, double usual_limit) {
  const Refusal replicas = refuse_replicas(shape);
  if (!replicas.empty()) return replicas;
  const std::vector<double>& limits = shape.memory_limits;
  if (!limits.empty() && limits.size() != shape.depth)
    return {fmt::format("memory_limit has {} values for {} devices: give one for all, or {}",
                        limits.size(), shape.depth, shape.depth),
            "memory_limit"};
  const OrderProblem problem = order_problem(shape, usual_limit);
  const double unit = problem.limit_unit;
  const auto multiple_of = [&](double activation) {  // rounded up to the digits that are printed
    return std::ceil(activation / unit * 1e6) / 1e6;
  };
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    if (problem.one_microbatch(d) <= problem.limit(d)) continue;
    const double least =
        limits.empty() ? std::ranges::max(problem.times, {}, &StageTimes::activation).activation
                       : problem.one_microbatch(d);
    return {fmt::format("device {} cannot hold one microbatch: its memory_limit is {:g} times "
                        "1F1B's largest peak, the least legal value is {:.6f}",
                        d, problem.limits[d] / unit, multiple_of(least)),
            "memory_limit"};
  }
  return {};
}

namespace {

/// Published for m <= p, where the first microbatch there and back and the last one are all that
/// counts, and for unit times within twice 1F1B's memory, where no bubble is left.
double bubble_within(const ScheduleShape& shape, double multiple) {
  const StageTimes t = shape.time(0);
  const double p = shape.depth, m = shape.microbatches_per_update;
  const double limit = shape.memory_limit > 0 ? shape.memory_limit : multiple;
  if (!alike(shape) || !shape.memory_limits.empty() || limit < 1) return kNoClaim;
  const double idle = (p - 1) * (t.forward + t.backward_input) - (m - 1) * t.backward_weight;
  if (m <= p && idle >= 0 && t.backward_weight <= t.forward) return share_of_idle(shape, idle);
  const bool unit = t.forward == t.backward_input && t.forward == t.backward_weight;
  return unit && limit >= 2 && m >= 2 * p - 1 ? 0 : kNoClaim;
}

template <int kMultiple>
void generate_search(const ScheduleShape& shape, OpLists& order) {
  generate_within(shape, kMultiple, order);
}
template <int kMultiple>
double bubble_of_search(const ScheduleShape& shape) {
  return bubble_within(shape, kMultiple);
}
template <int kMultiple>
Refusal refuse_other_limit(const ScheduleShape& shape) {
  if (shape.memory_limits.empty() && (shape.memory_limit == 0 || shape.memory_limit == kMultiple))
    return refuse_limit_of_line(shape, kMultiple);
  return {fmt::format("'zb-{}p' is 'zb' with memory_limit: {}; take zb for any other limit",
                      kMultiple, kMultiple),
          "memory_limit"};
}
Refusal refuse_any_limit(const ScheduleShape& shape) { return refuse_limit_of_line(shape, 2); }

/// A search within 1 or 2 times 1F1B's memory under a name of its own.
template <int kMultiple>
Schedule named(std::string_view name, std::string_view summary, std::string_view when) {
  return {.name = name,
          .paper = "Zero Bubble, ICLR'24",
          .summary = summary,
          .bubble = "m <= p: (p-1)(f+b) - (m-1)w",
          .stash = kMultiple == 1 ? "<= p" : "<= 2p",
          .when = when,
          .generate = generate_search<kMultiple>,
          .ideal_bubble = bubble_of_search<kMultiple>,
          .refuse_shape = refuse_other_limit<kMultiple>,
          .of_stage_time = true,
          .splits_backward = true,
          .looks_at_costs = true,
          .usual_limit = kMultiple};
}

}  // namespace

Schedule zb_h1() {
  return {.name = "zb-h1",
          .paper = "Zero Bubble, ICLR'24",
          .summary = "1F1B with the backward split; W wait for the drain; flush",
          .bubble = "(p-1)(f+b-w) of a device's time",
          .stash = "min(p, m)",
          .when =
              "In place of 1F1B where the backward can be split: a third of its bubble when F, I "
              "and W take the same, and as much memory on every device as 1F1B on the first.",
          .generate = generate_h1,
          .ideal_bubble = bubble_of_h1,
          .refuse_shape = refuse_replicas,
          .peak = peak_of_h1,
          .of_stage_time = true,
          .splits_backward = true};
}

Schedule zb_h2() {
  return {.name = "zb-h2",
          .paper = "Zero Bubble, ICLR'24",
          .summary = "ZB-H1 with forwards that fill the warm-up as well; flush",
          .bubble = "(p-1)(f+b-2w) of a device's time",
          .stash = "min(2p-1, m)",
          .when =
              "When twice 1F1B's activations fit and F, I and W take about the same: no bubble "
              "but the skew between devices.",
          .generate = generate_h2,
          .ideal_bubble = bubble_of_h2,
          .refuse_shape = refuse_replicas,
          .peak = peak_of_h2,
          .of_stage_time = true,
          .splits_backward = true};
}

Schedule zb() {
  Schedule row = named<2>(
      "zb", "the order that a search finds for the times, the transfer and memory_limit (2); flush",
      "When measured times are at hand and the memory that is free says how far to go: the "
      "linear schedule with the shortest stage time (a device's first start to last end) that is "
      "found within a limit, for stages that differ as well; its makespan may not be the "
      "shortest.");
  row.aliases = {"zb-auto"};
  row.stash = "<= p memory_limit";
  row.refuse_shape = refuse_any_limit;
  return row;
}

Schedule zb_1p() {
  return named<1>(
      "zb-1p", "zb within 1F1B's memory (memory_limit 1); flush",
      "In place of 1F1B where the backward can be split: no more memory, and never a longer "
      "stage time than zb-h1 where that fits; the makespan may be longer.");
}

Schedule zb_2p() {
  return named<2>("zb-2p", "zb within twice 1F1B's memory (memory_limit 2); flush",
                  "When twice 1F1B's activations fit: hardly any bubble, and never a longer stage "
                  "time than zb-h2 where that fits; the makespan may be longer.");
}

}  // namespace penstock
