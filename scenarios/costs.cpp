#include "scenarios/costs.hpp"

#include "scenarios/tensor.hpp"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

double rate(const Scenario& scenario, const DeviceSpec& device) {
  return device.peak_flops_per_s.at(scenario.transformer->compute_type) *
         device.efficiency_at(static_cast<double>(scenario.transformer->hidden_size));
}

/// The slowest GPU of a device of the Program.
const DeviceSpec& slowest_of(const Scenario& scenario, const std::vector<int>& gpus) {
  const auto slowest = std::ranges::min_element(
      gpus, {}, [&](int gpu) { return rate(scenario, scenario.cluster.device_of(gpu)); });
  return scenario.cluster.device_of(*slowest);
}

/// Costs of all stages on these devices, one for each; output_bytes are of a whole microbatch.
std::vector<StageCosts> costs_on(const Scenario& scenario, const std::vector<DeviceSpec>& devices) {
  StageCostOptions options = cost_options(scenario);
  const auto costs_now = [&] {
    return stage_costs(*scenario.transformer, devices, scenario.layers, options);
  };
  std::vector<StageCosts> costs;
  if (!scenario.mesh.divided) {
    costs = costs_now();
  } else {
    costs.resize(scenario.layers.size());
    const double microbatch_size = options.microbatch_size;
    for (const int width : scenario.mesh.width.distinct()) {
      options.microbatch_size = microbatch_size / width;
      const std::vector<StageCosts> these = costs_now();
      for (std::size_t s = 0; s < costs.size(); ++s)
        if (scenario.mesh.width.of(s) == width) costs[s] = these[s];
    }
  }
  const std::vector<int> parts = scenario.stage_parts();
  for (std::size_t s = 0; s < costs.size(); ++s) costs[s].output_bytes *= parts[s];
  return costs;
}

/// Where the replicas of a stage are on different devices, each has times of its own.
void cost_unlike(Scenario& scenario, const std::vector<const DeviceSpec*>& on) {
  std::map<const DeviceSpec*, std::size_t> kinds;
  scenario.unlike = {};  // a scenario may be costed again, as if it recomputed nothing
  for (const DeviceSpec* device : on) {
    const auto [kind, added] = kinds.try_emplace(device, kinds.size());
    scenario.unlike.kind.push_back(kind->second);
    if (!added) continue;
    scenario.unlike.costs.push_back(
        costs_on(scenario, std::vector<DeviceSpec>(scenario.layers.size(), *device)));
  }
}

}  // namespace

std::vector<std::vector<LayerGradient>> cost_by_shape(Scenario& scenario, bool gradients) {
  // By position; pointers, as a sweep would copy the same device for every stage of every point.
  std::vector<const DeviceSpec*> at(scenario.shape.depth, &scenario.cluster.device);
  std::vector<const DeviceSpec*> on;  // by device of the Program
  bool unlike = false;
  const Placement placement = scenario.placement();
  for (int d = 0; d < placement.devices() && !scenario.cluster.groups.empty(); ++d) {
    on.push_back(&slowest_of(scenario, scenario.gpus_of(d)));
    const std::uint32_t position = placement.position_of(d);
    const std::uint32_t first = std::min(position, placement.twin(position));
    if (placement.replica_of(d) == 0 && position == first) at[position] = on.back();
    unlike = unlike || *at[first] != *on.back();
    if (rate(scenario, *on.back()) < rate(scenario, *at[first])) at[first] = on.back();
  }
  std::vector<DeviceSpec> devices;  // by virtual stage
  devices.reserve(placement.positions().size());
  for (const std::uint32_t position : placement.positions())
    devices.push_back(*at[std::min(position, placement.twin(position))]);
  const StageCostOptions options = cost_options(scenario);
  if (scenario.layers.empty())
    scenario.layers = balanced_split(*scenario.transformer, devices, options,
                                     scenario.stage_widths(), sharing_positions(placement));
  scenario.costs = costs_on(scenario, devices);
  if (unlike) cost_unlike(scenario, on);
  if (!gradients) return {};
  return stage_gradients(*scenario.transformer, devices, scenario.layers, options);
}

void divide_given_costs(Scenario& scenario) {
  for (std::size_t s = 0; s < scenario.costs.size() && scenario.mesh.divided; ++s) {
    const int parts = scenario.mesh.together(s);
    StageCosts& c = scenario.costs[s];
    for (double* time : {&c.forward_s, &c.backward_s, &c.backward_input_s, &c.backward_weight_s,
                         &c.overlap_saving_s, &c.recompute_s})
      *time /= parts;
    for (std::int64_t* bytes : {&c.activation_bytes, &c.activation_after_input_bytes,
                                &c.forward_workspace_bytes, &c.backward_workspace_bytes})
      *bytes /= parts;
  }
}

}  // namespace penstock
