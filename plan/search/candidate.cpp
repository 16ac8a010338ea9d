// SPDX-License-Identifier: Apache-2.0
#include "plan/search/candidate.hpp"

#include "base/numbers.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "program/iterations.hpp"
#include "scenarios/document.hpp"
#include "scenarios/library.hpp"
#include "scenarios/overrides.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

namespace penstock {
namespace {

struct TreatedKeys {
  std::string_view section;
  Treatment treatment;
  std::string_view keys;  ///< separated by '|'
};

/// Each key of a scenario and of its pipeline, once.
constexpr TreatedKeys kTreated[] = {
    {"scenario", Treatment::kept,
     "name|model|cluster|stack|transfers|training|samples_per_epoch|most_ops"},
    {"scenario", Treatment::chosen, "schedule|batches|pipeline"},
    {"scenario", Treatment::refused, "perturbations|routing|documents"},
    {"pipeline", Treatment::kept,
     "optimizer_sync|reduction|context_exchange|expert_exchange|expert_sms|narrow_dispatch"},
    {"pipeline", Treatment::chosen,
     "stages|chunks|memory_limit|checkpoint|width|tensor|context|sequence_parallel|"
     "tensor_overlap|transfers_divided|expert|split|distributed_optimizer|shard|microbatch_size|"
     "microbatches|"
     "recompute|recompute_modules|"
     "global_batch_size|recompute_method|recompute_layers|rank_order|replication|placement"},
    {"pipeline", Treatment::of_given_job,
     "group|correction|accumulation_steps|vertical_sync|stashing|weight_copies|"
     "ulysses|offload|shard_group|reshard_after_forward|unshard_lookahead|expert_tensor|expert_"
     "overlap"},
};

std::string why_not_planned(std::string_view key) {
  return key == "perturbations" ? kPlansAreUndisturbed : plans_are_even(key);
}

constexpr std::int64_t kMostOps = 50'000'000;  ///< a scenario's usual most_ops

/// By the name that the document has, which may be another one of the key's.
std::optional<Treatment> treatment_of(std::string_view section, const Value::Entry& entry) {
  const KeyRow* row = find_key(section, entry.key.text);
  return row == nullptr ? std::nullopt : penstock::treatment_of(section, row->key);
}

/// What is kept of a section.
Value kept_of(const Value& map, std::string_view section) {
  Value out = map;
  std::erase_if(out.entries, [&](const Value::Entry& entry) {
    return treatment_of(section, entry) != Treatment::kept;
  });
  return out;
}

/// Throws InputError for keys that plans can neither choose nor keep; returns those of the pipeline
/// that only the job as given has.
std::vector<std::string> check_keys(const Value& document) {
  std::vector<Diagnostic> wrong;
  std::vector<std::string> left_out;
  const auto check = [&](std::string_view section, const Value::Entry& entry) {
    const auto treatment = treatment_of(section, entry);
    const bool empty = entry.value.kind == Value::Kind::null ||
                       (entry.value.kind == Value::Kind::map && entry.value.entries.empty());
    if (treatment == Treatment::of_given_job)
      left_out.push_back(fmt::format(
          "{}.{}: {}", section, find_key(section, entry.key.text)->key,
          entry.value.kind == Value::Kind::scalar ? entry.value.text : to_flow(entry.value)));
    if (treatment == Treatment::refused && !empty)
      wrong.push_back(
          entry.key.diagnostic(why_not_planned(find_key(section, entry.key.text)->key)));
    if (!treatment)
      wrong.push_back(entry.key.diagnostic(
          fmt::format("'{}' is a key that a plan can neither choose nor keep; take it out",
                      printable(entry.key.text))));
  };
  for (const Value::Entry& entry : document.entries) check("scenario", entry);
  if (const Value* pipeline = document.find("pipeline"))
    for (const Value::Entry& entry : pipeline->entries) check("pipeline", entry);
  if (!wrong.empty()) throw InputError(wrong);
  return left_out;
}

const Value* of_pipeline(const Value& document, const char* key) {
  return value_at(document, {"pipeline", key});
}

/// The scenario without what the search chooses.
Value kept_of(const Value& document) {
  Value kept = kept_of(document, "scenario");
  const Value* pipeline = document.find("pipeline");
  if (pipeline != nullptr && pipeline->kind == Value::Kind::map) {
    Value of_pipeline = kept_of(*pipeline, "pipeline");
    if (!of_pipeline.entries.empty())
      kept.entries.push_back({to_value("pipeline"), std::move(of_pipeline)});
  }
  return kept;
}

/// Costs that were measured are known of what the scenario runs, if of nothing else.
void add_measured_choice(const Value& document, Settings& settings) {
  const auto is_scalar = [](const Value& value) { return value.kind == Value::Kind::scalar; };
  bool selective = false;
  for (const char* key : {"microbatch_size", "recompute"}) {
    const Value* value = of_pipeline(document, key);
    if (value == nullptr || !is_scalar(*value)) continue;
    settings.emplace_back(std::string("pipeline.") + key, *value);
    selective = value->text == "selective";
  }
  const Value* modules = of_pipeline(document, "recompute_modules");
  if (modules != nullptr && selective && std::ranges::all_of(modules->items, is_scalar))
    settings.emplace_back("pipeline.recompute_modules", *modules);
}

/// The groups of a cluster, of what it starts from, or of the file that it is; none: it says none.
std::optional<Value> groups_in(const Value& cluster) {
  namespace fs = std::filesystem;
  if (cluster.kind == Value::Kind::map) {
    if (const Value* groups = cluster.find("groups")) return *groups;
    const Value* base = cluster.find("base");
    return base == nullptr ? std::nullopt : groups_in(*base);
  }
  std::error_code ignored;
  if (fs::is_regular_file(cluster.text, ignored)) return groups_in(load_document(cluster.text));
  const fs::path shipped = fs::path(data_folder()) / "models/clusters" / (cluster.text + ".yaml");
  if (!fs::exists(shipped, ignored)) return std::nullopt;
  return groups_in(load_document(shipped.string()));
}

std::optional<bool> said(const Value& document, const char* key) {
  const Value* value = of_pipeline(document, key);
  if (value == nullptr) return std::nullopt;
  return value->text == "true";
}

std::vector<bool> values_of(std::optional<bool> said) {
  return said ? std::vector<bool>{*said} : std::vector<bool>{true, false};
}

/// Activations that each device has room for, where the order is searched for and may take more;
/// empty: it takes what it takes.
std::vector<std::string> memory_limits(const Scenario& scenario) {
  constexpr int kMessages = 4;  // of a stage that wait
  constexpr double kDigits = 1e4;
  const Schedule& schedule = *scenario.schedule;
  if (!schedule.looks_at_costs || schedule.usual_limit == 0 || scenario.shape.chunks != 2)
    return {};
  const double unit = one_f_one_b_peak(scenario.shape);
  ScheduleShape limited = scenario.shape;
  std::vector<double> bytes(limited.depth, 0), largest(limited.depth, 0);
  for (std::uint32_t s = 0; s < limited.stages(); ++s) {
    const StageCosts& costs = scenario.costs[s];
    const std::uint32_t d = std::min(s, limited.stages() - 1 - s);
    const std::int64_t state = costs.weight_bytes + costs.gradient_bytes + costs.optimizer_bytes;
    bytes[d] += static_cast<double>(state + kMessages * costs.output_bytes);
    largest[d] = std::max({largest[d], static_cast<double>(costs.forward_workspace_bytes),
                           static_cast<double>(costs.backward_workspace_bytes)});
  }
  const auto replicas = static_cast<std::uint32_t>(scenario.mesh.width.at(0));
  for (std::uint32_t d = 0; d < limited.depth; ++d) {
    double limit = schedule.usual_limit;
    for (std::uint32_t r = 0; r < replicas; ++r) {
      const auto device = static_cast<int>(r * limited.depth + d);
      const auto capacity = static_cast<double>(scenario.capacity_bytes(device));
      const double room = std::floor((capacity - bytes[d] - largest[d]) / unit * kDigits) / kDigits;
      if (capacity > 0) limit = std::min(limit, room);
    }
    limited.memory_limits.push_back(limit);
  }
  const bool usual = std::ranges::min(limited.memory_limits) >= schedule.usual_limit;
  if (usual || !schedule.refuse(limited).empty()) return {};
  std::vector<std::string> out;
  for (const double limit : limited.memory_limits) out.push_back(fmt::format("{:.4f}", limit));
  return out;
}

std::vector<int> up_to(int n) {
  std::vector<int> out(static_cast<std::size_t>(std::max(n, 0)));
  std::iota(out.begin(), out.end(), 1);
  return out;
}

/// Devices of a node, of each kind of node.
std::vector<int> node_sizes(const Cluster& cluster) {
  std::vector<int> out;
  for (const NodeGroup& group : cluster.groups) out.push_back(group.node.devices_per_node);
  if (out.empty()) out.push_back(cluster.devices_per_node);
  return out;
}

std::vector<int> tensors_of(const Scenario& base, bool sequence) {
  if (!base.transformer || base.layer_profile) return {1};
  const TransformerSpec& model = *base.transformer;
  const bool nodes = !base.cluster.link && !base.cluster.network;
  std::vector<int> out;
  const std::vector<int> sizes =
      nodes ? node_sizes(base.cluster) : std::vector{base.cluster.devices()};
  for (const int t : up_to(std::ranges::max(sizes))) {
    const auto divides = [&](int size) { return size % t == 0; };
    const bool whole = (!nodes || std::ranges::any_of(sizes, divides)) &&
                       model.num_attention_heads % t == 0 && model.num_query_groups % t == 0 &&
                       model.ffn_hidden_size % t == 0 &&
                       (!model.experts || model.experts->shared_width % t == 0) &&
                       (!sequence || model.seq_length % t == 0);
    if (whole) out.push_back(t);
  }
  return out;
}

/// What the scenario says; else of long sequences the powers of two, which divide them.
std::vector<int> contexts_of(const Scenario& base, std::optional<int> given, int gpus) {
  constexpr std::int64_t kLong = 32'768;
  if (given) return {*given};
  std::vector<int> out{1};
  if (!base.transformer || base.layer_profile || base.transformer->seq_length < kLong) return out;
  while (out.back() * 2 <= gpus && base.transformer->seq_length % (out.back() * 4) == 0)
    out.push_back(out.back() * 2);
  return out;
}

std::vector<Arrangement> arrangements_of(const Cluster& cluster) {
  std::vector<Arrangement> out{{}};
  if (cluster.link && cluster.link->full_duplex) return out;  // all GPUs are alike to each other
  const bool alike = cluster.attachment == Attachment::port && !cluster.network;
  if (cluster.nodes == 1 && alike) return out;
  out.push_back({"fill-node", "pipeline-first"});
  if (cluster.nodes == 1) return out;
  out.push_back({"round-robin", "data-first"});
  out.push_back({"round-robin", "pipeline-first"});
  return out;
}

/// Joins the neighbours that take least time together until few are left: costs of all runs of
/// layers are tabulated.
std::vector<int> joined(const PipedreamProfile& profile) {
  constexpr std::size_t kMost = 64;
  std::vector<int> runs(profile.layers.size(), 1);
  std::vector<double> times;
  for (const ProfiledLayer& layer : profile.layers)
    times.push_back(layer.forward_s + layer.backward_s);
  while (runs.size() > kMost) {
    std::size_t least = 0;
    for (std::size_t i = 1; i + 1 < runs.size(); ++i)
      if (times[i] + times[i + 1] < times[least] + times[least + 1]) least = i;
    const auto next = static_cast<std::ptrdiff_t>(least) + 1;
    runs[least] += runs[least + 1];
    times[least] += times[least + 1];
    runs.erase(runs.begin() + next);
    times.erase(times.begin() + next);
  }
  return runs;
}

std::vector<int> layers_of(const Scenario& base) {
  if (base.profile) return joined(*base.profile);
  return std::vector<int>(
      base.transformer ? static_cast<std::size_t>(base.transformer->num_layers) : 0, 1);
}

std::int64_t batch_of(const Value& document, const std::string& origin) {
  if (document.find("schedule") == nullptr)
    throw InputError(origin, "gives no batch: say how many samples an update has (--batch)");
  return static_cast<std::int64_t>(
      ScenarioTemplate(document, origin).with({}).samples_per_update());
}

}  // namespace

std::optional<Treatment> treatment_of(std::string_view section, std::string_view key) {
  for (const TreatedKeys& treated : kTreated)
    if (treated.section == section && place_of_choice(treated.keys, key)) return treated.treatment;
  return std::nullopt;
}

int PlanFamily::stages() const {
  return schedule->layout == Layout::mirrored ? shape.depth : shape.depth * chunks;
}

ScheduleShape PlanFamily::schedule_shape() const {
  ScheduleShape out;
  out.depth = static_cast<std::uint32_t>(shape.depth);
  out.chunks = schedule->layout == Layout::mirrored ? 1 : static_cast<std::uint32_t>(chunks);
  out.microbatches_per_update = static_cast<std::uint32_t>(shape.microbatches);
  if (schedule->checkpoints) out.checkpoint = checkpoint;
  return out;
}

bool PlanFamily::admitted() const {
  const Chunks& c = schedule->chunks;
  const auto v = static_cast<std::uint32_t>(chunks);
  if (shape.depth == 1 && chunks > 1) return false;  // the same device again
  if (schedule->layout == Layout::mirrored) {
    if (v != c.least) return false;  // its two stages of a device are those of the two directions
  } else if (v < c.least || v > c.most || (v - c.least) % c.step != 0) {
    return false;
  }
  if (schedule->whole_model && shape.depth > 1) return false;
  if (schedule->asynchronous && (shape.width == 1 || shape.sharded != Sharded::none)) return false;
  return schedule->refuse(schedule_shape()).empty();
}

std::string PlanFamily::describe() const {
  const std::string name = schedule == nullptr ? "any schedule" : std::string(schedule->name);
  return fmt::format(
      "{}, {} stages x {} chunks x width {}{} x tensor {}{}{}, microbatch {}, {}, {}", name,
      shape.depth, chunks, shape.width,
      shape.sharded == Sharded::none ? ""
                                     : fmt::format(" (ZeRO-{})", static_cast<int>(shape.sharded)),
      shape.tensor, shape.sequence_parallel ? " (sequence parallel)" : "",
      (shape.context > 1 ? fmt::format(" x context {}", shape.context) : "") +
          (shape.expert > 1 ? fmt::format(", expert {}", shape.expert) : ""),
      shape.microbatch_size, arrangement.rank_order, arrangement.placement);
}

std::vector<Recomputation> recomputes_of(const Axes& axes) {
  const std::set<Recomputation> each(axes.recomputes.begin(), axes.recomputes.end());
  return {each.begin(), each.end()};
}

std::vector<Checkpoint> checkpoints_of(const std::vector<Recomputation>& stages) {
  const auto has = [&](Recompute r) { return std::ranges::find(stages, r) != stages.end(); };
  std::vector<Checkpoint> out;
  if (has(Recompute::none)) out.push_back(Checkpoint::never);
  if (has(Recompute::none) && has(Recompute::full)) out.push_back(Checkpoint::except_last);
  if (has(Recompute::full)) out.push_back(Checkpoint::always);
  return out;
}

Problem::Problem(Value document, std::string origin, std::int64_t batch, double headroom)
    : document_(std::move(document)), origin_(std::move(origin)), headroom_(headroom) {
  left_out_ = check_keys(document_);
  scenario_ = ScenarioTemplate(kept_of(document_), origin_);
  Settings base{{"schedule", "1f1b"}, {"pipeline.stages", 1}, {"pipeline.width", 1}};
  add_measured_choice(document_, base);
  base_ = scenario_.with(base);
  if (document_.find("stack") == nullptr && !base_.stack.name.empty()) {
    // The usual one, which plans say: they are to be read without knowing it.
    Value kept = kept_of(document_);
    const auto cluster = std::ranges::find(kept.entries, "cluster",
                                           [](const Value::Entry& e) { return e.key.text; });
    kept.entries.insert(cluster == kept.entries.end() ? cluster : std::next(cluster),
                        {to_value("stack"), to_value(base_.stack.name)});
    scenario_ = ScenarioTemplate(std::move(kept), origin_);
  }
  keep_free(base_.cluster, headroom_);
  const Value* most_ops = document_.find("most_ops");
  most_ops_ = (most_ops == nullptr ? std::nullopt : parse_number<std::int64_t>(most_ops->text))
                  .value_or(kMostOps);
  joined_ = layers_of(base_);
  if (joined_.empty())
    throw InputError(origin_ + ", model",
                     "a model by costs is given stage by stage and cannot be cut: the search needs "
                     "a model by shape or a profile of layers");
  batch_ = batch > 0 ? batch : batch_of(document_, origin_);
  plain_reduction_ =
      of_pipeline(document_, "reduction") == nullptr && !base_.stack.overlaps_reduction;
  sequence_parallel_ = said(document_, "sequence_parallel");
  if (const std::optional<bool> divided = said(document_, "distributed_optimizer"))
    sharded_ = *divided ? Sharded::optimizer : Sharded::none;
  if (const Value* reduction = of_pipeline(document_, "reduction"))
    if (const Value* gather = reduction->find("gather"))
      gathers_late_ = gather->text == "first-forward";
  if (const Value* shard = of_pipeline(document_, "shard")) {
    const auto found = std::ranges::find(kShardedNames, shard->text);
    if (found != std::end(kShardedNames))
      sharded_ = static_cast<Sharded>(found - std::begin(kShardedNames));
  }
  tensor_overlap_ = said(document_, "tensor_overlap").value_or(false);
  transfers_divided_ = said(document_, "transfers_divided").value_or(false);
  if (const Value* degree = of_pipeline(document_, "context"))
    context_ = parse_number<int>(degree->text);
  if (const Value* degree = of_pipeline(document_, "ulysses"))  // planned as one ring
    if (const auto ulysses = parse_number<int>(degree->text))
      context_ = context_.value_or(1) * *ulysses;
}

std::optional<Value> Problem::document_of_kind(const std::string& device) const {
  Value document = document_;
  const auto cluster = std::ranges::find(document.entries, "cluster",
                                         [](const Value::Entry& e) { return e.key.text; });
  if (cluster == document.entries.end()) return std::nullopt;
  const auto groups = groups_in(cluster->value);
  if (!groups || groups->items.size() != base_.cluster.groups.size()) return std::nullopt;
  Value kept = *groups;
  kept.items.clear();
  for (std::size_t g = 0; g < groups->items.size(); ++g)
    if (base_.cluster.groups[g].node.device.name == device) kept.items.push_back(groups->items[g]);
  if (cluster->value.kind != Value::Kind::map) {
    Value::Entry base{to_value("base"), cluster->value};
    cluster->value.kind = Value::Kind::map;
    cluster->value.entries = {std::move(base)};
  }
  std::erase_if(cluster->value.entries,
                [](const Value::Entry& e) { return e.key.text == "groups"; });
  cluster->value.entries.push_back({to_value("groups"), std::move(kept)});
  return document;
}

std::vector<std::string> Problem::kept_keys() const {
  std::vector<std::string> keys;
  if (const Value* pipeline = scenario_.document().find("pipeline"))
    for (const Value::Entry& entry : pipeline->entries)
      keys.emplace_back(find_key("pipeline", entry.key.text)->key);
  return keys;
}

Axes Problem::axes(bool asynchronous) const {
  Axes axes;
  for (const Schedule& schedule : schedules())
    if (asynchronous || schedule.flushes()) axes.schedules.push_back(&schedule);
  axes.depths = up_to(std::min(gpus(), layers()));
  axes.contexts = contexts_of(base_, context_, gpus());
  axes.tensors = tensors_of(base_, sequence_parallel_.value_or(false));
  axes.sequence_parallel = values_of(sequence_parallel_);
  axes.sharded = sharded_        ? std::vector{*sharded_}
                 : base_.profile ? std::vector{Sharded::optimizer, Sharded::none}
                                 : std::vector{Sharded::optimizer, Sharded::none, Sharded::weights};
  axes.microbatch_sizes = divisors_of(batch_);
  for (const std::int64_t w : axes.microbatch_sizes)
    if (w <= gpus()) axes.widths.push_back(static_cast<int>(w));
  axes.recomputes = {Recompute::none, Recompute::full};
  if (!base_.profile && (selective_frees() || modules() != LayerParts(LayerPart::core_attn))) {
    Recomputation selective = Recompute::selective;
    selective.parts = modules();
    axes.recomputes = {Recompute::none, selective, Recompute::full};
  }
  axes.single_layers = base_.transformer && !base_.layer_profile;
  axes.chunks = up_to(layers());
  axes.arrangements = arrangements_of(base_.cluster);
  return axes;
}

bool Problem::may_overlap(const PlanFamily& family) const {
  const Schedule& schedule = *family.schedule;
  const bool reduces = family.shape.sharers() > 1 || schedule.layout == Layout::mirrored;
  return plain_reduction_ && reduces && schedule.flushes() && !schedule.asynchronous;
}

bool Problem::selective_frees() const {
  const bool kept = !base_.transformer || !base_.transformer->flash_attention;
  return kept || base_.layer_profile;
}

LayerParts Problem::modules() const {
  for (const Recomputation& given : base_.recompute.values())
    if (given.granularity == Recompute::selective && !given.plain()) return given.parts;
  const auto& model = base_.transformer;
  if (!model || !model->experts || selective_frees()) return LayerPart::core_attn;
  const LayerParts cheap = LayerParts(LayerPart::layernorm) | LayerPart::moe_act;
  return model->latent ? cheap | LayerPart::mla_up_proj : cheap;
}

bool Problem::admits_sequence_parallel(int tensor) const {
  return tensor > 1 && base_.transformer && base_.transformer->seq_length % tensor == 0;
}

bool Problem::cuts_sequences(const Shape& shape) const {
  if (shape.context == 1) return true;
  const int ranks = shape.sequence_parallel ? shape.tensor : 1;
  return base_.transformer && base_.transformer->seq_length % (2 * ranks * shape.context) == 0;
}

std::vector<int> Problem::in_model(const std::vector<int>& runs) const {
  std::vector<int> out;
  auto at = joined_.begin();
  for (const int n : runs) {
    out.push_back(std::accumulate(at, at + n, 0));
    at += n;
  }
  return out;
}

int Problem::layers_in_model() const { return std::accumulate(joined_.begin(), joined_.end(), 0); }

Choice Problem::choice(const Candidate& candidate) const {
  return {candidate.family, in_model(candidate.layers), candidate.recompute};
}

RecomputeKeys recompute_keys(const Choice& choice) {
  if (choice.recompute.empty()) return {};
  const PerStage<Recomputation> of_stages(choice.recompute);
  const auto in_part = [](const Recomputation& r) { return r.in_full() && !r.plain(); };
  if (std::ranges::none_of(choice.recompute, in_part))
    return {of_stages.map([](const Recomputation& r) { return r.granularity; }), std::nullopt};
  // Stages without recomputation recompute none of their layers, those in full all.
  std::vector<int> layers;
  for (std::size_t s = 0; s < choice.recompute.size(); ++s)
    layers.push_back(of_stages.alike() ? choice.recompute[s].layers
                                       : choice.recompute[s].recomputed(choice.layers[s]));
  const auto granularity = of_stages.map([](const Recomputation& r) {
    return r.granularity == Recompute::selective ? Recompute::selective : Recompute::full;
  });
  return {granularity, PerStage<int>(std::move(layers))};
}

int Choice::gpus() const {
  if (widths.empty()) return family.shape.gpus();
  return std::accumulate(widths.begin(), widths.end(), 0) * family.shape.tensor *
         family.shape.context;
}

Settings Problem::settings(const Choice& choice) const {
  const PlanFamily& family = choice.family;
  const Shape& shape = family.shape;
  Settings out{{"schedule", family.schedule->name},
               {"batches", batches_of(choice)},
               {"pipeline.stages", shape.depth}};
  const auto add = [&](bool wanted, const char* key, const auto& value) {
    if (wanted) out.emplace_back(std::string("pipeline.") + key, value);
  };
  add(choice.widths.empty(), "width", shape.width);
  add(!choice.widths.empty(), "width", choice.widths);
  add(true, "microbatch_size", shape.microbatch_size);
  // Replicas may be added to the plan without another batch, where all stages have as many.
  const bool alike = choice.widths.empty() && !choice.divided;
  add(!alike, "microbatches", shape.microbatches);
  add(alike, "global_batch_size", shape.microbatches * shape.microbatch_size * shape.width);
  add(choice.layers.empty(), "split", "balanced");
  add(!choice.layers.empty(), "split", choice.layers);
  add(family.schedule->checkpoints, "checkpoint",
      kCheckpointNames[static_cast<std::size_t>(family.checkpoint)]);
  const RecomputeKeys keys = recompute_keys(choice);
  const auto name = [](Recompute r) { return kRecomputeNames[static_cast<std::size_t>(r)]; };
  const auto add_per_stage = [&](const char* key, const auto& of_stages) {
    add(of_stages.alike(), key, of_stages.at(0));
    add(!of_stages.alike(), key, of_stages.values());
  };
  if (!choice.recompute.empty()) add_per_stage("recompute", keys.recompute.map(name));
  const auto in_modules = std::ranges::find_if(choice.recompute, [](const Recomputation& r) {
    return r.granularity == Recompute::selective && !r.plain();
  });
  if (in_modules != choice.recompute.end()) {
    std::vector<std::string> names;
    for (const std::string_view name : names_of(in_modules->parts)) names.emplace_back(name);
    add(true, "recompute_modules", names);
  }
  add(keys.layers.has_value(), "recompute_method", "block");
  if (keys.layers) add_per_stage("recompute_layers", *keys.layers);
  add(shape.tensor > 1, "tensor", shape.tensor);
  add(shape.context > 1, "context", shape.context);
  add(shape.expert > 1, "expert", shape.expert);
  add(base().mesh.expert > 0 && shape.tensor > 1, "expert_tensor", 1);
  add(shape.sequence_parallel, "sequence_parallel", true);
  add(tensor_overlap_ && shape.sequence_parallel, "tensor_overlap", true);
  add(transfers_divided_ && shape.tensor > 1, "transfers_divided", true);
  add(shape.sharded == Sharded::optimizer, "distributed_optimizer", true);
  add(shape.sharded > Sharded::optimizer, "shard",
      kShardedNames[static_cast<std::size_t>(shape.sharded)]);
  add(family.stages() != shape.depth || family.schedule->chunks.usual != 1, "chunks",
      family.chunks);
  add(choice.overlaps, "reduction.overlap", "backward");
  add(choice.divided, "replication", "split");
  add(!choice.placed.empty(), "placement", choice.placed);
  add(choice.placed.empty() && family.arrangement.placement != "fill-node", "placement",
      family.arrangement.placement);
  add(family.arrangement.rank_order != "data-first", "rank_order", family.arrangement.rank_order);
  return out;
}

Scenario Problem::resolve(const Choice& choice) const {
  const std::int64_t ops = ops_of(choice.family.shape, choice.family.stages());
  if (ops > most_ops_)
    throw InputError(origin_, fmt::format("an update has {} ops, at most {} are looked at: give "
                                          "larger microbatches, a smaller batch or more time",
                                          format_count(ops), format_count(most_ops_)));
  Settings chosen = settings(choice);
  Scenario scenario = resolve(chosen);
  const std::vector<std::string> limits = memory_limits(scenario);
  if (limits.empty()) return scenario;
  chosen.emplace_back("pipeline.memory_limit", limits);
  return resolve(chosen);
}

Scenario Problem::resolve(const Settings& settings) const {
  Scenario scenario = scenario_.with(settings);
  keep_free(scenario.cluster, headroom_);
  return scenario;
}

std::vector<int> Problem::balanced(Choice choice) const {
  choice.layers.clear();
  return scenario_.with(settings(choice)).layers;
}

std::uint32_t batches_of(const Choice& choice) {
  const PlanFamily& family = choice.family;
  if (family.schedule->flushes()) return 1;
  return steady_batches(static_cast<std::uint32_t>(family.shape.depth),
                        static_cast<std::uint32_t>(family.shape.microbatches),
                        choice.divided ? std::vector<int>{} : choice.widths);
}

std::int64_t ops_of(const Shape& shape, int stages) {
  return 2 * static_cast<std::int64_t>(stages) * shape.microbatches * shape.width;
}

std::vector<std::pair<bool, Sharded>> sharings_of(const Problem& problem, const Axes& axes,
                                                  int sharers, int tensor, int depth) {
  std::vector<std::pair<bool, Sharded>> out;
  for (const bool sequence : axes.sequence_parallel)
    for (Sharded shared : axes.sharded) {
      // In a pipeline weights stay whole until an update ends: as where the optimizer is divided.
      const bool known = std::ranges::find(axes.sharded, Sharded::optimizer) != axes.sharded.end();
      if (shared == Sharded::weights && depth > 1 && known) shared = Sharded::optimizer;
      const std::pair here{sequence && problem.admits_sequence_parallel(tensor),
                           sharers > 1 ? shared : Sharded::none};
      const auto& model = problem.base().transformer;
      const bool experts = model && model->experts;
      if (experts && tensor > 1 && !here.first) continue;  // which need it
      if (experts && here.second > Sharded::optimizer) continue;
      if (std::ranges::find(out, here) == out.end()) out.push_back(here);
    }
  return out;
}

/// Returns among how many GPUs of a position experts may be divided: as many as a node has, twice
/// as many and so on, and as many as there are.
std::vector<int> expert_degrees(const Problem& problem, int position_gpus) {
  const auto& model = problem.base().transformer;
  if (!model || !model->experts) return {1};
  const auto divides = [&](int degree) {
    return position_gpus % degree == 0 && model->experts->count % degree == 0;
  };
  const auto most = [&](int degree) {
    while (!divides(degree)) --degree;
    return degree;
  };
  const Cluster& cluster = problem.base().cluster;
  std::vector<int> degrees;
  for (int limit = std::max(1, cluster.devices_per_node); limit < position_gpus; limit *= 2)
    degrees.push_back(most(limit));
  degrees.push_back(most(position_gpus));
  std::ranges::sort(degrees);
  degrees.erase(std::ranges::unique(degrees).begin(), degrees.end());
  return degrees;
}

void for_each_mesh(const Problem& problem, const Axes& axes,
                   const std::function<void(int, int, int, int)>& take) {
  for (const int c : axes.contexts)
    for (const int t : axes.tensors)
      for (const int p : axes.depths)
        for (const int w : axes.widths)
          if (static_cast<std::int64_t>(p) * w * t * c <= problem.gpus()) take(p, w, t, c);
}

std::string too_long_text(const Problem& problem, const Axes& axes) {
  bool some = false;
  for_each_mesh(problem, axes, [&](int p, int w, int, int) {
    for (const std::int64_t b : axes.microbatch_sizes)
      some = some ||
             (problem.batch() % (b * w) == 0 && 2 * p * (problem.batch() / b) > problem.most_ops());
  });
  if (!some) return "";
  return fmt::format(
      "microbatches so small that an update has more than {} ops (a smaller --batch or "
      "a larger --time-limit)",
      format_count(problem.most_ops()));
}

std::vector<Shape> shapes_of(const Problem& problem, const Axes& axes) {
  std::vector<Shape> shapes;
  for_each_mesh(problem, axes, [&](int p, int w, int t, int c) {
    for (const std::int64_t b : axes.microbatch_sizes) {
      if (problem.batch() % (b * w) != 0) continue;
      for (const auto& [sequence, shared] : sharings_of(problem, axes, w * c, t, p)) {
        Shape shape{p, w, t, b, problem.batch() / (b * w), sequence, shared, c};
        if (!problem.cuts_sequences(shape) || ops_of(shape, p) > problem.most_ops()) continue;
        for (const int expert : expert_degrees(problem, shape.position_gpus())) {
          shape.expert = expert;
          shapes.push_back(shape);
        }
      }
    }
  });
  return shapes;
}

}  // namespace penstock
