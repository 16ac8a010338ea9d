// SPDX-License-Identifier: Apache-2.0
// torchgpipe's balance: Kim et al., arXiv:2004.09910, section 4 (torchgpipe.balance).
//
// A block of consecutive layers per device, no replicas; the blocks are nearly equal
// (plan/block_partition.hpp) in what each layer costs:
//
//   by time   forward + backward
//   by size   what the layer keeps for its backward of a microbatch + 2 * its parameters
//             (torchgpipe's default: weights and gradients, SGD)
//
// The blocks' times say how fast a batch of m microbatches is: sum of all + (m - 1) times the
// slowest, messages not counted. A block may end up without layers; a stage may not: then a layer
// comes from a neighbour.
#include "base/units.hpp"
#include "plan/block_partition.hpp"
#include "plan/planners.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr double kParameterScale = 2;

/// Seconds or bytes of each layer.
std::vector<double> layer_costs(const std::vector<LayerState>& chain, bool by_size) {
  std::vector<double> costs;
  LayerState before;
  for (const LayerState& state : chain) {
    const double bytes = state.activation_bytes - before.activation_bytes +
                         kParameterScale * (state.parameter_bytes - before.parameter_bytes);
    costs.push_back(by_size ? bytes : state.time_s() - before.time_s());
    before = state;
  }
  return costs;
}

void fill_empty(std::vector<int>& layers) {
  for (std::size_t b = 0; b < layers.size(); ++b) {
    if (layers[b] > 0) continue;
    std::size_t from = b;
    for (std::size_t far = 1; from == b; ++far) {
      if (b + far < layers.size() && layers[b + far] > 1) from = b + far;
      if (far <= b && layers[b - far] > 1) from = b - far;
    }
    --layers[from];
    ++layers[b];
  }
}

}  // namespace

PlanResult plan_torchgpipe(const PlanRequest& request) {
  const auto size = static_cast<double>(request.microbatch_size);
  const std::vector<LayerState> chain = request.model->chain(size, Recompute::none);
  const int layers_there = static_cast<int>(chain.size());
  const int stages =
      request.stages > 0 ? request.stages : std::min(request.devices(), layers_there);
  PlanResult result;
  result.single_device_s = chain.back().time_s();
  if (stages > layers_there) {
    result.infeasible_because =
        fmt::format("{} stages need a layer each, there are {}", stages, layers_there);
    return result;
  }
  std::vector<int> layers = block_partition(layer_costs(chain, request.by_size), stages);
  fill_empty(layers);
  Plan plan;
  plan.planner = "torchgpipe";
  plan.schedule = "torchgpipe";
  plan.stages = stages_of(chain, layers, 1);
  place_in_order(plan);
  plan.microbatch_size = request.microbatch_size;
  plan.microbatches = std::max<std::int64_t>(1, request.batch / request.microbatch_size);
  const auto slowest = std::ranges::max_element(plan.stages, {}, &PlannedStage::time_s);
  plan.time_per_stage_s = slowest->time_s;
  plan.latency_s =
      chain.back().time_s() + static_cast<double>(plan.microbatches - 1) * plan.time_per_stage_s;
  plan.throughput_samples_per_s = size * static_cast<double>(plan.microbatches) / plan.latency_s;
  plan.speedup = result.single_device_s * static_cast<double>(plan.microbatches) / plan.latency_s;
  plan.limited_by = fmt::format("stage {}: compute", slowest - plan.stages.begin());
  result.plans.push_back(std::move(plan));
  return result;
}

}  // namespace penstock
