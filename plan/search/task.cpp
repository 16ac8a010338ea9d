#include "plan/search/task.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/plan_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

/// What a message between two devices gets.
double bandwidth_between(const Cluster& cluster, int from, int to) {
  Network network(cluster);
  double least = std::numeric_limits<double>::infinity();
  for (const int link : network.route(from, to, false).links)
    least = std::min(least, network.links()[static_cast<std::size_t>(link)].bytes_per_s);
  return least;
}

/// The devices of a node, then the nodes.
std::vector<PlanLevel> levels_of(const Cluster& cluster) {
  const int each = cluster.devices_per_node, all = cluster.devices();
  const bool flat = cluster.link || cluster.network || cluster.nodes == 1;
  const int inner = flat ? all : each;
  std::vector<PlanLevel> levels;
  const double alone = std::numeric_limits<double>::infinity();
  levels.push_back({inner, inner > 1 ? bandwidth_between(cluster, 0, 1) : alone});
  if (!flat) levels.push_back({cluster.nodes, bandwidth_between(cluster, 0, each)});
  return levels;
}

/// Samples of a minibatch of the profile: costs are those of a scenario's microbatch.
double samples_of_profile(const Scenario& scenario) {
  double planned = 0, profiled = 0;
  for (const StageCosts& c : scenario.costs) planned += c.forward_s;
  for (const ProfiledLayer& layer : scenario.profile->layers) profiled += layer.forward_s;
  const auto size = static_cast<double>(scenario.microbatch_size);
  return planned > 0 ? size * profiled / planned : size;
}

/// What the planners do not count of measured stages.
std::string measured_note(const MeasuredTransformerModel& model, double microbatch) {
  const MeasuredRow row = model.row(microbatch, Recompute::none);
  const double once_s = row.overhead.forward_s + row.overhead.backward_s;
  return fmt::format(
      "times of layers as measured {}; the {} that a stage takes once per microbatch are left out",
      row.load == 1 ? "on a device alone" : fmt::format("with {} devices at work", row.load),
      format_time(once_s));
}

void plan_for_transformer(const Scenario& scenario, PlanTask& task) {
  if (!scenario.measured) {
    task.model =
        std::make_unique<TransformerModel>(*scenario.transformer, scenario.cluster.device_of(0));
    return;
  }
  auto model = std::make_unique<MeasuredTransformerModel>(*scenario.transformer, *scenario.measured,
                                                          scenario.cluster.devices());
  const auto size = static_cast<double>(scenario.microbatch_size);
  if (model->refuse(size, Recompute::none).empty())
    task.notes.push_back(measured_note(*model, size));
  task.model = std::move(model);
}

}  // namespace

void plan_for_cluster(const Cluster& cluster, PlanTask& task) {
  PlanRequest& request = task.request;
  if (request.levels.empty()) request.levels = levels_of(cluster);
  const DeviceSpec device = cluster.device_of(0);
  if (!cluster.groups.empty())
    task.notes.push_back(fmt::format("planned as if all devices were {}", device.name));
  if (!request.memory_bytes && device.capacity_bytes() > 0) {
    request.memory_bytes = static_cast<double>(device.capacity_bytes());
    task.notes.push_back(fmt::format("memory per device: {} of {}",
                                     format_bytes(*request.memory_bytes), device.name));
  }
}

void plan_for_scenario(const Scenario& scenario, PlanTask& task) {
  task.name = scenario.name;
  if (scenario.transformer) {
    plan_for_transformer(scenario, task);
  } else if (scenario.profile) {
    task.model = std::make_unique<ProfileModel>(*scenario.profile, samples_of_profile(scenario));
  } else {
    throw InputError(scenario.origin,
                     "gives its model as costs of stages, so there are no layers to split; name a "
                     "model by shape or a profile");
  }
  for (const Axis axis : kInnerAxes) {
    const int size = scenario.mesh.size(axis);
    if (size > 1)
      task.notes.push_back(
          fmt::format("planned without the {} parallelism of {}", traits(axis).name, size));
  }
  plan_for_cluster(scenario.cluster, task);
  task.request.microbatch_size = scenario.microbatch_size;
  task.request.batch = static_cast<std::int64_t>(scenario.samples_per_update());
}

PlanTask task_of(const Scenario& scenario) {
  PlanTask task;
  plan_for_scenario(scenario, task);
  return task;
}

}  // namespace penstock
