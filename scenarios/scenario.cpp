#include "scenarios/scenario.hpp"

#include "base/suggest.hpp"
#include "models/placement.hpp"
#include "program/op_costs.hpp"
#include "scenarios/builder.hpp"
#include "scenarios/costs.hpp"
#include "scenarios/foreign.hpp"
#include "scenarios/own_schedule.hpp"
#include "scenarios/parts.hpp"
#include "scenarios/perturbation_parts.hpp"
#include "scenarios/profile_parts.hpp"
#include "scenarios/recompute.hpp"
#include "scenarios/reduction.hpp"
#include "scenarios/replication.hpp"
#include "scenarios/schedule_parts.hpp"
#include "scenarios/tensor.hpp"
#include "scenarios/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace penstock {
namespace {

constexpr std::uint32_t kDeepest = 65'535;
constexpr std::int64_t kLargestMicrobatch = 1'000'000;  // that is worth looking for
constexpr std::int64_t kFewTokens = 4096;  // models/devices: what the curves were measured with
constexpr std::uint64_t kUsualMostOps = 50'000'000;  // about 3 GB of Program and Timeline
constexpr std::uint64_t kMaxOps = 4'000'000'000;     // numbers of ops have 32 bits

/// The section of a scenario, or an empty one at the scenario's place.
Value section_of(const Section& top, const std::string& key) {
  const Value& at = top.at(key);
  if (at.kind == Value::Kind::map && top.has(key)) return at;
  Value empty = top.self();
  empty.kind = Value::Kind::map;
  empty.entries.clear();
  empty.items.clear();
  return empty;
}

class Builder {
 public:
  Builder(const Value& document, std::string folder, Documents& documents, Diagnostics& diagnostics)
      : diagnostics_(diagnostics),
        library_(std::move(folder), documents, diagnostics),
        top_(document, "scenario", diagnostics),
        pipeline_value_(section_of(top_, "pipeline")),
        pipeline_(pipeline_value_, "pipeline", diagnostics) {}

  Scenario build() {
    if (top_.self().kind != Value::Kind::map) diagnostics_.throw_if_any();
    read_model_document();
    read_cluster_document();
    read_schedule();
    read_pipeline();
    read_cluster_section();
    read_what_disturbs();
    check_measured();
    check_device();
    cost_abstract();
    place_layers();
    check_placement();
    out_.notes.insert(out_.notes.end(), library_.notes().begin(), library_.notes().end());
    diagnostics_.throw_if_any();  // what follows needs all of the above
    check_size();
    place();
    cost();
    diagnostics_.throw_if_any();
    return std::move(out_);
  }

 private:
  void read_model_document() {
    if (!top_.has("model")) {
      diagnostics_.add(top_.self(), "the scenario needs a 'model'");
      return;
    }
    const Value* found = library_.resolve(top_.at("model"), "model", "models");
    if (found == nullptr) return;
    model_.emplace(*found, "model", diagnostics_);
    const std::string length = note_on_length(*found);
    if (!length.empty()) out_.notes.push_back(length);
    by_layers_ = is_profiled_model(*model_);
    abstract_ = !by_layers_ && is_abstract_model(*model_);
    if (by_layers_) out_.profile = read_profile(*model_, library_, diagnostics_);
    if (model_->has("profile_batch") && !by_layers_)
      diagnostics_.add(model_->at("profile_batch"), "'profile_batch' needs 'profile', too");
    if (given_costs()) return;
    out_.transformer = read_transformer(*model_, diagnostics_);
    out_.measured = read_measured(*model_, diagnostics_);
    if (top_.at("model").kind == Value::Kind::scalar && !model_->has("name"))
      out_.transformer->name = top_.at("model").text;
  }

  void read_cluster_document() {
    if (!top_.has("cluster")) return;
    if (const Value* found = library_.resolve(top_.at("cluster"), "cluster", "models/clusters")) {
      cluster_.emplace(*found, "cluster", diagnostics_);
    }
  }

  void read_schedule() {
    if (!top_.has("schedule")) {
      diagnostics_.add(top_.self(), "the scenario needs a 'schedule'");
      return;
    }
    if (top_.broken("schedule")) return;
    if (is_own_schedule(top_.at("schedule"))) {
      out_.own_schedule = read_own_schedule(top_.at("schedule"), library_, out_, diagnostics_);
      out_.schedule = out_.own_schedule.get();
      return;
    }
    if (top_.text("schedule")) out_.schedule = schedule_named(top_.at("schedule"), diagnostics_);
  }

  /// Times do not follow from a shape.
  bool given_costs() const { return abstract_ || by_layers_; }

  std::uint32_t natural(const std::string& key, std::uint32_t otherwise) const {
    return static_cast<std::uint32_t>(pipeline_.integer(key).value_or(otherwise));
  }

  void read_pipeline() {
    out_.name = top_.text("name").value_or("");
    out_.samples_per_epoch = top_.integer("samples_per_epoch");
    out_.microbatch_size = pipeline_.integer("microbatch_size").value_or(1);
    out_.mesh.width = static_cast<int>(natural("width", default_width()));
    read_widths(pipeline_, out_, diagnostics_);
    reduction_value_ = section_of(pipeline_, "reduction");
    buckets_ =
        read_reduction(Section(reduction_value_, "reduction", diagnostics_), out_, diagnostics_);
    out_.lowering.transfers = static_cast<Transfers>(
        top_.choice("transfers").value_or(static_cast<int>(Transfers::overlapped)));
    out_.lowering.step_sync = static_cast<StepSync>(pipeline_.choice("optimizer_sync").value_or(0));
    out_.shape.depth = natural("stages", default_stages());
    out_.shape.microbatches_per_update = natural(
        "microbatches", out_.own_schedule ? std::max(out_.schedule->only_microbatches, 1U) : 1);
    out_.shape.batches = static_cast<std::uint32_t>(top_.integer("batches").value_or(1));
    out_.shape.vertical_sync = pipeline_.boolean("vertical_sync").value_or(false);
    out_.shape.extra_copies = pipeline_.choice("weight_copies").value_or(0) == 1 ? 1 : 0;
    read_schedule_options(pipeline_, out_, diagnostics_);
    read_tensor(pipeline_, model_, given_costs(), out_, diagnostics_);
    check_depth();
    if (depth_known_) divide_microbatches(pipeline_, out_, diagnostics_);
    out_.shape.replicas = out_.mesh.turns();
    read_batch();
    read_recompute(pipeline_, depth_known_, given_costs(), out_, diagnostics_);
    if (out_.schedule != nullptr) check_schedule();
  }

  /// pipeline.microbatches from global_batch_size.
  void read_batch() {
    const std::uint32_t given = out_.shape.microbatches_per_update;
    const auto batch = pipeline_.integer("global_batch_size");
    if (!batch) return note_single_microbatch();
    for (const char* key : {"microbatches", "microbatch_size", "width", "stages", "replication"})
      if (pipeline_.broken(key)) return;
    if (out_.schedule == nullptr) return;
    out_.shape.microbatches_per_update = 1;
    const auto unit = static_cast<std::int64_t>(out_.samples_per_update());
    out_.shape.microbatches_per_update = given;
    const Value& where = pipeline_.at("global_batch_size");
    const std::string of = fmt::format(
        "{} sample{} per microbatch{}", out_.microbatch_size, out_.microbatch_size == 1 ? "" : "s",
        unit == out_.microbatch_size ? ""
                                     : fmt::format(" x {} replicas", unit / out_.microbatch_size));
    if (*batch % unit != 0) {
      const std::int64_t below = *batch / unit * unit;
      diagnostics_.add(
          where, fmt::format("{} samples per update are no multiple of {} ({}); the nearest "
                             "that are: {}{}{}",
                             *batch, unit, of, below > 0 ? fmt::format("{} and ", below) : "",
                             below + unit, fitting_sizes(*batch, unit / out_.microbatch_size)));
      return;
    }
    const std::int64_t microbatches = *batch / unit;
    if (pipeline_.has("microbatches") && microbatches != given) {
      diagnostics_.add(where, fmt::format("{} samples per update are {} microbatches ({}), but "
                                          "'microbatches' says {}, a batch of {}; leave out "
                                          "one of the two",
                                          *batch, microbatches, of, given, given * unit));
      return;
    }
    if (microbatches > std::numeric_limits<std::int32_t>::max()) {
      diagnostics_.add(where, fmt::format("a batch of {} microbatches is too large", microbatches));
      return;
    }
    out_.shape.microbatches_per_update = static_cast<std::uint32_t>(microbatches);
  }

  /// "; or microbatch_size: 2 or 4": the nearest with which that batch divides.
  std::string fitting_sizes(std::int64_t batch, std::int64_t replicas) const {
    if (batch % replicas != 0 || out_.mesh.divided) return "";
    const std::int64_t each = batch / replicas;
    if (out_.microbatch_size > kLargestMicrobatch || each > kLargestMicrobatch) return "";
    std::int64_t below = std::min(out_.microbatch_size, each), above = out_.microbatch_size;
    while (each % below != 0) --below;
    while (above < each && each % above != 0) ++above;
    return fmt::format("; or microbatch_size: {}{}", below,
                       each % above == 0 && above != below ? fmt::format(" or {}", above) : "");
  }

  void note_single_microbatch() {
    const bool one = !pipeline_.has("microbatches") && out_.shape.microbatches_per_update == 1;
    if (!one || out_.shape.depth == 1 || out_.schedule == nullptr || !out_.schedule->flushes())
      return;
    out_.notes.push_back(
        "neither 'microbatches' nor 'global_batch_size' is given: one microbatch per weight "
        "update, so the stages work one after the other");
  }

  /// Later checks make sense only when the depth is what the user meant.
  void check_depth() {
    const bool from_cluster = !pipeline_.has("stages") && top_.has("cluster");
    depth_known_ = !pipeline_.broken("stages") && !top_.broken("pipeline") &&
                   !(from_cluster && !cluster_) && !(from_cluster && cluster_broken());
    if (std::uint64_t{out_.shape.depth} * out_.shape.chunks <= kDeepest) return;
    depth_known_ = false;
    diagnostics_.add(pipeline_.at(out_.shape.depth > kDeepest ? "stages" : "chunks"),
                     fmt::format("a pipeline has at most {} stages", kDeepest));
  }

  bool whole_model() const { return out_.schedule != nullptr && out_.schedule->whole_model; }

  std::uint32_t default_stages() {
    if (out_.own_schedule) return out_.own_schedule->only_depth;
    const Value& width = pipeline_.at("width");
    if (width.kind == Value::Kind::list && !width.items.empty())
      return clamp(static_cast<std::int64_t>(width.items.size()));
    return whole_model() ? 1 : default_positions();
  }
  std::uint32_t default_width() {
    const bool one_stage = pipeline_.integer("stages").value_or(1) == 1;
    return whole_model() && cluster_ && one_stage ? default_positions() : 1;
  }

  /// All of the cluster when it is real; else one per listed cost.
  std::uint32_t default_positions() {
    const auto among = [&](const std::string& key) {
      return std::max<std::int64_t>(1, pipeline_.integer(key).value_or(1));
    };
    std::int64_t replicas = among("width");
    for (const Axis axis : kInnerAxes) replicas *= among(std::string(words(axis).name));
    if (cluster_ && cluster_->has("groups")) {
      Diagnostics again;  // what is wrong is said when the cluster is read
      return clamp(read_cluster(*cluster_, library_, 1, again).devices() / replicas);
    }
    if (cluster_ && cluster_->has("devices"))
      return clamp(cluster_->integer("devices").value_or(1));
    if (cluster_ && cluster_->has("devices_per_node")) {
      const std::int64_t gpus = cluster_->integer("devices_per_node").value_or(1) *
                                cluster_->integer("nodes").value_or(1);
      return clamp(gpus / replicas);
    }
    if (model_ && model_->has("forward")) {
      const std::int64_t usual = out_.schedule == nullptr ? 1 : out_.schedule->chunks.usual;
      const bool per_chunk = model_->choice("per").value_or(0) == 1;
      return clamp(static_cast<std::int64_t>(model_->at("forward").items.size()) /
                   (per_chunk ? pipeline_.integer("chunks").value_or(usual) : 1));
    }
    return 1;
  }
  static std::uint32_t clamp(std::int64_t n) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(n, 1, 1'000'000'000));
  }

  void check_schedule() {
    const Schedule& schedule = *out_.schedule;
    const bool shaped = depth_known_ && !pipeline_.broken("microbatches");
    if (!out_.shape.replicas.alike() && out_.shape.vertical_sync) {
      diagnostics_.add(pipeline_.at("vertical_sync"),
                       "'vertical_sync' needs as many replicas of every stage");
    }
    const Refusal refused = shaped ? schedule.refuse(out_.shape) : Refusal{};
    if (!refused.empty()) add_refusal(refused);
    const bool stashes = schedule.update == UpdateRule::stash;
    for (const char* key : {"vertical_sync", "weight_copies"}) {
      if (pipeline_.has(key) && !stashes) {
        diagnostics_.add(
            pipeline_.at(key),
            fmt::format("'{}' has a meaning for pipedream only, not for '{}'", key, schedule.name));
      }
    }
    if (schedule.pairs && out_.lowering.transfers == Transfers::coupled) {
      diagnostics_.add(
          top_.at("transfers"),
          fmt::format("'{}' overlaps a forward and a backward, whose messages 'coupled' "
                      "cannot pair; use overlapped or blocking",
                      schedule.name));
    }
    if (refused.empty()) check_replicas();
    if (out_.lowering.step_sync != StepSync::device && !schedule.flushes()) {
      diagnostics_.add(
          pipeline_.at("optimizer_sync"),
          fmt::format("'{}' never flushes, so its devices {}; use optimizer_sync: device",
                      schedule.name,
                      out_.lowering.step_sync == StepSync::post_validation
                          ? "have no norm of all gradients to validate"
                          : "cannot step all at once"));
    }
  }

  void add_refusal(const Refusal& refused) {
    const bool of_batch = refused.key == "microbatches" && !pipeline_.has("microbatches") &&
                          pipeline_.has("global_batch_size");
    if (!of_batch) return diagnostics_.add(pipeline_.at(std::string(refused.key)), refused.why);
    const std::uint32_t m = out_.shape.microbatches_per_update;
    diagnostics_.add(
        pipeline_.at("global_batch_size"),
        fmt::format("{}; 'global_batch_size' must say the same or be left out ({} "
                    "samples per update are {} microbatch{})",
                    refused.why, *pipeline_.integer("global_batch_size"), m, m == 1 ? "" : "es"));
  }

  /// What replicas cannot do where a device has several stages.
  void check_replicas() {
    const Schedule& schedule = *out_.schedule;
    const bool several = out_.shape.chunks > 1 || schedule.layout == Layout::mirrored;
    if (!several) return;
    if (!out_.shape.replicas.alike() || out_.mesh.divided) {
      diagnostics_.add(pipeline_.at(out_.mesh.divided ? "replication" : "width"),
                       fmt::format("'{}' has several stages on a device: its replicas take turns, "
                                   "and width must be one number",
                                   schedule.name));
    }
    if (buckets_.overlapped) {
      diagnostics_.add(Section(reduction_value_, "reduction", diagnostics_).at("overlap"),
                       fmt::format("'{}' has several stages on a device, which reduces them at "
                                   "once after its last backward; use overlap: none",
                                   schedule.name));
    }
  }

  void read_cluster_section() {
    const int needed = static_cast<int>(std::min<std::int64_t>(out_.gpu_count(), 1'000'000'000));
    const std::size_t before = diagnostics_.size();
    if (cluster_) {
      out_.cluster = read_cluster(*cluster_, library_, needed, diagnostics_);
    } else if (!top_.has("cluster")) {
      out_.cluster.name = "free links";
      out_.cluster.devices_per_node = needed;
      out_.cluster.link = LinkSpec{};
    }
    cluster_readable_ = diagnostics_.size() == before && (cluster_ || !top_.has("cluster"));
    const bool known = depth_known_ && cluster_readable_ && mesh_known();
    if (known && !cluster_broken()) check_devices(needed);
  }

  void read_what_disturbs() {
    if (!top_.has("perturbations") || top_.broken("perturbations")) return;
    const bool known = depth_known_ && !pipeline_.broken("width");
    out_.perturbations = read_perturbations(
        Section(top_.at("perturbations"), "perturbations", diagnostics_),
        known ? static_cast<int>(out_.devices()) : 0, out_.lowering.transfers, diagnostics_);
  }

  bool cluster_broken() const {
    if (!cluster_) return false;
    return cluster_->broken("devices") || cluster_->broken("nodes") ||
           cluster_->broken("devices_per_node") || cluster_->broken("groups");
  }

  bool mesh_known() const {
    return !pipeline_.broken("width") && std::ranges::none_of(kInnerAxes, [&](Axis axis) {
      return pipeline_.broken(std::string(words(axis).name));
    });
  }

  /// "4 stages x width 2 x tensor 8".
  std::string ranks() const {
    const Mesh& mesh = out_.mesh;
    const std::string width = mesh.width.alike()
                                  ? fmt::format("{}", mesh.width.of(0))
                                  : fmt::format("[{}]", fmt::join(mesh.width.values(), ", "));
    std::string text = fmt::format("{} stages x width {}", out_.shape.depth, width);
    for (const Axis axis : kInnerAxes)
      if (mesh.size(axis) > 1) text += fmt::format(" x {} {}", words(axis).name, mesh.size(axis));
    return text;
  }

  void check_devices(int needed) {
    const int have = out_.cluster.devices();
    if (have >= needed) return;
    const char* key = pipeline_.has("stages") ? "stages" : "width";
    diagnostics_.add(pipeline_.at(key),
                     fmt::format("{} need {} devices, the cluster '{}' has {}", ranks(), needed,
                                 printable(out_.cluster.name), have));
  }

  void check_size() {
    const std::optional<std::int64_t> lifted = top_.integer("most_ops");
    const auto most = lifted ? static_cast<std::uint64_t>(*lifted) : kUsualMostOps;
    // What cannot overflow says whether the other one did.
    const double about = double(out_.shape.microbatches_per_update) * out_.shape.batches *
                         out_.shape.depth * std::ranges::max(out_.shape.replicas.values());
    const std::uint64_t ops = about > double(kMaxOps)
                                  ? static_cast<std::uint64_t>(std::min(about, 9e18))
                                  : count_ops(out_.shape);
    if (ops <= std::min(most, kMaxOps)) return;
    const std::string lift =
        ops > kMaxOps ? "" : fmt::format(", or lift the limit with most_ops: {}", ops);
    diagnostics_.add(
        pipeline_.self(),
        fmt::format("the run has about {} ops, more than {}; they would take {}: simulate fewer "
                    "batches or microbatches{}",
                    format_count(static_cast<std::int64_t>(ops)),
                    format_count(static_cast<std::int64_t>(std::min(most, kMaxOps))),
                    format_bytes(static_cast<double>(ops) * kBytesPerOp), lift));
    diagnostics_.throw_if_any();
  }

  PlacementRequest placement() const {
    PlacementRequest request;
    request.widths = out_.widths();
    request.replica_gpus = out_.mesh.replica_gpus();
    request.pipeline_first = pipeline_.choice("rank_order").value_or(0) == 1;
    request.policy = static_cast<PlacementPolicy>(pipeline_.choice("placement").value_or(0));
    for (const double gpu : pipeline_.list("placement").value_or(std::vector<double>{}))
      request.gpus.push_back(static_cast<int>(gpu));
    return request;
  }

  void check_placement() {
    const bool known = depth_known_ && cluster_readable_ && mesh_known();
    if (!pipeline_.has("placement") || pipeline_.broken("placement") || !known) return;
    const PlacementRequest request = placement();
    if (request.ranks() > out_.cluster.devices()) return;  // said already
    const Value& where = pipeline_.at("placement");
    for (const PlacementProblem& problem : refuse_placement(out_.cluster, request)) {
      const std::string sizes = problem.item < 0 ? fmt::format(" ({})", ranks()) : "";
      diagnostics_.add(
          problem.item < 0 ? where : where.items[static_cast<std::size_t>(problem.item)],
          problem.why + sizes);
    }
  }

  /// Which GPUs each device of the Program is.
  void place() {
    const PlacementRequest request = placement();
    Mesh& mesh = out_.mesh;
    mesh.pipeline_first = request.pipeline_first;
    std::vector<int> gpus = penstock::place(out_.cluster, request);
    std::erase(gpus, -1);  // seats of positions with fewer replicas than others
    const Placement replicas = loop_placement(out_.widths(), 1);  // a seat for each device
    mesh.gpus.resize(static_cast<std::size_t>(out_.devices()));
    auto next = gpus.begin();
    const int each = mesh.replica_gpus();
    for (int replica = 0; replica < replicas.devices(); ++replica, next += each) {
      const auto device = mesh.divided ? std::size_t{replicas.position_of(replica)}
                                       : static_cast<std::size_t>(replica);
      mesh.gpus[device].insert(mesh.gpus[device].end(), next, next + each);
    }
  }

  /// Which of the measured rows a stage of this run uses that recomputes so.
  MeasuredUse measured_use(Recompute recompute) const {
    return out_.measured->use(static_cast<double>(out_.microbatch_size), recompute,
                              static_cast<int>(out_.devices()));
  }

  void check_measured() {
    if (!out_.measured || out_.measured->rows().empty() || !depth_known_) return;
    if (pipeline_.broken("recompute") || pipeline_.broken("microbatch_size")) return;
    for (const Recompute value : out_.recompute.distinct()) check_measured(value);
  }

  void check_measured(Recompute recompute) {
    const MeasuredUse use = measured_use(recompute);
    const std::string of_stages =
        out_.recompute.alike()
            ? ""
            : fmt::format(" with recompute: {}", kRecomputeNames[static_cast<int>(recompute)]);
    const auto refuse = [&](const Value& where, const std::string& why) {
      if (!why.empty()) diagnostics_.add(where, why + of_stages);
      return !why.empty();
    };
    const std::string unknown = out_.measured->refuse_recompute(use);
    if (!unknown.empty()) return diagnostics_.add(recompute_place(pipeline_, recompute), unknown);
    if (out_.schedule != nullptr && out_.schedule->checkpoints &&
        out_.shape.checkpoint == Checkpoint::except_last) {
      MeasuredUse stored = use;  // the last microbatch's
      stored.recompute = Recompute::none;
      if (refuse(pipeline_.at("checkpoint"), out_.measured->refuse_recompute(stored)) ||
          refuse(pipeline_.at("microbatch_size"), out_.measured->refuse_size(stored)))
        return;
    }
    if (refuse(model_->at("measured_load"), out_.measured->refuse_load(use))) return;
    refuse(pipeline_.at("microbatch_size"), out_.measured->refuse_size(use));
  }

  /// Has the device a rate for the model's numbers?
  void check_device() {
    if (out_.measured) return;  // needs none
    if (!out_.transformer || (top_.has("cluster") && !cluster_)) return;
    if (!cluster_readable_ || model_->broken("precision") || !model_->has("num_layers")) return;
    const std::string& type = out_.transformer->compute_type;
    check_device(out_.cluster.device, type);
    for (const NodeGroup& group : out_.cluster.groups) check_device(group.node.device, type);
  }

  void check_device(const DeviceSpec& device, const std::string& type) {
    if (device.peak_flops_per_s.empty()) {
      diagnostics_.add(top_.has("cluster") ? top_.at("cluster") : top_.self(),
                       "a model by shape needs a cluster whose 'device' has a 'peak' (`penstock "
                       "list clusters`); or give the model's costs");
      return;
    }
    if (device.peak_flops_per_s.contains(type)) return;
    std::vector<std::string> allowed;
    for (const auto& [known, rate] : device.peak_flops_per_s)
      allowed.push_back(known.ends_with("16") ? "mixed-" + known : known);
    const Value& named = top_.at("model");
    diagnostics_.add(named.kind == Value::Kind::scalar ? named : model_->at("precision"),
                     fmt::format("the device {} has no peak rate for {}{}; set the model's "
                                 "'precision' to {}",
                                 printable(device.name), type,
                                 model_->has("precision") ? "" : ", which is the default",
                                 fmt::join(allowed, " or ")));
  }

  void cost_abstract() {
    if (!abstract_) return;
    if (pipeline_.has("split") && !pipeline_.broken("split")) {
      diagnostics_.add(pipeline_.at("split"),
                       "a model by costs is given per stage; there is nothing to split");
    }
    // Which device has which stage matters only once nothing is wrong.
    StageShares shares = stage_shares();
    out_.costs_per_chunk = shares.per_chunk;
    for (std::uint32_t s = 0; s < out_.shape.stages() && depth_known_; ++s)
      shares.device_of.push_back(s % out_.shape.depth);
    out_.costs = read_abstract_costs(*model_, shares, out_.recompute, diagnostics_);
    if (out_.shape.chunks > 1 && shares.per_chunk) {
      out_.notes.push_back(fmt::format(
          "per: chunk: costs are those of each of {} virtual stages, {} on a device, which does {} "
          "times the work of one with a single stage",
          out_.shape.stages(), out_.shape.chunks, out_.shape.chunks));
    }
  }

  StageShares stage_shares() const {
    StageShares shares;
    shares.devices = static_cast<int>(out_.shape.depth);
    shares.chunks = static_cast<int>(out_.shape.chunks);
    shares.per_chunk = model_->choice("per").value_or(0) == 1;
    return shares;
  }

  /// Layers per stage, where they do not depend on costs.
  void place_layers() {
    const int layers = known_layers();
    if (layers == 0 || pipeline_.broken("split") || !depth_known_) return;
    const Value& where = pipeline_.at(pipeline_.has("split") ? "split" : "stages");
    const int stages = static_cast<int>(out_.shape.stages());
    if (pipeline_.has("split") && where.kind == Value::Kind::list) {
      read_split(where, stages, layers);
    } else if (stages > layers) {
      diagnostics_.add(
          pipeline_.at("stages"),
          fmt::format("{} layers cannot fill {} stages{}; use at most {}", layers, stages,
                      chunked(), std::max(1, layers / static_cast<int>(out_.shape.chunks))));
    } else if (pipeline_.choice("split").value_or(by_layers_ ? 1 : 0) == 0) {
      split_evenly(stages, layers);
    }
  }

  /// 0: not known, or a mistake that was reported.
  int known_layers() const {
    if (out_.profile) return static_cast<int>(out_.profile->layers.size());
    const bool known =
        out_.transformer && model_->has("num_layers") && !model_->broken("num_layers");
    return known ? out_.transformer->num_layers : 0;
  }

  void read_split(const Value& where, int stages, int layers) {
    const auto counts = pipeline_.list("split").value_or(std::vector<double>{});
    const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
    for (const double n : counts) out_.layers.push_back(static_cast<int>(n));
    if (counts.size() != static_cast<std::size_t>(stages)) {
      diagnostics_.add(where, fmt::format("'split' lists {} stages, the pipeline has {}",
                                          counts.size(), stages));
    }
    if (sum != layers) {
      diagnostics_.add(
          where, fmt::format("'split' adds up to {:.0f} layers, the model has {}", sum, layers));
    }
  }

  void split_evenly(int stages, int layers) {
    out_.layers = even_split(layers, stages);
    if (!out_.layers.empty()) return;
    int below = stages, above = stages;
    while (layers % below != 0) --below;
    while (layers % above != 0) ++above;
    diagnostics_.add(
        pipeline_.at("stages"),
        fmt::format("{} layers do not divide evenly into {} stages{}; the nearest "
                    "{} that do are {} and {}, or use split: balanced or a list",
                    layers, stages, chunked(),
                    out_.shape.chunks > 1 ? "numbers of stages" : "depths", below, above));
  }

  /// " (4 devices x 2 chunks)", or nothing.
  std::string chunked() const {
    if (out_.shape.chunks == 1) return "";
    return fmt::format(" ({} devices x {} chunks)", out_.shape.depth, out_.shape.chunks);
  }

  /// What a user should know about how far the analytic model reaches.
  void note_limits() {
    const TransformerSpec& model = *out_.transformer;
    const std::int64_t tokens = out_.microbatch_size * model.seq_length;
    out_.optimistic = tokens < kFewTokens;
    if (out_.optimistic) {
      out_.notes.push_back(
          fmt::format("microbatches of {} tokens are small for the device's efficiency curve ({} "
                      "and more): times are optimistic",
                      tokens, kFewTokens));
    }
    if (model.flash_attention && out_.recompute.contains(Recompute::selective)) {
      out_.notes.push_back(
          "recompute: selective changes nothing with flash attention, which keeps no "
          "probabilities");
    }
  }

  /// Where some microbatches are recomputed and some are not, both costs are needed.
  void cost() {
    const Schedule& schedule = *out_.schedule;
    cost_stages();
    if (schedule.checkpoints && out_.shape.checkpoint != Checkpoint::always) {
      Scenario stored = out_;
      std::swap(out_, stored);
      out_.recompute = Recompute::none;
      cost_stages();
      std::swap(out_, stored);
      add_stored(out_.costs, stored.costs);
      for (std::size_t kind = 0; kind < out_.unlike.costs.size(); ++kind)
        add_stored(out_.unlike.costs[kind], stored.unlike.costs[kind]);
    }
    if (out_.mesh.sharers() > 1 || mirrored()) set_reductions();
    if (schedule.whole_backward) cost_whole_backwards(out_);
    check_magnitudes();
    if (schedule.looks_at_costs) tell_schedule();
    note_assumptions();
  }

  void cost_stages() {
    if (abstract_) {
      StageShares shares = stage_shares();
      shares.device_of = out_.placement().positions();
      out_.costs = read_abstract_costs(*model_, shares, out_.recompute, diagnostics_);
    }
    if (out_.measured) {
      cost_measured();
    } else if (by_layers_) {
      cost_profiled(*model_, out_, diagnostics_);
      gradients_ = profiled_stage_gradients(*out_.profile, out_.layers);
    } else if (!abstract_) {
      note_limits();
      note_tensor(out_);
      gradients_ = cost_by_shape(out_, buckets_.overlapped);
    }
    if (given_costs()) divide_given_costs(out_);
  }

  /// What an order takes for granted that nobody said.
  void note_assumptions() {
    const Schedule& schedule = *out_.schedule;
    if (schedule.splits_backward && given_costs() && !model_->has("backward_input")) {
      out_.notes.push_back(
          fmt::format("half of a backward counts as backward_input, half as backward_weight{}",
                      abstract_ ? " (give both where they differ)" : ""));
    }
    if (schedule.usual_limit == 0 || pipeline_.has("memory_limit")) return;
    ScheduleShape other = out_.shape;
    other.memory_limit = schedule.usual_limit + 0.5;
    if (!schedule.refuse(other).empty()) return;  // its name is its limit
    out_.notes.push_back(fmt::format(
        "'{}' searches within {:g} times the activations of 1F1B (pipeline.memory_limit "
        "says otherwise)",
        schedule.name, schedule.usual_limit));
  }

  bool mirrored() const { return out_.schedule->layout == Layout::mirrored; }

  /// A schedule that looks at costs may refuse them.
  void tell_schedule() {
    tell_costs(out_);
    const Refusal refused = out_.schedule->refuse(out_.shape);
    if (!refused.empty()) add_refusal(refused);
  }

  void set_reductions() {
    out_.update_reductions();
    if (out_.shape.chunks > 1 || mirrored()) return;  // all of a device's gradients at once
    gradients_.resize(out_.costs.size());
    for (std::size_t s = 0; s < out_.costs.size(); ++s) {
      out_.reduction.buckets.push_back(
          buckets_of(buckets_, gradients_[s], static_cast<double>(out_.costs[s].reduced_bytes)));
    }
    if (buckets_.overlapped && out_.distributed_optimizer)
      gather_weights_last(out_.transformer->bytes, out_.reduction.buckets);
    // The next batch's gradients come while the last one's are on their way.
    for (std::size_t s = 0; s < out_.costs.size() && out_.lowering.detached_reductions; ++s)
      if (out_.mesh.sharers(s) > 1) out_.costs[s].gradient_bytes *= 2;
  }

  void cost_measured() {
    const auto rows = out_.recompute.map(
        [&](Recompute value) { return out_.measured->row(measured_use(value)); });
    const auto steps = out_.recompute.map(
        [&](Recompute value) { return out_.measured->step(measured_use(value)); });
    if (out_.layers.empty())
      out_.layers =
          measured_balanced_split(*out_.transformer, rows, sharing_positions(out_.placement()));
    out_.costs = measured_stage_costs(*out_.transformer, rows, steps, out_.layers);
    gradients_ = measured_stage_gradients(*out_.transformer, rows, out_.layers);
    for (const Recompute value : out_.recompute.distinct()) note_measured(value);
  }

  void note_measured(Recompute recompute) {
    const int load = out_.measured->row(measured_use(recompute)).load;
    out_.notes.push_back(
        fmt::format("costs of the stages as measured {} (recompute {})",
                    load == 1 ? "on a device alone" : fmt::format("with {} devices at work", load),
                    kRecomputeNames[static_cast<int>(recompute)]));
  }

  /// Sums over the run must fit 63 bits, of bytes and of nanoseconds.
  void check_magnitudes() {
    constexpr double kMost = 4e18;
    const double runs = static_cast<double>(out_.shape.total());
    const double width = std::ranges::max(out_.shape.replicas.values());
    // PipeDream keeps the most versions: one per stage, the live one and a further copy.
    const double versions = static_cast<double>(out_.shape.depth) * 2 + 2;
    double seconds = 0, most_bytes = 0, reduce_s = 0;
    for (const StageCosts& c : out_.costs) {
      seconds += c.forward_s + c.backward_s + c.step_s + transfer_s(c);
      reduce_s += c.reduce_grad_s;
      double bytes = 0;
      for (const std::int64_t part :
           {c.output_bytes, c.weight_bytes, c.gradient_bytes, c.reduced_bytes, c.optimizer_bytes,
            c.version_bytes, c.activation_bytes, c.activation_after_input_bytes,
            c.forward_workspace_bytes, c.backward_workspace_bytes}) {
        bytes +=
            part < 0 ? kMost : static_cast<double>(part);  // negative: it did not even fit here
      }
      const double moved = static_cast<double>(c.output_bytes) * runs * width;
      const double held = static_cast<double>(c.version_bytes) * versions;
      const double on_device = mirrored() ? 2 : static_cast<double>(out_.shape.chunks);
      most_bytes =
          std::max({most_bytes, on_device * bytes * runs, moved, on_device * (bytes + held)});
    }
    seconds = out_.perturbations.at_most_s(seconds * runs + reduce_s * out_.shape.batches);
    if (!(most_bytes < kMost))
      diagnostics_.add(top_.at("model"), "the run would hold or move more than 4 EB on a device");
    if (!(seconds * 1e9 < kMost))
      diagnostics_.add(top_.at("model"), "the run would take more than a hundred years");
  }

  double transfer_s(const StageCosts& c) const {
    const LinkSpec link = slowest_way(out_.cluster);
    return 2 * (link.latency_s + static_cast<double>(c.output_bytes) / link.bytes_per_s);
  }

  Diagnostics& diagnostics_;
  Library library_;
  Section top_;
  Value pipeline_value_, reduction_value_;
  BucketRequest buckets_;
  std::vector<std::vector<LayerGradient>> gradients_;  // per stage, where layers are known
  Section pipeline_;
  std::optional<Section> model_, cluster_;
  bool abstract_ = false;
  bool by_layers_ = false;  // a profile
  bool depth_known_ = false;
  bool cluster_readable_ = false;
  Scenario out_;
};

}  // namespace

std::int64_t Scenario::capacity_bytes(int device) const {
  std::int64_t least = 0;
  for (const int gpu : gpus_of(device)) {
    const std::int64_t bytes = cluster.device_of(gpu).capacity_bytes();
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
  }
  return least;
}

Placement Scenario::placement() const {
  if (schedule != nullptr) return placement_of(*schedule, shape);
  return loop_placement(
      mesh.turns().alike() ? std::vector<int>(shape.depth, mesh.turns().of(0)) : widths(),
      static_cast<int>(shape.chunks));
}

std::vector<int> Scenario::stage_widths() const {
  const std::vector<int> of_position = widths();
  std::vector<int> of_stage;
  const Placement where = placement();
  for (const std::uint32_t position : where.positions()) of_stage.push_back(of_position[position]);
  return of_stage;
}

std::vector<int> Scenario::stage_parts() const {
  std::vector<int> of_stage;
  const Placement where = placement();
  for (const std::uint32_t position : where.positions())
    of_stage.push_back(mesh.together(position));
  return of_stage;
}

std::vector<std::uint32_t> sharing_positions(const Placement& placement) {
  std::vector<std::uint32_t> of_stage = placement.positions();
  for (std::uint32_t& position : of_stage) position = std::min(position, placement.twin(position));
  return of_stage;
}

double Scenario::samples_per_update() const {
  const double replicas = shape.replicas.of(0);
  const bool each = schedule->update == UpdateRule::stash;
  const std::uint32_t m = each ? shape.microbatches_per_update : shape.per_batch(0);
  return static_cast<double>(microbatch_size) * m * replicas;
}

void Scenario::update_reductions() {
  const Placement where = placement();
  for (StageCosts& c : costs) c.reduce_grad_s = 0;
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(where.depth()); ++p) {
    if (where.twin(p) < p) continue;  // reduces with its twin
    const auto bytes = at_position(where, costs, p, &StageCosts::reduced_bytes);
    costs[where.stages_at(p).front()].reduce_grad_s = all_reduce_s(
        cluster, reduction_groups(where, mesh, p), static_cast<double>(bytes), reduction);
  }
}

Scenario build_scenario(const Value& document, std::string folder, Documents& documents,
                        Diagnostics& diagnostics) {
  return Builder(document, std::move(folder), documents, diagnostics).build();
}

}  // namespace penstock
