// SPDX-License-Identifier: Apache-2.0
#include "plan/dapple.hpp"

#include <algorithm>

namespace penstock {

bool DappleCluster::crosses(const std::vector<int>& devices) const {
  const auto [least, most] = std::ranges::minmax(devices);
  return least / devices_per_machine != most / devices_per_machine;
}

double DappleCluster::transfer_s(const std::vector<int>& from, const std::vector<int>& to,
                                 double bytes) const {
  if (crosses(to)) return bytes / collective_bytes_per_s;
  const int machine = to.front() / devices_per_machine;
  const auto others = std::ranges::count_if(
      from, [&](int device) { return device / devices_per_machine != machine; });
  if (others == 0) return bytes / inside_bytes_per_s;
  return bytes * static_cast<double>(others) / static_cast<double>(from.size()) /
         between_bytes_per_s;
}

double DappleCluster::all_reduce_s(const std::vector<int>& devices, double bytes) const {
  const auto n = static_cast<double>(devices.size());
  if (n < 2) return 0;
  const double moved = 2 * (n - 1) / n * bytes;
  if (crosses(devices)) return moved / collective_bytes_per_s;
  return moved / inside_bytes_per_s / static_cast<double>(devices.size() / 2);
}

namespace {

/// The stage that paces the steady phase.
std::size_t pivot_of(const std::vector<LatencyStage>& stages, double steady_microbatches) {
  const auto both = [&](std::size_t s) { return stages[s].forward_s + stages[s].backward_s; };
  std::size_t pivot = stages.size() - 1;
  double between = 0;
  for (std::size_t s = pivot; s-- > 0;) {
    if (steady_microbatches * both(s) > steady_microbatches * both(pivot) + between) {
      pivot = s;
      between = 0;
    } else {
      between += both(s);
    }
  }
  return pivot;
}

/// The longest of the last backwards and all-reduces behind the pivot's last microbatch.
double ending(const std::vector<LatencyStage>& stages, std::size_t pivot) {
  double longest = 0, sum = 0;
  for (std::size_t s = pivot + 1; s-- > 0;) {
    sum += stages[s].backward_s;
    longest = std::max(longest, stages[s].all_reduce_s + sum);
  }
  sum = -stages[pivot].backward_s;
  for (std::size_t s = pivot + 1; s < stages.size(); ++s) {
    sum -= stages[s].backward_s;
    longest = std::max(longest, stages[s].all_reduce_s + sum);
  }
  return longest;
}

}  // namespace

PipelineLatency pipeline_latency(const std::vector<LatencyStage>& stages,
                                 std::int64_t microbatches) {
  const auto steady = static_cast<double>(microbatches - 1);
  PipelineLatency latency;
  latency.pivot = pivot_of(stages, steady);
  for (std::size_t s = 0; s <= latency.pivot; ++s) latency.warmup_s += stages[s].forward_s;
  const LatencyStage& pivot = stages[latency.pivot];
  latency.steady_s = steady * (pivot.forward_s + pivot.backward_s);
  latency.ending_s = ending(stages, latency.pivot);
  return latency;
}

std::vector<LatencyStage> latency_stages(const std::vector<LayerState>& states,
                                         std::span<const DappleStage> plan,
                                         const DappleCluster& cluster) {
  std::vector<LatencyStage> stages;
  stages.reserve(2 * plan.size());
  static const LayerState kNothing;
  const LayerState* before = &kNothing;
  for (std::size_t s = 0; s < plan.size(); ++s) {
    const LayerState& last = states[static_cast<std::size_t>(plan[s].last)];
    const std::vector<int>& devices = plan[s].devices;
    if (s > 0) {
      const double message = cluster.transfer_s(plan[s - 1].devices, devices, before->cut_bytes);
      stages.push_back({message, message, 0});
    }
    const auto replicas = static_cast<double>(devices.size());
    stages.push_back(
        {(last.forward_s - before->forward_s) / replicas,
         (last.backward_s - before->backward_s) / replicas,
         cluster.all_reduce_s(devices, last.parameter_bytes - before->parameter_bytes)});
    before = &last;
  }
  return stages;
}

}  // namespace penstock
