// SPDX-License-Identifier: Apache-2.0
#include "scenarios/resolve.hpp"

#include "models/kernels/kernel_times.hpp"
#include "program/op_costs.hpp"
#include "scenarios/foreign.hpp"
#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

constexpr std::uint64_t kUsualMostOps = 50'000'000;  // about 3 GB of Program and Timeline
constexpr std::uint64_t kMaxOps = 4'000'000'000;     // numbers of ops have 32 bits

/// "4 stages x width 2 x tensor 8".
std::string ranks(const Parallelism& job) {
  const Mesh& mesh = job.mesh;
  const std::string width = mesh.width.alike()
                                ? fmt::format("{}", mesh.width.at(0))
                                : fmt::format("[{}]", fmt::join(mesh.width.values(), ", "));
  std::string text = fmt::format("{} stages x width {}", job.shape.depth, width);
  for (const Axis axis : kInnerAxes)
    if (mesh.size(axis) > 1) text += fmt::format(" x {} {}", traits(axis).name, mesh.size(axis));
  return text;
}

bool cluster_known(const Specification& spec) {
  return spec.cluster_problems.empty() && (spec.cluster_section || !spec.cluster_key.there);
}

Cluster cluster_of(const Specification& spec, const Parallelism& job) {
  const int needed = static_cast<int>(std::min<std::int64_t>(job.gpu_count(), 1'000'000'000));
  Cluster cluster = spec.cluster;
  if (!spec.cluster_key.there) {
    cluster.name = "free links";
    cluster.link = LinkSpec{};
    cluster.devices_per_node = 0;
  }
  if (cluster.devices_per_node == 0) cluster.devices_per_node = needed;
  spec.diagnostics.add_all(spec.cluster_problems);
  const bool known = depth_known(spec, job.shape) && cluster_known(spec) && mesh_known(spec) &&
                     !cluster_broken(spec);
  if (!known || cluster.devices() >= needed) return cluster;
  const PipelineKeys& keys = spec.pipeline;
  const Value& at = keys.stages.there ? keys.stages.at : keys.width.at;
  Diagnostic refusal =
      at.diagnostic(fmt::format("{} need {} devices, the cluster '{}' has {}", ranks(job), needed,
                                printable(cluster.name), cluster.devices()));
  refusal.reason = Reason::too_few_devices;
  refusal.devices = cluster.devices();
  spec.diagnostics.add_error(std::move(refusal));
  return cluster;
}

PerturbationSpec perturbations_of(const Specification& spec, const Parallelism& job) {
  if (!spec.perturbations.there || spec.perturbations.broken) return {};
  const bool known = depth_known(spec, job.shape) && !spec.pipeline.width.broken;
  return read_perturbations(Section(spec.section, "perturbations"),
                            known ? static_cast<int>(job.devices()) : 0, job.lowering.transfers);
}

void check_device(const DeviceSpec& device, const Specification& spec) {
  const TransformerSpec& transformer = *spec.transformer();
  const Section& model = spec.model->section;
  if (device.peak_flops_per_s.empty()) {
    spec.cluster_key.refuse(
        "a model by shape needs a cluster whose 'device' has a 'peak' (`penstock "
        "list clusters`); or give the model's costs");
    return;
  }
  std::string type = transformer.compute_type;
  for (std::size_t c = 0; c < kProductClasses && device.peak_flops_per_s.contains(type); ++c)
    type = transformer.peak_of(static_cast<ProductClass>(c));
  if (device.peak_flops_per_s.contains(type)) return;
  std::vector<std::string> allowed;
  for (const auto& [known, rate] : device.peak_flops_per_s)
    allowed.push_back(known.ends_with("16") ? "mixed-" + known : known);
  const Value& named = spec.model_key.at;
  spec.diagnostics.add_error(named.kind == Value::Kind::scalar ? named : model.at("precision"),
                             fmt::format("the device {} has no peak rate for {}{}; set the model's "
                                         "'precision' to {}",
                                         printable(device.name), type,
                                         model.has("precision") ? "" : ", which is the default",
                                         fmt::join(allowed, " or ")));
}

/// Have the devices a rate for the model's numbers? Measured costs need none.
void check_devices(const Specification& spec, const Cluster& cluster) {
  if (spec.layer_profile() || !spec.transformer() || !cluster_known(spec)) return;
  const Section& model = spec.model->section;
  if (model.broken("precision") || !model.has("num_layers")) return;
  check_device(cluster.device, spec);
  for (const NodeGroup& group : cluster.groups) check_device(group.node.device, spec);
}

/// 0: not known, or a mistake that was reported.
int known_layers(const Specification& spec) {
  if (!spec.model) return 0;
  const ModelSpecification& model = *spec.model;
  if (model.profile) return static_cast<int>(model.profile->layers.size());
  const bool known =
      model.transformer && model.section.has("num_layers") && !model.section.broken("num_layers");
  return known ? model.transformer->num_layers : 0;
}

/// " (4 devices x 2 chunks)", or nothing.
std::string chunked(const ScheduleShape& shape) {
  if (shape.chunks == 1) return "";
  return fmt::format(" ({} devices x {} chunks)", shape.depth, shape.chunks);
}

std::vector<int> listed_layers(const Numbers& split, int stages, int layers) {
  const auto counts = split.value_or({});
  std::vector<int> each(counts.begin(), counts.end());
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (counts.size() != static_cast<std::size_t>(stages)) {
    split.refuse(
        fmt::format("'split' lists {} stages, the pipeline has {}", counts.size(), stages));
  }
  if (sum != layers) {
    split.refuse(fmt::format("'split' adds up to {:.0f} layers, the model has {}", sum, layers));
  }
  return each;
}

std::vector<int> even_layers(const Integer& at, const ScheduleShape& shape, int layers) {
  const int stages = static_cast<int>(shape.stages());
  std::vector<int> each = even_split(layers, stages);
  if (!each.empty()) return each;
  int below = stages, above = stages;
  while (layers % below != 0) --below;
  while (layers % above != 0) ++above;
  at.refuse(
      fmt::format("{} layers do not divide evenly into {} stages{}; the nearest "
                  "{} that do are {} and {}, or use split: balanced or a list",
                  layers, stages, chunked(shape), shape.chunks > 1 ? "numbers of stages" : "depths",
                  below, above));
  return each;
}

/// Layers per stage, where they do not depend on costs.
std::vector<int> layers_of(const Specification& spec, const ScheduleShape& shape) {
  const PipelineKeys& keys = spec.pipeline;
  const int layers = known_layers(spec);
  if (layers == 0 || keys.split.broken || !depth_known(spec, shape)) return {};
  const int stages = static_cast<int>(shape.stages());
  if (keys.split.is_list()) return listed_layers(keys.split_layers, stages, layers);
  const Split usual = spec.by_layers() ? Split::balanced : Split::even;
  const bool balanced = keys.split.value_or(usual) == Split::balanced;
  // A chunk may have no layers, a device of a transformer none but the embedding or the head.
  const bool some_empty = balanced && !spec.model->profile;
  if ((some_empty ? static_cast<int>(shape.depth) : stages) > layers) {
    keys.stages.refuse(fmt::format("{} layers cannot fill {} stages{}; use at most {}", layers,
                                   stages, chunked(shape),
                                   std::max(1, layers / static_cast<int>(shape.chunks))));
    return {};
  }
  if (balanced) return {};
  return even_layers(keys.stages, shape, layers);
}

PlacementRequest placement_request(const PipelineKeys& keys, const Parallelism& job) {
  PlacementRequest request{.widths = job.widths(),
                           .replica_gpus = job.mesh.replica_gpus(),
                           .pipeline_first = job.mesh.pipeline_first,
                           .policy = keys.placement.value_or(PlacementPolicy::fill_node),
                           .gpus = {}};
  for (const double gpu : keys.placement_gpus.value_or({}))
    request.gpus.push_back(static_cast<int>(gpu));
  return request;
}

void check_placement(const Specification& spec, const Parallelism& job, const Cluster& cluster) {
  const auto& key = spec.pipeline.placement;
  const bool known = depth_known(spec, job.shape) && cluster_known(spec) && mesh_known(spec);
  if (!key.there || key.broken || !known) return;
  const PlacementRequest request = placement_request(spec.pipeline, job);
  if (request.ranks() > cluster.devices()) return;  // said already
  for (const PlacementProblem& problem : refuse_placement(cluster, request)) {
    if (problem.item < 0)
      key.refuse(problem.why + fmt::format(" ({})", ranks(job)));
    else
      spec.diagnostics.add_error(key.at.items[static_cast<std::size_t>(problem.item)], problem.why);
  }
}

/// Copies to the host go over a PCIe tree, which all nodes must have.
void check_offload(const Specification& spec, const Parallelism& job, const Cluster& cluster) {
  const auto offloads = [](const Recomputation& r) { return r.offload > 0; };
  if (std::ranges::none_of(job.recompute.values(), offloads)) return;
  bool reached = !cluster.link && !cluster.network;
  for (int n = 0; reached && n < cluster.nodes; ++n)
    reached = cluster.node(n).spec.pcie.has_value();
  if (reached) return;
  spec.pipeline.offload.refuse(
      "'offload' needs a cluster that says how its GPUs reach the memory of their host: give it "
      "`pcie`, such as {link: 55 GB/s}");
}

/// The GPUs of each device of the Program.
std::vector<std::vector<int>> gpus_of(const PipelineKeys& keys, const Parallelism& job,
                                      const Cluster& cluster) {
  const Mesh& mesh = job.mesh;
  std::vector<int> ranked = place(cluster, placement_request(keys, job));
  std::erase(ranked, -1);  // places of positions with fewer replicas than others
  const Placement replicas = loop_placement(job.widths(), 1);  // a place for each device
  std::vector<std::vector<int>> gpus(static_cast<std::size_t>(job.devices()));
  auto next = ranked.begin();
  const int each = mesh.replica_gpus();
  for (int replica = 0; replica < replicas.devices(); ++replica, next += each) {
    const auto device = mesh.divided ? std::size_t{replicas.position_of(replica)}
                                     : static_cast<std::size_t>(replica);
    gpus[device].insert(gpus[device].end(), next, next + each);
  }
  return gpus;
}

void check_size(const Specification& spec, const ScheduleShape& shape) {
  const std::uint64_t most =
      spec.most_ops.value ? static_cast<std::uint64_t>(*spec.most_ops.value) : kUsualMostOps;
  // What cannot overflow says whether the other one did.
  const double about = double(shape.microbatches_per_update) * shape.batches * shape.depth *
                       std::ranges::max(shape.replicas.values());
  const std::uint64_t ops = about > double(kMaxOps)
                                ? static_cast<std::uint64_t>(std::min(about, 9e18))
                                : count_ops(shape);
  if (ops <= std::min(most, kMaxOps)) return;
  const std::string lift =
      ops > kMaxOps ? "" : fmt::format(", or lift the limit with most_ops: {}", ops);
  spec.pipeline.section.refuse(
      fmt::format("the run has about {} ops, more than {}; they would take {}: simulate fewer "
                  "batches or microbatches{}",
                  format_count(static_cast<std::int64_t>(ops)),
                  format_count(static_cast<std::int64_t>(std::min(most, kMaxOps))),
                  format_bytes(static_cast<double>(ops) * kBytesPerOp), lift));
}

double transfer_s(const Cluster& cluster, const StageCosts& c) {
  const LinkSpec link = slowest_route(cluster);
  return 2 * (link.latency_s + static_cast<double>(c.output_bytes) / link.bytes_per_s);
}

/// Sums over the run must fit 63 bits, of bytes and of nanoseconds.
void check_magnitudes(const Part& model, const Parallelism& job, const Cluster& cluster,
                      const std::vector<StageCosts>& costs, const PerturbationSpec& perturbations) {
  constexpr double kMost = 4e18;
  const ScheduleShape& shape = job.shape;
  const double runs = static_cast<double>(shape.total());
  const double width = std::ranges::max(shape.replicas.values());
  // PipeDream keeps the most versions: one per stage, the live one and a further copy.
  const double versions = static_cast<double>(shape.depth) * 2 + 2;
  double seconds = 0, most_bytes = 0, reduce_s = 0;
  for (const StageCosts& c : costs) {
    seconds += c[OpKind::forward].seconds + c[OpKind::backward].seconds + c.step_s +
               transfer_s(cluster, c);
    reduce_s += c.reduce_grad_s;
    double bytes = 0;
    for (const std::int64_t part :
         {c.output_bytes, c.weight_bytes, c.gradient_bytes, c.reduced_bytes, c.optimizer_bytes,
          c.version_bytes, c.activation_bytes, c.activation_after_input_bytes,
          c.forward_workspace_bytes, c.backward_workspace_bytes, c.again_workspace_bytes}) {
      bytes += part < 0 ? kMost : static_cast<double>(part);  // negative: it did not even fit here
    }
    const double moved = static_cast<double>(c.output_bytes) * runs * width;
    const double held = static_cast<double>(c.version_bytes) * versions;
    const double on_device =
        job.schedule->layout == Layout::mirrored ? 2 : static_cast<double>(shape.chunks);
    most_bytes =
        std::max({most_bytes, on_device * bytes * runs, moved, on_device * (bytes + held)});
  }
  seconds = perturbations.at_most_s(seconds * runs + reduce_s * shape.batches);
  if (!(most_bytes < kMost)) model.refuse("the run would hold or move more than 4 EB on a device");
  if (!(seconds * 1e9 < kMost)) model.refuse("the run would take more than a hundred years");
}

bool reduces(const Parallelism& job) {
  return job.mesh.sharers() > 1 || job.mesh.expert_sharers(0) > 1 ||
         job.schedule->layout == Layout::mirrored;
}

/// The parts of a position's reduction: those of each of its stages, of which each has a share of
/// the bytes.
std::vector<GradientBucket> position_buckets(const ReductionRequest& request,
                                             const std::vector<std::uint32_t>& here,
                                             const CostedStages& stages) {
  double all_bytes = 0;
  for (const std::uint32_t s : here)
    all_bytes += static_cast<double>(stages.costs[s].reduced_bytes);
  std::vector<GradientBucket> parts;
  for (const std::uint32_t s : here) {
    static const std::vector<LayerGradient> kUnknown;
    const auto bytes = static_cast<double>(stages.costs[s].reduced_bytes);
    const double share = all_bytes > 0 ? bytes / all_bytes : 1 / static_cast<double>(here.size());
    for (GradientBucket bucket :
         buckets_of(request, s < stages.gradients.size() ? stages.gradients[s] : kUnknown, bytes)) {
      bucket.share *= share;
      bucket.stage = static_cast<std::uint16_t>(s);
      parts.push_back(bucket);
    }
  }
  return parts;
}

ReductionOptions reduction_options(const ReductionRequest& request, const Parallelism& job,
                                   const CostedStages& stages, const TransformerSpec* model) {
  ReductionOptions options = request.options;
  if (!reduces(job)) return options;
  options.sharding = job.sharding;
  if (job.sharding.reduces_each_backward() && !job.sharding.hybrid()) return options;
  const bool gathers = request.overlap == Overlap::backward && job.sharding.gathers_in_reduction();
  const Placement placement = job.placement();
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(placement.depth()); ++p) {
    std::vector<GradientBucket> buckets = position_buckets(request, placement.stages_at(p), stages);
    if (gathers) buckets = with_weights_last(model->bytes, std::move(buckets));
    options.buckets.push_back(std::move(buckets));
    if (!model || !model->experts) continue;
    const auto of_experts =
        at_position(placement, stages.costs, p, &StageCosts::expert_reduced_bytes);
    const auto all = at_position(placement, stages.costs, p, &StageCosts::reduced_bytes);
    options.expert_share.push_back(
        all > 0 ? static_cast<double>(of_experts) / static_cast<double>(all) : 0);
  }
  return options;
}

/// The costs together with what the reductions add to them.
std::vector<StageCosts> with_reductions(std::vector<StageCosts> costs, const Parallelism& job,
                                        const Cluster& cluster, const ReductionOptions& options) {
  if (!reduces(job)) return costs;
  costs = with_reduction_times(std::move(costs), job, cluster, options);
  if (!job.lowering.detached_reductions) return costs;
  // The next batch's gradients come while the last one's are on their way.
  for (std::size_t s = 0; s < costs.size(); ++s)
    if (job.mesh.sharers(s) > 1) costs[s].gradient_bytes *= 2;
  return costs;
}

/// The shape as its schedule knows it, which may refuse the costs.
ScheduleShape final_shape(const Specification& spec, const Parallelism& job,
                          const std::vector<StageCosts>& costs, const Cluster& cluster) {
  if (!job.schedule->looks_at_costs) return job.shape;
  ScheduleShape shape = told_shape(job, costs, cluster);
  const Refusal refused = job.schedule->refuse(shape);
  if (!refused.empty()) add_refusal(refused, spec, shape);
  return shape;
}

/// Room for another replica, which somebody may have forgotten.
void note_idle_gpus(const Specification& spec, const Scenario& scenario) {
  const std::int64_t there = scenario.cluster.devices(), used = scenario.gpu_count();
  if (2 * used > there || !scenario.transformer) return;
  const std::string width =
      scenario.mesh.width.alike()
          ? fmt::format(": width {} would use {}", there / (used / scenario.mesh.width.at(0)),
                        there % (used / scenario.mesh.width.at(0)) == 0 ? "all" : "most")
          : "";
  spec.diagnostics.note(fmt::format("uses {} of the cluster's {} GPUs{}", used, there, width));
}

/// What an order takes for granted that nobody said.
void note_assumptions(const Specification& spec, const Scenario& scenario) {
  const Schedule& schedule = *scenario.schedule;
  if (schedule.splits_backward && spec.given_costs() &&
      !spec.model->section.has("backward_input")) {
    spec.diagnostics.note(
        fmt::format("half of a backward counts as backward_input, half as backward_weight{}",
                    spec.by_costs() ? " (give both where they differ)" : ""));
  }
  if (schedule.usual_limit == 0 || spec.pipeline.memory_limit.there) return;
  ScheduleShape other = scenario.shape;
  other.memory_limit = schedule.usual_limit + 0.5;
  if (!schedule.refuse(other).empty()) return;  // its name is its limit
  spec.diagnostics.note(
      fmt::format("'{}' searches within {:g} times the activations of 1F1B (pipeline.memory_limit "
                  "says otherwise)",
                  schedule.name, schedule.usual_limit));
}

/// Exchanges leave multiprocessors for what computes beside them.
void check_multiprocessors(const Specification& spec, const Cluster& cluster) {
  const auto& key = spec.pipeline.expert_sms;
  const auto& times = cluster.device.kernel_times;
  if (times == nullptr && key.value_or(0) > 0)
    spec.diagnostics.note(
        "expert_sms changes nothing: how many multiprocessors a device has is known with measured "
        "kernels alone (stack megatron, nemo or megatron-kernels)");
  if (times == nullptr || static_cast<double>(key.value_or(0)) < times->multiprocessors) return;
  key.refuse(
      fmt::format("'expert_sms' leaves nothing to compute with: {} has {:.0f} "
                  "multiprocessors; use fewer",
                  printable(cluster.device.name), times->multiprocessors));
}

/// Returns the job on the cluster's GPUs, with the prices of what the GPUs of each stage exchange.
Parallelism placed(const Specification& spec, Parallelism job, const Cluster& cluster) {
  job.mesh.gpus = gpus_of(spec.pipeline, job, cluster);
  if (job.mesh.gpus.empty()) return job;
  const Sharding& sharding = job.sharding;
  const bool matrices = OptimizerSpec{job.optimizer_kind}.of_matrices() &&
                        sharding.what > Sharded::optimizer && sharding.group > 1;
  const bool tensor = job.mesh.size(Axis::tensor) > 1;
  if (!tensor && !matrices) return job;
  const Placement where = job.placement();
  const auto by_stage = [&](const auto& price_at) {
    std::vector<CollectivePrice> of_positions, of_stages;
    for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(where.depth()); ++p)
      of_positions.push_back(price_at(p));
    for (const std::uint32_t p : where.positions()) of_stages.push_back(of_positions[p]);
    return PerStage<CollectivePrice>(std::move(of_stages));
  };
  if (tensor)
    job.tensor_sum = by_stage([&](std::uint32_t p) {
      return price({}, job.mesh.groups(where.device_at(0, p), Axis::tensor), cluster);
    });
  if (matrices)
    job.matrix_exchange = by_stage([&](std::uint32_t p) {
      return price({Collective::all_to_all},
                   cut_into(reduction_groups(where, job.mesh, p), sharding.group), cluster);
    });
  return job;
}

/// Says that times of this device rest on a number that nobody measured on it; nothing where they
/// do not.
std::string note_on_assumed(const StackSpec& stack, const DeviceSpec& device) {
  if (!stack.takes_layers_apart())
    return device.efficiency_assumed
               ? fmt::format(
                     "the efficiency curve of {} is assumed, no layer was measured on it: "
                     "`penstock calibrate` measures",
                     printable(device.name))
               : "";
  if (device.kernel_times)
    return device.kernel_times->device == device.name
               ? ""
               : fmt::format("kernels of {} are assumed as those of {}, by the ratio of the peaks",
                             printable(device.name), device.kernel_times->device);
  const std::string known = fmt::format(", {},", stack.matrix_efficiency_of);
  if (stack.matrix_efficiency_of.empty() || device.matrix_efficiency > 0 ||
      known.find(fmt::format(", {},", device.name)) != std::string::npos)
    return "";
  return fmt::format(
      "that matrix products reach {:.3g} % of the peak of {} is assumed, software "
      "'{}' was not measured on it",
      100 * stack.matrix_efficiency, printable(device.name), stack.name);
}

/// What times rest on that the scenario did not say, or that nobody measured.
void add_assumptions(const Specification& spec, std::vector<std::string>& notes) {
  if (!spec.transformer() || spec.layer_profile()) return;
  if (!spec.section.has("stack"))
    notes.push_back(
        fmt::format("the scenario names no stack: its software is taken to be {} (`penstock list "
                    "stacks`; stack: none adds nothing to the device's curve)",
                    spec.stack.name));
  std::vector<std::string> assumed{note_on_assumed(spec.stack, spec.cluster.device)};
  for (const NodeGroup& group : spec.cluster.groups)
    assumed.push_back(note_on_assumed(spec.stack, group.node.device));
  for (std::string& note : assumed)
    if (!note.empty() && std::ranges::find(notes, note) == notes.end())
      notes.push_back(std::move(note));
}

/// Those of other tools' files, and what a model leaves out or cannot say, whatever the job is.
std::vector<std::string> file_notes_of(const Specification& spec, const Scenario& out) {
  std::vector<std::string> notes = spec.notes_of_files();
  add_assumptions(spec, notes);
  for (const std::string& note : notes) spec.diagnostics.note(note);
  if (const std::string length = note_on_length(spec.model->section.self()); !length.empty())
    notes.push_back(length);
  for (const auto& [what, needs] :
       {std::pair{out.missing, "more"}, std::pair{out.missing_saves, "less"}}) {
    if (what.empty()) continue;
    notes.push_back(
        fmt::format("the model is one without {}: the real job needs {} memory than this, and at "
                    "best is as fast",
                    what, needs));
    spec.diagnostics.note(notes.back());
  }
  return notes;
}

}  // namespace

Scenario resolve(const Specification& spec) {
  const PerStage<int> width = widths_of(spec);
  const ReductionRequest asked = reduction_of(spec, std::ranges::max(width.values()));
  Parallelism job = parallelism_of(spec, width, asked);
  const ReductionRequest request = with_usual_overlap(asked, spec);
  Cluster cluster = cluster_of(spec, job);
  PerturbationSpec perturbations = perturbations_of(spec, job);
  auto [optimizer, training] = training_of(spec, job.shape.batches);
  job.optimizer_kind = optimizer.kind;
  check_layer_profile(spec, job);
  check_devices(spec, cluster);
  check_given_costs(spec, job);
  std::vector<int> layers = layers_of(spec, job.shape);
  check_placement(spec, job, cluster);
  check_offload(spec, job, cluster);
  check_multiprocessors(spec, cluster);
  spec.diagnostics.throw_if_any();  // what follows needs all of the above
  check_size(spec, job.shape);
  spec.diagnostics.throw_if_any();
  job = placed(spec, std::move(job), cluster);
  CostedStages stages = cost_stages(spec, job, cluster, std::move(layers), request.overlap);
  if (!stages.unlike.kind.empty() && (job.routing || job.documents))
    (job.routing ? spec.routing_key : spec.documents_key)
        .refuse(
            "what differs by microbatch is not modelled where the replicas of a stage are on "
            "devices of different kinds");
  ReductionOptions reduction = reduction_options(request, job, stages, spec.transformer());
  stages.costs = with_reductions(std::move(stages.costs), job, cluster, reduction);
  if (job.schedule->whole_backward)
    stages = with_whole_backwards(std::move(stages), job.shape.microbatches_per_update);
  check_magnitudes(spec.model_key, job, cluster, stages.costs, perturbations);
  job.shape = final_shape(spec, job, stages.costs, cluster);

  Scenario out;
  out.optimistic = beyond_curve(spec, job);
  static_cast<Parallelism&>(out) = std::move(job);
  out.name = spec.name.value_or("");
  out.transformer = spec.model->transformer;
  out.missing = printable(spec.model->section.text("missing").value_or(""));
  out.missing_saves = printable(spec.model->section.text("missing_saves").value_or(""));
  out.layer_profile = spec.model->measured;
  out.profile = spec.model->profile;
  out.reduction = std::move(reduction);
  out.cluster = std::move(cluster);
  out.layers = std::move(stages.layers);
  out.costs = std::move(stages.costs);
  out.costs_per_chunk = spec.by_costs() && per_chunk(spec.model->section);
  out.unlike = std::move(stages.unlike);
  out.samples_per_epoch = spec.samples_per_epoch.value;
  out.perturbations = std::move(perturbations);
  out.optimizer = optimizer;
  out.training = std::move(training);
  out.file_notes = file_notes_of(spec, out);
  if (out.routing || out.documents) {
    spec.diagnostics.throw_if_any();
    note_draws(spec, out, draw_microbatches(out, 0));
  }
  note_costs(spec, out);
  note_idle_gpus(spec, out);
  note_assumptions(spec, out);
  spec.diagnostics.throw_if_any();
  out.notes = spec.diagnostics.notes();
  return out;
}

}  // namespace penstock
