// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's uniform split: Narayanan et al., SC'21, section 2.2.1 and 3.
//
// p stages of as many layers, each on w = N / p devices; the layers must divide (of a profile,
// whose layers are not alike, counts differ by at most one). A batch of m = B / (w b) microbatches
// takes
//
//   (m + p - 1) (t + 2 out / B_depth) + 2 (w-1)/w |W_i| / B_width
//
// with t the slowest stage's F + B and out what it sends on: 1F1B with flush, transfers exposed,
// the all-reduce at its end. Without a given number of stages every divisor of the devices is
// tried. Per device: weights, gradients, optimizer and min(p, m) microbatches of activations; with
// full recomputation, the layers' inputs and one layer's activations.
#include "base/units.hpp"
#include "plan/planners.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// As many layers per stage; for layers that are not alike, the first stages have one more.
std::vector<int> equal_counts(int layers, int stages, bool alike) {
  if (stages > layers || (alike && layers % stages != 0)) return {};
  std::vector<int> counts(static_cast<std::size_t>(stages), layers / stages);
  for (int s = 0; s < layers % stages; ++s) ++counts[static_cast<std::size_t>(s)];
  return counts;
}

class Uniform {
 public:
  explicit Uniform(const PlanRequest& request) : request_(request) {}

  PlanResult plan() {
    const int n = request_.devices();
    const auto size = static_cast<double>(request_.microbatch_size);
    result_.single_device_s = request_.model->chain(size, Recompute::none).back().time_s();
    for (int p = 1; p <= n; ++p) {
      const bool wanted = request_.stages == 0 ? n % p == 0 : p == request_.stages;
      if (wanted && (!request_.straight || p == n)) add_best(p, request_.straight ? 1 : n / p);
    }
    std::ranges::stable_sort(result_.plans, std::greater<>(), &Plan::throughput_samples_per_s);
    if (result_.plans.size() > request_.most_plans) result_.plans.resize(request_.most_plans);
    if (result_.plans.empty()) say_why();
    return std::move(result_);
  }

 private:
  /// Without recomputation if that fits.
  void add_best(int p, int w) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      if (const auto plan = evaluate(p, w, recompute)) return result_.plans.push_back(*plan);
    }
  }

  std::optional<Plan> evaluate(int p, int w, Recompute recompute) {
    const auto b = static_cast<double>(request_.microbatch_size);
    if (!request_.model->refuse(b, recompute).empty()) return {};
    const std::vector<LayerState> chain = request_.model->chain(b, recompute);
    const std::vector<int> counts =
        equal_counts(static_cast<int>(chain.size()), p, request_.model->alike());
    if (counts.empty() || request_.batch % (w * request_.microbatch_size) != 0) return {};
    divides_ = true;
    Plan plan;
    plan.planner = "uniform";
    plan.schedule = p > 1 ? "1f1b" : "data-parallel";
    plan.microbatch_size = request_.microbatch_size;
    plan.microbatches = request_.batch / w / request_.microbatch_size;
    plan.recompute = recompute;
    plan.stages = stages_of(chain, counts, w);
    set_memory(plan, chain);
    set_times(plan, chain);
    place_by_pipeline(plan);
    const double most =
        std::ranges::max_element(plan.stages, {}, &PlannedStage::memory_bytes)->memory_bytes;
    least_bytes_ = least_bytes_ == 0 ? most : std::min(least_bytes_, most);
    if (most > request_.memory_or_unlimited()) return {};
    return plan;
  }

  void set_memory(Plan& plan, const std::vector<LayerState>& chain) const {
    const double share =
        request_.model->state_bytes() / std::max(1.0, chain.back().parameter_bytes);
    const auto all = static_cast<double>(chain.size());
    const double layer =
        request_.model->kept_bytes(static_cast<double>(plan.microbatch_size)) / all;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      PlannedStage& stage = plan.stages[s];
      const double kept = static_cast<double>(std::min<std::int64_t>(
          static_cast<std::int64_t>(plan.stages.size() - s), plan.microbatches));
      const double full = between(chain, stage, &LayerState::activation_bytes);
      const double inputs =
          (stage.last_layer - stage.first_layer + 1) *
          request_.model->layer_input_bytes(static_cast<double>(plan.microbatch_size));
      const bool again = plan.recompute == Recompute::full;
      stage.memory_bytes = share * between(chain, stage, &LayerState::parameter_bytes) +
                           kept * (again ? std::min(full, inputs) : full) + (again ? layer : 0);
    }
  }

  static double between(const std::vector<LayerState>& chain, const PlannedStage& stage,
                        double LayerState::*what) {
    const double before =
        stage.first_layer == 0 ? 0 : chain[static_cast<std::size_t>(stage.first_layer) - 1].*what;
    return chain[static_cast<std::size_t>(stage.last_layer)].*what - before;
  }

  void set_times(Plan& plan, const std::vector<LayerState>& chain) const {
    const PlanLevel& server = request_.levels.front();
    const PlanLevel& top = request_.levels.back();
    const int p = plan.depth(), w = plan.width();
    const double depth = p <= server.width ? server.bytes_per_s : top.bytes_per_s;
    const double width = p * w <= server.width ? server.bytes_per_s : top.bytes_per_s;
    double slowest = 0, reduce = 0;
    for (int s = 0; s < p; ++s) {
      const PlannedStage& stage = plan.stages[static_cast<std::size_t>(s)];
      const double out =
          s + 1 == p ? 0 : chain[static_cast<std::size_t>(stage.last_layer)].cut_bytes;
      const double time = stage.time_s * w + 2 * out / depth;
      if (time > slowest) plan.limited_by = fmt::format("stage {}: compute and messages", s);
      slowest = std::max(slowest, time);
      reduce = std::max(
          reduce, 2.0 * (w - 1) / w * between(chain, stage, &LayerState::parameter_bytes) / width);
    }
    const auto m = static_cast<double>(plan.microbatches);
    plan.time_per_stage_s = slowest / w;
    plan.latency_s = (m + p - 1) * slowest + reduce;
    plan.throughput_samples_per_s = static_cast<double>(request_.batch) / plan.latency_s;
    plan.speedup = result_.single_device_s * m * w / plan.latency_s;
    if (reduce > plan.latency_s / 2) plan.limited_by = "all-reduce";
  }

  void say_why() {
    result_.infeasible_because =
        divides_
            ? fmt::format("the least that a split needs is {} per device, there are {}",
                          format_bytes(least_bytes_), format_bytes(request_.memory_or_unlimited()))
            : "no number of stages divides both the layers and the devices, with a batch that "
              "the replicas and microbatches divide";
  }

  const PlanRequest& request_;
  PlanResult result_;
  bool divides_ = false;
  double least_bytes_ = 0;
};

}  // namespace

PlanResult plan_uniform(const PlanRequest& request) { return Uniform(request).plan(); }

}  // namespace penstock
