// SPDX-License-Identifier: Apache-2.0
// PipeDream-2BW's search: Narayanan et al., ICML'21, section 4 (algorithm 1), appendix A.
//
// All stages have as many layers; d stages, w replicas of each, microbatches of b samples, m = B /
// (w b) of them per update, m >= d so that two weight versions are enough. For every w d <= N,
// every b that divides B / w, with and without recomputation of whole stages:
//
//   memory   2 |W| / d + d A_total(b) / d + d A_input(b)          nothing recomputed
//            2 |W| / d +   A_total(b) / d + d A_input(b)          recomputed
//   time     max over stages i of max(c T_i(b) + T_i_messages, T_i_all_reduce / m), c = 4/3 where
//            recomputed, else 1; d = 1: sum instead of max over stages
//   T_i_messages = 2 (A_in + A_out) / B_depth(d);   T_i_all_reduce = 2 (w-1)/w |W_i| / B_width(w)
//
// |W|: weights, gradients and optimizer state of the whole model, of which 2BW's formula counts two
// versions (without a pipeline, one). B_depth is the bandwidth inside a server where a pipeline
// fits in one, B_width where w is less than a server's GPUs; else that between servers. A graph's
// layers need not be alike; as many of them still go to every stage. O(N log N * divisors of B)
// evaluations.
//
// Where `simulate` can be asked it chooses: what these formulas promise is looked into from the
// best on, until all that is left promises less than was found. They leave out that a pipeline
// fills between updates of its replicas, waits for shared links, and that kernels are launched by
// somebody.
#include "base/units.hpp"
#include "plan/planners.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

constexpr double kRecomputeFactor = 4.0 / 3;

class TwoBwSearch {
 public:
  explicit TwoBwSearch(const PlanRequest& request)
      : request_(request),
        layers_(static_cast<int>(
            request.model->chain(static_cast<double>(request.microbatch_size), Recompute::none)
                .size())) {}

  PlanResult search() {
    const int n = request_.devices();
    for (int w = 1; w <= n; ++w)
      for (int d = 1; d <= n / w; ++d)
        if (layers_ % d == 0 && (!request_.straight || w == 1)) sizes(w, d);
    std::ranges::stable_sort(result_.plans, std::greater<>(), &Plan::throughput_samples_per_s);
    if (request_.simulate) choose_by_simulation();
    if (result_.plans.size() > request_.most_plans) result_.plans.resize(request_.most_plans);
    result_.single_device_s = chain(request_.microbatch_size).back().time_s();
    if (result_.plans.empty()) say_why();
    return std::move(result_);
  }

 private:
  const std::vector<LayerState>& chain(std::int64_t b) {
    auto [known, fresh] = chains_.try_emplace(b);
    if (fresh) known->second = request_.model->chain(static_cast<double>(b), Recompute::none);
    return known->second;
  }

  /// The best microbatch and recomputation of w x d; all of them where `simulate` chooses.
  void sizes(int w, int d) {
    if (request_.batch % w != 0) return;
    const std::int64_t each = request_.batch / w;  // samples of a pipeline per update
    std::optional<Plan> best;
    for (const std::int64_t b : divisors_of(each)) {
      if (b * (d > 1 ? d : 1) > each) break;
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        if (refuses(b, recompute)) continue;
        const double bytes = memory(d, b, recompute);
        least_bytes_ = least_bytes_ == 0 ? bytes : std::min(least_bytes_, bytes);
        if (bytes > request_.memory_or_unlimited()) continue;
        Plan plan = evaluate(w, d, b, recompute);
        if (request_.simulate)
          result_.plans.push_back(std::move(plan));
        else if (!best || plan.throughput_samples_per_s > best->throughput_samples_per_s)
          best = std::move(plan);
      }
    }
    if (best) result_.plans.push_back(std::move(*best));
  }

  /// Precondition: plans are in the order of what the formulas promise.
  void choose_by_simulation() {
    constexpr double kMostPessimistic = 1.25;  // that the formulas were seen to be, and more
    std::vector<Plan> found;
    const auto nth_best = [&] {  // 0: there are fewer
      return found.size() < request_.most_plans
                 ? 0
                 : found[request_.most_plans - 1].simulated->samples_per_s;
    };
    for (Plan& plan : result_.plans) {
      if (!request_.in_time()) {
        result_.notes.emplace_back(
            "the time ended before all that may be better was simulated (--time-limit)");
        if (found.empty()) return;
        break;
      }
      if (plan.throughput_samples_per_s * kMostPessimistic <= nth_best()) break;
      if (request_.simulate(plan, true).samples_per_s <= nth_best()) continue;
      plan.simulated = request_.simulate(plan, false);
      if (plan.simulated->samples_per_s == 0) {
        does_not_run_because_ = plan.simulated->why_not;
        continue;
      }
      const auto rate = [](const Plan& p) { return p.simulated->samples_per_s; };
      found.insert(std::ranges::upper_bound(found, rate(plan), std::greater<>(), rate), plan);
    }
    result_.plans = std::move(found);
  }

  /// Its times are those without recomputation.
  bool refuses(std::int64_t b, Recompute recompute) {
    for (const Recompute needed : {Recompute::none, recompute}) {
      std::string why = request_.model->refuse(static_cast<double>(b), needed);
      if (why.empty()) continue;
      refused_because_ = std::move(why);
      return true;
    }
    return false;
  }

  double memory(int d, std::int64_t b, Recompute recompute) {
    const auto size = static_cast<double>(b);
    const double versions = d > 1 ? 2 : 1;
    const double kept = request_.model->kept_bytes(size) / d;
    return versions * request_.model->state_bytes() / d +
           (recompute == Recompute::full ? kept : d * kept) +
           d * request_.model->layer_input_bytes(size);
  }

  double depth_bandwidth(int d) const {
    const PlanLevel& server = request_.levels.front();
    return d <= server.width ? server.bytes_per_s : request_.levels.back().bytes_per_s;
  }
  double width_bandwidth(int w) const {
    const PlanLevel& server = request_.levels.front();
    return w < server.width ? server.bytes_per_s : request_.levels.back().bytes_per_s;
  }

  Plan evaluate(int w, int d, std::int64_t b, Recompute recompute) {
    const std::vector<LayerState>& states = chain(b);
    Plan plan;
    plan.planner = "2bw";
    plan.schedule = d > 1 ? "pipedream-2bw" : "data-parallel";
    plan.microbatch_size = b;
    plan.microbatches = request_.batch / w / b;
    plan.recompute = recompute;
    plan.stages = stages_of(states, std::vector<int>(static_cast<std::size_t>(d), layers_ / d), w);
    plan.time_per_stage_s = slowest(plan, states, w, d) / w;
    if (d <= request_.levels.front().width)
      place_by_pipeline(plan);
    else
      place_in_order(plan);
    const double memory_bytes = memory(d, b, recompute);
    for (PlannedStage& stage : plan.stages) stage.memory_bytes = memory_bytes;
    plan.throughput_samples_per_s = static_cast<double>(b) / plan.time_per_stage_s;
    plan.speedup = states.back().time_s() * plan.throughput_samples_per_s / static_cast<double>(b);
    return plan;
  }

  /// Seconds between two microbatches of a pipeline; sets what limits it.
  double slowest(Plan& plan, const std::vector<LayerState>& states, int w, int d) const {
    const double factor = plan.recompute == Recompute::full ? kRecomputeFactor : 1;
    double most = 0;
    for (int i = 0; i < d; ++i) {
      PlannedStage& stage = plan.stages[static_cast<std::size_t>(i)];
      const auto last = static_cast<std::size_t>(stage.last_layer);
      const auto before = static_cast<std::size_t>(stage.first_layer);  // state before, + 1
      const double in = i == 0 ? 0 : states[before - 1].cut_bytes;
      const double out = i + 1 == d ? 0 : states[last].cut_bytes;
      const double messages = 2 * (in + out) / depth_bandwidth(d);
      const double parameters =
          states[last].parameter_bytes - (i == 0 ? 0 : states[before - 1].parameter_bytes);
      const double reduce = 2.0 * (w - 1) / w * parameters / width_bandwidth(w) /
                            static_cast<double>(plan.microbatches);
      const double compute = factor * stage.time_s * w;  // of a replica's own microbatch
      stage.time_s = compute / w;
      const double time = std::max(compute + messages, reduce);
      if (time <= most) continue;
      most = time;
      plan.limited_by = reduce > compute + messages ? fmt::format("stage {}: all-reduce", i)
                        : messages > compute        ? fmt::format("stage {}: messages", i)
                                                    : fmt::format("stage {}: compute", i);
    }
    return most;
  }

  void say_why() {
    if (!does_not_run_because_.empty()) {
      result_.infeasible_because =
          "no plan that fits by the paper's formulas runs: " + does_not_run_because_;
      return;
    }
    result_.infeasible_because =
        least_bytes_ > request_.memory_or_unlimited()
            ? fmt::format(
                  "the least that any width, depth and microbatch needs is {} per device, "
                  "there are {}",
                  format_bytes(least_bytes_), format_bytes(request_.memory_or_unlimited()))
            : fmt::format(
                  "no depth up to {} divides the {} layers with a batch of {} samples that "
                  "gives every pipeline as many microbatches as stages",
                  request_.devices(), layers_, request_.batch);
    if (!refused_because_.empty()) result_.infeasible_because += "; " + refused_because_;
  }

  const PlanRequest& request_;
  int layers_;
  std::map<std::int64_t, std::vector<LayerState>> chains_;
  double least_bytes_ = 0;
  std::string does_not_run_because_;  ///< the last plan that was simulated in vain
  std::string refused_because_;       ///< the last choice that the model has no costs of
  PlanResult result_;
};

}  // namespace

PlanResult plan_2bw(const PlanRequest& request) { return TwoBwSearch(request).search(); }

}  // namespace penstock
