// SPDX-License-Identifier: Apache-2.0
// The search of our own, for linear pipelines (one stage per device) and those there and back (two
// chunks): of all orders known to fit the limits the one whose longest device takes least, then the
// one with the least makespan. It asks the searches of the zero-bubble papers' problems
// (search/linear.hpp, search/vee.hpp) as their own rows do and once more with a larger budget, and
// every schedule of the table whose order is in closed form and whose stages live on the same
// devices, with I and W for its B. So no device takes longer than the longest of any of them, at
// the times, transfer and limits of the shape; the makespan may be longer.
#include "schedules/catalog.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/search/linear.hpp"
#include "schedules/search/vee.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kLargerBudget = 4;
constexpr std::size_t kFewOps = 1000;  // the usual budget tries thousands of orders of so few
constexpr double kAsOneFOneB = 1;      // what is held when nothing is said

Placement placement(const ScheduleShape& shape, Layout kind) {
  return layout(kind, std::vector<int>(shape.depth, 1), shape.chunks,
                shape.microbatches_per_update);
}

/// Orders that were found, and the best that fits.
class Best {
 public:
  Best(const ScheduleShape& shape, std::vector<double> limits)
      : shape_(shape), limits_(std::move(limits)), where_(placement(shape, Layout::snake)) {}

  void offer(OpLists order) {
    const Evaluation found = evaluate(order, where_, shape_);
    if (!found.stuck.empty() || !fits(found)) return;
    const OrderCost cost{found.stage_time, found.makespan};
    if (!(cost < cost_)) return;
    cost_ = cost;
    order_ = std::move(order);
  }
  const OpLists& order() const { return order_; }

 private:
  bool fits(const Evaluation& found) const {
    for (std::size_t d = 0; d < limits_.size(); ++d) {
      if (found.peaks[d] > with_slack(limits_[d])) return false;
    }
    return true;
  }

  ScheduleShape shape_;
  std::vector<double> limits_;
  Placement where_;
  OpLists order_;
  OrderCost cost_;
};

/// The order of a schedule with I and W for every B, and nothing that overlaps.
OpLists split_order(const Schedule& schedule, const ScheduleShape& shape) {
  OpLists order, split;
  schedule.generate(shape, order);
  for (int d = 0; d < order.devices(); ++d) {
    for (const Op& op : order.of_device(d)) {
      if (op.kind != OpKind::backward) {
        split.add_op(make_op(op.kind, op.stage, op.microbatch));
        continue;
      }
      split.add_op(make_op(OpKind::backward_input, op.stage, op.microbatch));
      split.add_op(make_op(OpKind::backward_weight, op.stage, op.microbatch));
    }
    split.end_device();
  }
  return split;
}

bool in_closed_form(const Schedule& schedule, const ScheduleShape& shape) {
  return schedule.flushes() && !schedule.looks_at_costs && !schedule.whole_backward &&
         !schedule.whole_model && schedule.layout != Layout::mirrored &&
         schedule.refuse(shape).empty() &&
         placement(shape, schedule.layout).positions() ==
             placement(shape, Layout::snake).positions();
}

std::vector<OpLists> closed_forms(const ScheduleShape& shape) {
  std::vector<OpLists> orders;
  for (const Schedule& schedule : schedules()) {
    if (in_closed_form(schedule, shape)) orders.push_back(split_order(schedule, shape));
  }
  return orders;
}

OpLists search_line(const ScheduleShape& shape) {
  const OrderProblem problem = order_problem(shape, kAsOneFOneB);
  ScheduleShape timed = shape;
  timed.times = problem.times;
  Best best(timed, problem.limits);
  for (const std::uint64_t budget : {1U, kLargerBudget}) {
    if (budget > 1 && problem.ops() < kFewOps) break;
    OpLists order;
    append_order(problem, search_linear(problem, budget * kUsualSteps).word, order);
    best.offer(std::move(order));
  }
  for (OpLists& order : closed_forms(shape)) best.offer(std::move(order));
  return best.order();
}

OpLists search_there_and_back(const ScheduleShape& shape) {
  const OrderProblem problem = order_problem(shape, kAsOneFOneB);
  Best best(shape, problem.limits);
  std::vector<std::vector<Pass>> known;
  for (OpLists& order : closed_forms(shape)) {
    known.push_back(word_of(problem, order));
    best.offer(std::move(order));
  }
  for (const std::uint32_t budget : {1U, kLargerBudget}) {
    if (budget > 1 && problem.ops() < kFewOps) break;
    // As v-search, which knows no more, and then better.
    const auto& begin = budget > 1 ? known : std::vector<std::vector<Pass>>{};
    known.push_back(search_vee(problem, budget, begin).word);
    OpLists order;
    append_order(problem, known.back(), order);
    best.offer(std::move(order));
  }
  return best.order();
}

void generate_search(const ScheduleShape& shape, OpLists& order) {
  const OpLists found = shape.chunks == 1 ? search_line(shape) : search_there_and_back(shape);
  for (int d = 0; d < found.devices(); ++d) {
    for (const Op& op : found.of_device(d)) order.add_op(op);
    order.end_device();
  }
}

Refusal refuse_search(const ScheduleShape& shape) {
  const Refusal uneven = refuse_uneven("search", shape);
  if (!uneven.empty()) return uneven;
  return shape.chunks == 1 ? refuse_limit_of_line(shape, kAsOneFOneB)
                           : refuse_limit_there_and_back(shape, kAsOneFOneB, "search");
}

}  // namespace

Schedule search() {
  return {.name = "search",
          .paper = "of our own; the problems of ICLR'24 and NeurIPS'24 (zb, zb-v-search, v-search)",
          .summary =
              "the best order there is for the given times, transfer and memory limits, one stage "
              "per device or two chunks there and back; flush",
          .bubble = "searched",
          .stash = "at most memory_limit, of every device its own",
          .when =
              "When op times are measured and devices or their memory differ: never a longer stage "
              "time (a device's first start to last end) than zb (chunks: 1), zb-v-search and "
              "v-search (chunks: 2), nor than a schedule in closed form that fits; the makespan "
              "may be longer than theirs. It takes several times as long to find.",
          .generate = generate_search,
          .ideal_bubble = [](const ScheduleShape&) { return kNoClaim; },
          .refuse_shape = refuse_search,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {1, 2, 2, 1},
          .splits_backward = true,
          .looks_at_costs = true,
          .usual_limit = kAsOneFOneB};
}

}  // namespace penstock
