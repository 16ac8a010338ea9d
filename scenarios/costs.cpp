// SPDX-License-Identifier: Apache-2.0
#include "scenarios/parts.hpp"
#include "scenarios/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

constexpr std::int64_t kFewTokens = 4096;  // models/devices: what the curves were measured with

double rate(const TransformerSpec& model, const DeviceSpec& device) {
  return device.peak_flops_per_s.at(model.compute_type) *
         device.efficiency_at(static_cast<double>(model.hidden_size));
}

/// The slowest GPU of a device of the Program.
const DeviceSpec& slowest_of(const TransformerSpec& model, const Cluster& cluster,
                             const std::vector<int>& gpus) {
  const auto slowest = std::ranges::min_element(
      gpus, {}, [&](int gpu) { return rate(model, cluster.device_of(gpu)); });
  return cluster.device_of(*slowest);
}

/// Costs of all stages on these devices, one for each; output_bytes are of a whole microbatch.
std::vector<StageCosts> costs_on(const std::vector<DeviceSpec>& devices,
                                 const TransformerSpec& model, const Parallelism& job,
                                 const std::vector<int>& layers) {
  StageCostOptions options = cost_options(job);
  const Mesh& mesh = job.mesh;
  const auto costs_now = [&] { return stage_costs(model, devices, layers, options); };
  std::vector<StageCosts> costs;
  if (!mesh.divided) {
    costs = costs_now();
  } else {
    costs.resize(layers.size());
    const double microbatch_size = options.microbatch_size;
    for (const int width : mesh.width.distinct()) {
      options.microbatch_size = microbatch_size / width;
      const std::vector<StageCosts> these = costs_now();
      for (std::size_t s = 0; s < costs.size(); ++s)
        if (mesh.width.at(s) == width) costs[s] = these[s];
    }
  }
  const std::vector<int> parts = job.stage_parts();
  for (std::size_t s = 0; s < costs.size(); ++s) costs[s].output_bytes *= parts[s];
  return costs;
}

/// Where the replicas of a stage are on different devices, each has times of its own.
UnlikeDevices unlike_devices(const std::vector<const DeviceSpec*>& on, const TransformerSpec& model,
                             const Parallelism& job, const std::vector<int>& layers) {
  UnlikeDevices unlike;
  std::map<const DeviceSpec*, std::size_t> kinds;
  for (const DeviceSpec* device : on) {
    const auto [kind, added] = kinds.try_emplace(device, kinds.size());
    unlike.kind.push_back(kind->second);
    if (!added) continue;
    const std::vector<DeviceSpec> everywhere(layers.size(), *device);
    unlike.costs.push_back(costs_on(everywhere, model, job, layers));
  }
  return unlike;
}

/// The devices of the virtual stages, where those of each position are alike.
std::vector<DeviceSpec> devices_of_stages(const std::vector<const DeviceSpec*>& at,
                                          const Placement& placement) {
  std::vector<DeviceSpec> devices;
  devices.reserve(placement.positions().size());
  for (const std::uint32_t position : placement.positions())
    devices.push_back(*at[std::min(position, placement.mirror_of(position))]);
  return devices;
}

/// `layers` are balanced where there are none. The costs of a stage whose replicas are on different
/// devices are those of the slowest.
CostedStages cost_by_shape(const TransformerSpec& model, const Parallelism& job,
                           const Cluster& cluster, std::vector<int> layers, bool gradients) {
  // By position; pointers, as a sweep would copy the same device for every stage of every point.
  std::vector<const DeviceSpec*> at(job.shape.depth, &cluster.device);
  std::vector<const DeviceSpec*> on;  // by device of the Program
  bool unlike = false;
  const Placement placement = job.placement();
  for (int d = 0; d < placement.devices() && !cluster.groups.empty(); ++d) {
    on.push_back(&slowest_of(model, cluster, job.gpus_of(d)));
    const std::uint32_t position = placement.position_of(d);
    const std::uint32_t first = std::min(position, placement.mirror_of(position));
    if (placement.replica_of(d) == 0 && position == first) at[position] = on.back();
    unlike = unlike || *at[first] != *on.back();
    if (rate(model, *on.back()) < rate(model, *at[first])) at[first] = on.back();
  }
  const std::vector<DeviceSpec> devices = devices_of_stages(at, placement);
  const StageCostOptions options = cost_options(job);
  CostedStages stages{.layers = std::move(layers)};
  if (stages.layers.empty())
    stages.layers =
        balanced_split(model, devices, options, job.stage_widths(), sharing_positions(placement));
  stages.costs = costs_on(devices, model, job, stages.layers);
  if (unlike) stages.unlike = unlike_devices(on, model, job, stages.layers);
  if (gradients) stages.gradients = stage_gradients(model, devices, stages.layers, options);
  return stages;
}

/// Costs that were given are those of a whole microbatch on one device.
void divide_given_costs(const Mesh& mesh, std::vector<StageCosts>& costs) {
  for (std::size_t s = 0; s < costs.size() && mesh.divided; ++s) {
    const int parts = mesh.together(s);
    StageCosts& c = costs[s];
    c.for_each_compute_s([&](double& seconds) { seconds /= parts; });
    for (std::int64_t* bytes :
         {&c.activation_bytes, &c.activation_after_input_bytes, &c.forward_workspace_bytes,
          &c.backward_workspace_bytes, &c.again_workspace_bytes})
      *bytes /= parts;
  }
}

StageShares stage_shares(const Section& model, const ScheduleShape& shape) {
  return {.devices = static_cast<int>(shape.depth),
          .chunks = static_cast<int>(shape.chunks),
          .per_chunk = per_chunk(model)};
}

CostedStages cost_given(const Specification& spec, const Parallelism& job) {
  const Section& model = spec.model->section;
  StageShares shares = stage_shares(model, job.shape);
  shares.device_of = job.placement().positions();
  CostedStages stages{.costs = read_abstract_costs(model, shares, job.recompute)};
  for (StageCosts& c : stages.costs) c.step_s += job.stack.iteration_overhead_s;
  return stages;
}

/// Returns how much longer all ops take than on a usual GPU: as long as on the slowest one.
double pace_of(const Parallelism& job, const std::vector<StageCosts>& costs) {
  if (job.stack.speed_spread <= 0) return 1;
  const std::vector<int> widths = job.widths();
  std::vector<double> busy_s(widths.size(), 0);
  const Placement where = job.placement();
  const auto& positions = where.positions();
  for (std::size_t s = 0; s < costs.size(); ++s)
    busy_s[positions[s]] += costs[s][OpKind::forward].seconds + costs[s][OpKind::backward].seconds;
  return slowest_pace(busy_s, widths, job.stack.speed_spread);
}

void slow_down(const Parallelism& job, CostedStages& stages) {
  const double pace = pace_of(job, stages.costs);
  if (pace == 1) return;
  const auto slow = [&](std::vector<StageCosts>& costs) {
    for (StageCosts& c : costs) c.for_each_compute_s([&](double& seconds) { seconds *= pace; });
  };
  slow(stages.costs);
  for (std::vector<StageCosts>& costs : stages.unlike.costs) slow(costs);
}

ProfileUse profile_use(const LayerProfile& layer_profile, const Parallelism& job,
                       Recompute recompute) {
  return layer_profile.use(static_cast<double>(job.microbatch_size), recompute,
                           static_cast<int>(job.devices()));
}

CostedStages cost_layer_profile(const TransformerSpec& model, const LayerProfile& layer_profile,
                                const Parallelism& job, std::vector<int> layers) {
  const auto use = [&](const Recomputation& value) {
    return profile_use(layer_profile, job, value.granularity);
  };
  const auto rows =
      job.recompute.map([&](const auto& value) { return layer_profile.row(use(value)); });
  const auto steps =
      job.recompute.map([&](const auto& value) { return layer_profile.step(use(value)); });
  if (layers.empty())
    layers = profiled_balanced_split(model, rows, sharing_positions(job.placement()));
  return {.layers = layers,
          .costs = profiled_stage_costs(model, rows, steps, layers),
          .gradients = profiled_stage_gradients(model, rows, layers)};
}

CostedStages cost_once(const Specification& spec, const Parallelism& job, const Cluster& cluster,
                       std::vector<int> layers, Overlap overlap) {
  const ModelSpecification& model = *spec.model;
  if (model.measured)
    return cost_layer_profile(*model.transformer, *model.measured, job, std::move(layers));
  if (!spec.given_costs())
    return cost_by_shape(*model.transformer, job, cluster, std::move(layers),
                         overlap == Overlap::backward);
  CostedStages stages = model.by_layers ? cost_pipedream_profile(spec, job, std::move(layers))
                                        : cost_given(spec, job);
  divide_given_costs(job.mesh, stages.costs);
  return stages;
}

/// Costs of microbatches whose activations are stored, beside `costs` of those recomputed.
void add_stored(std::vector<StageCosts>& costs, const std::vector<StageCosts>& stored) {
  for (std::size_t s = 0; s < costs.size(); ++s) costs[s].stored = stored[s].pass(false);
}

/// Of a message.
double transfer_s(const Parallelism& job, const std::vector<StageCosts>& costs,
                  const Cluster& cluster) {
  if (job.lowering.transfers == Transfers::free) return 0;
  std::int64_t bytes = 0;
  for (const StageCosts& c : costs) bytes = std::max(bytes, c.output_bytes);
  // A private link between every two devices is crossed once; of others the bound is known.
  const LinkSpec link = cluster.link ? *cluster.link : slowest_route(cluster);
  return link.latency_s + static_cast<double>(bytes) / link.bytes_per_s;
}

/// Is this measured, in rows that this run can use?
void check_layer_profile(const Specification& spec, const Parallelism& job, Recompute recompute) {
  const PipelineKeys& keys = spec.pipeline;
  const LayerProfile& layer_profile = *spec.layer_profile();
  const ProfileUse use = profile_use(layer_profile, job, recompute);
  const std::string of_stages =
      job.recompute.alike()
          ? ""
          : fmt::format(" with recompute: {}", kRecomputeNames[static_cast<int>(recompute)]);
  const auto refuse = [&](const Value& where, const std::string& why) {
    if (!why.empty()) spec.diagnostics.add_error(where, why + of_stages);
    return !why.empty();
  };
  const std::string unknown = layer_profile.refuse_recompute(use);
  if (!unknown.empty())
    return spec.diagnostics.add_error(recompute_place(spec, recompute), unknown);
  if (spec.schedule != nullptr && spec.schedule->checkpoints &&
      job.shape.checkpoint == Checkpoint::except_last) {
    ProfileUse stored = use;  // the last microbatch's
    stored.recompute = Recompute::none;
    if (refuse(keys.checkpoint.at, layer_profile.refuse_recompute(stored)) ||
        refuse(keys.microbatch_size.at, layer_profile.refuse_size(stored)))
      return;
  }
  if (refuse(spec.model->section.at("measured_load"), layer_profile.refuse_load(use))) return;
  refuse(keys.microbatch_size.at, layer_profile.refuse_size(use));
}

}  // namespace

UnevenCosts::UnevenCosts(const Scenario& scenario) : scenario_(scenario) {
  const Placement placement = scenario.placement();
  std::vector<const DeviceSpec*> at(scenario.shape.depth, &scenario.cluster.device);
  for (std::uint32_t p = 0; p < scenario.shape.depth && !scenario.cluster.groups.empty(); ++p)
    at[p] = &slowest_of(*scenario.transformer, scenario.cluster,
                        scenario.gpus_of(placement.device_at(0, p)));
  devices_ = devices_of_stages(at, placement);
  if (scenario.stack.speed_spread <= 0) return;
  std::vector<StageCosts> even;
  for (std::uint32_t s = 0; s < devices_.size(); ++s) even.push_back(stage_costs(s, {}));
  pace_ = pace_of(scenario, even);
}

StageCosts UnevenCosts::stage_costs(std::uint32_t stage, const Uneven& uneven) const {
  StageCostOptions options = cost_options(scenario_);
  if (scenario_.mesh.divided) options.microbatch_size /= scenario_.mesh.width.at(stage);
  options.expert.rows = uneven.rows;
  options.expert.received = uneven.received;
  options.expert.skew = uneven.skew;
  options.attended = uneven.attended;
  return stage_costs_of(*scenario_.transformer, devices_[stage], scenario_.layers, stage, options);
}

PassCosts UnevenCosts::of(std::uint32_t stage, const Uneven& uneven) const {
  StageCosts costs = stage_costs(stage, uneven);
  if (pace_ != 1) costs.for_each_compute_s([&](double& seconds) { seconds *= pace_; });
  return costs.pass(false);
}

bool per_chunk(const Section& model) { return model.choice("per") == 1; }

void check_given_costs(const Specification& spec, const Parallelism& job) {
  if (!spec.by_costs()) return;
  const ScheduleShape& shape = job.shape;
  const auto& split = spec.pipeline.split;
  if (split.there && !split.broken)
    split.refuse("a model by costs is given per stage; there is nothing to split");
  // Which device has which stage matters only once nothing is wrong.
  StageShares shares = stage_shares(spec.model->section, shape);
  for (std::uint32_t s = 0; depth_known(spec, shape) && s < shape.stages(); ++s)
    shares.device_of.push_back(s % shape.depth);
  read_abstract_costs(spec.model->section, shares, job.recompute);
  if (shape.chunks == 1 || !shares.per_chunk) return;
  spec.diagnostics.note(
      fmt::format("per: chunk: costs are those of each of {} virtual stages, {} on a device, which "
                  "does {} times the work of one with a single stage",
                  shape.stages(), shape.chunks, shape.chunks));
}

void check_layer_profile(const Specification& spec, const Parallelism& job) {
  const LayerProfile* layer_profile = spec.layer_profile();
  if (layer_profile == nullptr || layer_profile->rows().empty() || !depth_known(spec, job.shape))
    return;
  if (spec.pipeline.recompute.broken || spec.pipeline.microbatch_size.broken) return;
  for (const Recomputation& value : job.recompute.distinct())
    check_layer_profile(spec, job, value.granularity);
}

CostedStages cost_stages(const Specification& spec, const Parallelism& job, const Cluster& cluster,
                         std::vector<int> layers, Overlap overlap) {
  CostedStages stages = cost_once(spec, job, cluster, std::move(layers), overlap);
  if (!spec.schedule->checkpoints || job.shape.checkpoint == Checkpoint::always) {
    slow_down(job, stages);
    return stages;
  }
  // Some microbatches are recomputed and some are not.
  Parallelism storing = job;
  storing.recompute = job.recompute.map([](const Recomputation& of_stage) {
    Recomputation none;
    none.offload = of_stage.offload;
    return none;
  });
  CostedStages stored = cost_once(spec, storing, cluster, stages.layers, overlap);
  add_stored(stages.costs, stored.costs);
  for (std::size_t kind = 0; kind < stages.unlike.costs.size(); ++kind)
    add_stored(stages.unlike.costs[kind], stored.unlike.costs[kind]);
  stages.gradients = std::move(stored.gradients);  // the last microbatch's, which completes them
  slow_down(job, stages);
  return stages;
}

bool beyond_curve(const Specification& spec, const Parallelism& job) {
  return spec.transformer() && !spec.layer_profile() &&
         job.microbatch_size * spec.transformer()->seq_length < kFewTokens;
}

void note_costs(const Specification& spec, const Scenario& scenario) {
  if (scenario.profile) return note_profile(spec, scenario);
  if (!scenario.transformer) return;
  const TransformerSpec& model = *scenario.transformer;
  for (const Recomputation& each : scenario.recompute.distinct()) {
    if (!scenario.layer_profile) break;
    const Recompute value = each.granularity;
    const int load =
        scenario.layer_profile->row(profile_use(*scenario.layer_profile, scenario, value)).load;
    spec.diagnostics.note(
        fmt::format("costs of the stages as measured {} (recompute {})",
                    load == 1 ? "on a device alone" : fmt::format("with {} devices at work", load),
                    kRecomputeNames[static_cast<int>(value)]));
  }
  if (scenario.layer_profile) return;
  if (scenario.optimistic) {
    spec.diagnostics.note(
        fmt::format("microbatches of {} tokens are small for the device's efficiency curve ({} and "
                    "more): times are optimistic",
                    scenario.microbatch_size * model.seq_length, kFewTokens));
  }
  const std::vector<Recomputation> recomputed = scenario.recompute.distinct();
  const auto selective = std::ranges::find_if(recomputed, [](const Recomputation& r) {
    return r.granularity == Recompute::selective && r.parts.contains(LayerPart::core_attn);
  });
  if (model.flash_attention && selective != recomputed.end()) {
    const double b = static_cast<double>(scenario.microbatch_size);
    spec.diagnostics.note(
        fmt::format("{} frees nothing with flash attention, which keeps no probabilities; "
                    "core attention is run again all the same, {:.1f} % more FLOPs in the layers",
                    selective->plain() ? "recompute: selective" : "core_attn of recompute_modules",
                    100 * model.layer_attention_flops(b) / (3 * model.layer_forward_flops(b))));
  }
  note_tensor(model, scenario.cluster, scenario.mesh, spec.diagnostics);
}

ScheduleShape told_shape(const Parallelism& job, const std::vector<StageCosts>& costs,
                         const Cluster& cluster) {
  const bool bytes_known =
      std::ranges::any_of(costs, [](const StageCosts& c) { return c.activation_bytes > 0; });
  ScheduleShape shape = job.shape;
  shape.times.clear();
  for (const StageCosts& c : costs) {
    StageTimes& t = shape.times.emplace_back();
    t.forward = c[OpKind::forward].seconds;
    t.backward_input = c[OpKind::backward_input].seconds;
    t.backward_weight = c[OpKind::backward_weight].seconds;
    if (!bytes_known) continue;
    // Orders are made for passes that take the most at F: what I makes again counts from there on.
    t.activation_after_input = static_cast<double>(c.activation_after_input_bytes);
    t.activation = std::max(static_cast<double>(c.activation_bytes), t.activation_after_input);
  }
  shape.transfer = transfer_s(job, costs, cluster);
  return shape;
}

CostedStages with_whole_backwards(CostedStages stages, std::uint32_t microbatches) {
  const auto m = static_cast<int>(microbatches);
  const auto join = [m](std::vector<StageCosts>& costs) {
    for (StageCosts& c : costs) {
      c.backward_microbatches = m;
      for (const OpKind kind :
           {OpKind::backward, OpKind::backward_input, OpKind::backward_weight}) {
        c[kind].seconds *= m;
        Recipe& recipe = c[kind].recipe;
        recipe.times *= m;
        for (Segment& segment : recipe.segments) {
          segment.bytes *= m;
          segment.calls *= m;
        }
      }
    }
  };
  join(stages.costs);
  for (std::vector<StageCosts>& costs : stages.unlike.costs) join(costs);
  return stages;
}

}  // namespace penstock
