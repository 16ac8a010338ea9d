// SPDX-License-Identifier: Apache-2.0
#include "plan/search/task.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/plan_model.hpp"
#include "plan/search/published.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
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
  for (const StageCosts& c : scenario.costs) planned += c[OpKind::forward].seconds;
  for (const ProfiledLayer& layer : scenario.profile->layers) profiled += layer.forward_s;
  const auto size = static_cast<double>(scenario.microbatch_size);
  return planned > 0 ? size * profiled / planned : size;
}

/// What the planners do not count of measured stages.
std::string measured_note(const ProfiledTransformerModel& model, double microbatch) {
  const ProfileRow row = model.row(microbatch, Recompute::none);
  const double once_s = row.overhead.forward_s + row.overhead.backward_s;
  return fmt::format(
      "times of layers as measured {}; the {} that a stage takes once per microbatch are left out",
      row.load == 1 ? "on a device alone" : fmt::format("with {} devices at work", row.load),
      format_time(once_s));
}

void plan_for_transformer(const Scenario& scenario, PlanTask& task) {
  if (!scenario.layer_profile) {
    task.model =
        std::make_unique<TransformerModel>(*scenario.transformer, scenario.cluster.device_of(0));
    return;
  }
  auto model = std::make_unique<ProfiledTransformerModel>(
      *scenario.transformer, *scenario.layer_profile, scenario.cluster.devices());
  const auto size = static_cast<double>(scenario.microbatch_size);
  if (model->refuse(size, Recompute::none).empty())
    task.notes.push_back(measured_note(*model, size));
  task.model = std::move(model);
}

/// A profile keeps its branches, which a scenario has not.
void plan_for_profile(const PlanSource& source, PlanTask& task) {
  const std::string& path = source.name;
  task.name = path;
  PipedreamProfile profile = load_pipedream_profile(path);
  const auto takes_time = [](const ProfiledLayer& l) { return l.forward_s + l.backward_s > 0; };
  if (std::ranges::none_of(profile.layers, takes_time))
    throw InputError(path, "no layer takes any time, so there is nothing to balance");
  task.model =
      std::make_unique<ProfileModel>(std::move(profile), static_cast<double>(source.minibatch()));
  if (source.cluster) plan_for_cluster(cluster_of_profile(source), task);
  if (!source.profile_batch)
    task.notes.emplace_back("a minibatch of the profile counts as one sample (--profile-batch)");
}

void set_batch(std::int64_t batch, PlanTask& task) {
  PlanRequest& request = task.request;
  if (batch > 0) request.batch = batch;
  task.asked_batch = request.batch;
  if (request.batch > 0) return;
  request.batch = kBatchPerDevice * request.devices() * request.microbatch_size;
  if (task.planner->batch_matters)
    task.notes.push_back(fmt::format("batch: {} samples, {} microbatches per device (--batch)",
                                     request.batch, kBatchPerDevice));
}

/// A measured model knows few sizes.
void require_known_size(const PlanTask& task) {
  const auto size = static_cast<double>(task.request.microbatch_size);
  const std::string why = task.model->refuse(size, Recompute::none);
  if (!why.empty()) throw InputError("--microbatch-size", why);
}

/// Are the layers of plans those of a chain, as scenarios have them?
bool plans_a_chain(const PlanTask& task) {
  const auto size = static_cast<double>(task.request.microbatch_size);
  const std::size_t layers = task.model->chain(size, Recompute::none).size();
  return task.planner->name != "pipedream" || task.model->states(size, layers).size() == layers;
}

/// Plans are simulated as the problem that they are made for; where it cannot be one, a note.
void use_simulation(PlanTask& task, const std::string& text) {
  try {
    constexpr double kOpsPerSecond = 200'000;                    // surely simulated
    constexpr double kLeastOps = 400'000, kMostOps = 4'000'000;  // in half a minute
    const double in_time = (task.request.until_s - steady_s()) * kOpsPerSecond;
    task.problem = std::make_unique<Problem>(text, task.name, task.request.batch);
    task.problem->set_most_ops(static_cast<std::int64_t>(std::clamp(in_time, kLeastOps, kMostOps)));
    task.request.simulate = simulator(*task.problem);
  } catch (const InputError& error) {
    const std::string why = error.what();
    task.notes.push_back("plans are not simulated: " + why.substr(0, why.find('\n')));
  }
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
  if (scenario.perturbations.changes_times() || scenario.perturbations.reliability)
    throw InputError(scenario.origin + ", perturbations", kPlansAreUndisturbed);
  if (scenario.routing || scenario.documents) {
    const char* const key = scenario.routing ? "routing" : "documents";
    throw InputError(fmt::format("{}, {}", scenario.origin, key), plans_are_even(key));
  }
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

std::int64_t PlanTask::batch_of(const PlanResult& result) const {
  return result.plans.empty() ? request.batch : result.plans.front().samples_per_update();
}

std::string PlanTask::batch_note(const PlanResult& result) const {
  const std::int64_t batch = batch_of(result);
  if (result.plans.empty() || asked_batch == 0 || batch == asked_batch) return "";
  return fmt::format("batch: {} samples, not {}: {}", batch, asked_batch,
                     planner->batch_matters
                         ? fmt::format("microbatches have {}", result.plans.front().microbatch_size)
                         : fmt::format("{} updates weights after every minibatch", planner->name));
}

PlanTask task_of(const Scenario& scenario) {
  PlanTask task;
  plan_for_scenario(scenario, task);
  return task;
}

PlanTask task_of(const PlanSource& source, const Planner& planner, PlanRequest request) {
  PlanTask task;
  const std::int64_t size = request.microbatch_size, batch = request.batch;
  task.planner = &planner;
  task.request = std::move(request);
  task.request.levels = source.levels;
  task.request.memory_bytes = source.memory_bytes;
  task.request.microbatch_size = source.minibatch();
  task.request.batch = 0;
  std::string problem_text;
  if (source.input == PlanInput::profile) {
    plan_for_profile(source, task);
    PlanSource with_memory = source;
    with_memory.memory_bytes = task.request.memory_bytes;
    if (task.request.levels.size() <= 2) problem_text = profile_problem(with_memory);
  } else {
    const Scenario scenario = scenario_of(source);
    plan_for_scenario(scenario, task);
    if (scenario.transformer)
      check_batch(batch > 0 ? batch : task.request.batch, scenario.transformer->seq_length, source);
    task.notes.insert(task.notes.end(), scenario.file_notes.begin(), scenario.file_notes.end());
    if (source.input != PlanInput::scenario) {
      task.name = scenario.transformer ? scenario.transformer->name : source.name;
      task.request.batch = 0;
    }
    problem_text = source.input == PlanInput::scenario ? scenario.text() : model_problem(source);
  }
  std::error_code ignored;  // a long map is no possible name of a file
  if (std::filesystem::is_regular_file(source.name, ignored)) task.text = read_file(source.name);
  task.request.model = task.model.get();
  if (size > 0) {
    task.request.microbatch_size = size;
    require_known_size(task);
  }
  set_batch(batch, task);
  if (!problem_text.empty() && task.request.transfers && plans_a_chain(task))
    use_simulation(task, problem_text);
  return task;
}

}  // namespace penstock
