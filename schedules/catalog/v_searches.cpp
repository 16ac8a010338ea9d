// SPDX-License-Identifier: Apache-2.0
// Searched orders of two chunks per device, there and back, for given times, transfers and limits:
// ZB-V under a memory limit (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241) and
// the V with any memory (Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS'24,
// section 4.2). One search serves both (search/vee.hpp); they differ in what they hold when nothing
// is said. With k activations of chunks, all ops of one length, a device is idle for
//     max(0, 6p - 1 - 3k)    or more.
#include "schedules/catalog.hpp"
#include "schedules/search/remembered.hpp"
#include "schedules/search/vee.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

void generate_v_search(const ScheduleShape& shape, OpLists& order, double usual_limit) {
  const OrderProblem problem = order_problem(shape, usual_limit);
  static thread_local RememberedOrders known;
  append_order(problem, known.word(problem, [](const auto& p) { return search_vee(p); }), order);
}

}  // namespace

Refusal refuse_limit_there_and_back(const ScheduleShape& shape, double usual_limit,
                                    std::string_view schedule) {
  if (!shape.memory_limits.empty() && shape.memory_limits.size() != shape.depth) {
    return {fmt::format("memory_limits has {} values for {} devices", shape.memory_limits.size(),
                        shape.depth),
            "memory_limit"};
  }
  const OrderProblem problem = order_problem(shape, usual_limit);
  if (fits_at_all(problem)) return {};
  return {fmt::format("'{}' holds a microbatch's activations of both chunks of a device at once: "
                      "the least memory_limit is {} of 1F1B's largest peak",
                      schedule, least_limit(problem)),
          "memory_limit"};
}

namespace {

// What is held when nothing is said: as much as 1F1B, or half of it.
constexpr double kLimitOf1F1B = 1, kHalf = 0.5;
constexpr std::string_view kZbVSearch = "zb-v-search", kVSearch = "v-search";

/// Half of 1F1B's activations, or what one microbatch needs.
double usual_of_v(const ScheduleShape& shape) {
  return std::max(kHalf, least_limit(order_problem(shape, kHalf)));
}

void generate_zb_v(const ScheduleShape& shape, OpLists& order) {
  generate_v_search(shape, order, kLimitOf1F1B);
}
Refusal refuse_zb_v(const ScheduleShape& shape) {
  return refuse_limit_there_and_back(shape, kLimitOf1F1B, kZbVSearch);
}

void generate_v(const ScheduleShape& shape, OpLists& order) {
  generate_v_search(shape, order, usual_of_v(shape));
}
Refusal refuse_v(const ScheduleShape& shape) {
  return refuse_limit_there_and_back(shape, usual_of_v(shape), kVSearch);
}

double no_claim(const ScheduleShape&) { return kNoClaim; }

}  // namespace

Schedule zb_v_search() {
  return {
      .name = kZbVSearch,
      .aliases = {"zbv-heuristic"},
      .paper = "Zero Bubble Pipeline Parallelism, ICLR'24",
      .summary =
          "two chunks there and back, searched for the given times with the memory of 1F1B, "
          "or any other; flush",
      .bubble = "searched",
      .stash = "at most memory_limit",
      .when =
          "Where F, I and W take unlike times, transfers cost, or stages differ: never a longer "
          "stage time (a device's first start to last end) than zb-v at the same memory; the "
          "makespan may be longer.",
      .generate = generate_zb_v,
      .ideal_bubble = no_claim,
      .refuse_shape = refuse_zb_v,
      .of_stage_time = true,
      .layout = Layout::snake,
      .chunks = {2, 2, 2, 1},
      .splits_backward = true,
      .looks_at_costs = true,
      .usual_limit = 1};
}

Schedule v_search() {
  return {.name = kVSearch,
          .aliases = {"v-adaptive"},
          .paper = "Pipeline Parallelism with Controllable Memory, NeurIPS'24",
          .summary =
              "two chunks there and back, searched for the given times with half the memory of "
              "1F1B, or any other; flush",
          .bubble = "6p-1-3k slots of a device's time or more, k the activations it holds",
          .stash = "at most memory_limit",
          .when =
              "When memory is what limits you: say how much there is, per device where they "
              "differ, and take the best order for it.",
          .generate = generate_v,
          .ideal_bubble = no_claim,
          .refuse_shape = refuse_v,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {2, 2, 2, 1},
          .splits_backward = true,
          .looks_at_costs = true,
          .usual_limit = 0.5};
}

}  // namespace penstock
