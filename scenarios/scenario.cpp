#include "scenarios/scenario.hpp"

#include "base/suggest.hpp"
#include "models/collectives.hpp"
#include "scenarios/overrides.hpp"
#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

namespace penstock {
namespace {

constexpr std::uint64_t kMaxOps = 400'000'000;  // about 20 GiB of Program and Timeline

const Value& empty_map() {
  static const Value kEmpty = [] {
    Value value;
    value.kind = Value::Kind::map;
    return value;
  }();
  return kEmpty;
}

class Builder {
 public:
  Builder(const Value& document, std::string folder, Diagnostics& diagnostics)
      : diagnostics_(diagnostics),
        library_(std::move(folder), diagnostics),
        top_(document, "scenario", diagnostics),
        pipeline_(top_.has("pipeline") && top_.at("pipeline").kind == Value::Kind::map
                      ? top_.at("pipeline")
                      : empty_map(),
                  "pipeline", diagnostics) {}

  Scenario build() {
    read_model_document();
    read_cluster_document();
    read_schedule();
    read_pipeline();
    read_cluster_section();
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
    if (const Value* found = library_.resolve(top_.at("model"), "model", "models")) {
      const bool foreign = found->source && found->source->name.ends_with(".json");
      model_.emplace(*found, "model", diagnostics_, foreign);
      if (!model_->ignored().empty()) {
        out_.notes.push_back(fmt::format("{}: keys without a meaning for a prediction: {}",
                                         found->source->name, fmt::join(model_->ignored(), ", ")));
      }
      abstract_ = is_abstract_model(*model_);
      if (!abstract_ && found->kind == Value::Kind::map)
        out_.transformer = read_transformer(*model_, diagnostics_);
      const bool named =
          out_.transformer && top_.at("model").kind == Value::Kind::scalar && !model_->has("name");
      if (named) out_.transformer->name = top_.at("model").text;
    }
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
    const auto name = top_.text("schedule");
    if (!name) return;
    out_.schedule = find_schedule(*name);
    if (out_.schedule == nullptr) {
      diagnostics_.add(top_.at("schedule"),
                       fmt::format("unknown schedule '{}'{} (`penstock schedule list` shows all)",
                                   *name, did_you_mean(*name, schedule_names())));
    }
  }

  std::uint32_t natural(const std::string& key, std::uint32_t otherwise) const {
    return static_cast<std::uint32_t>(pipeline_.integer(key).value_or(otherwise));
  }

  void read_pipeline() {
    out_.name = top_.text("name").value_or("");
    out_.samples_per_epoch = top_.integer("samples_per_epoch");
    out_.microbatch_size = pipeline_.integer("microbatch_size").value_or(1);
    out_.recompute = static_cast<Recompute>(pipeline_.choice("recompute").value_or(0));
    out_.lowering.width = static_cast<int>(natural("width", 1));
    out_.lowering.transfers = static_cast<Transfers>(
        top_.choice("transfers").value_or(static_cast<int>(Transfers::overlapped)));
    out_.lowering.global_step = pipeline_.choice("optimizer_sync").value_or(0) == 1;
    out_.shape.depth = natural("stages", default_stages());
    out_.shape.microbatches_per_update = natural("microbatches", 1);
    out_.shape.batches = static_cast<std::uint32_t>(top_.integer("batches").value_or(1));
    out_.shape.vertical_sync = pipeline_.boolean("vertical_sync").value_or(false);
    out_.shape.extra_copies = pipeline_.choice("weight_copies").value_or(0) == 1 ? 1 : 0;
    if (pipeline_.integer("chunks").value_or(1) != 1 && out_.schedule != nullptr) {
      diagnostics_.add(
          pipeline_.at("chunks"),
          fmt::format("'{}' runs one stage per device: chunks must be 1", out_.schedule->name));
    }
    if (out_.shape.depth > 65535)
      diagnostics_.add(pipeline_.at("stages"), "a pipeline has at most 65535 stages");
    if (out_.recompute == Recompute::selective && abstract_) {
      diagnostics_.add(pipeline_.at("recompute"), "'selective' needs a model by shape");
    }
    if (out_.schedule != nullptr) check_schedule();
  }

  /// All of the cluster when it is real; else one per listed cost.
  std::uint32_t default_stages() const {
    if (cluster_ && cluster_->has("devices")) return clamp(*cluster_->integer("devices"));
    if (cluster_ && cluster_->has("devices_per_node")) {
      const std::int64_t gpus = cluster_->integer("devices_per_node").value_or(1) *
                                cluster_->integer("nodes").value_or(1);
      return clamp(gpus / std::max<std::int64_t>(1, pipeline_.integer("width").value_or(1)));
    }
    if (model_ && model_->has("forward"))
      return clamp(static_cast<std::int64_t>(
          model_->list("forward").value_or(std::vector<double>{0}).size()));
    return 1;
  }
  static std::uint32_t clamp(std::int64_t n) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(n, 1, 1'000'000'000));
  }

  void check_schedule() {
    const Schedule& schedule = *out_.schedule;
    const std::string why = schedule.refuse(out_.shape);
    if (!why.empty()) diagnostics_.add(pipeline_.at("microbatches"), why);
    const bool stashes = schedule.update == UpdateRule::stash;
    for (const char* key : {"vertical_sync", "weight_copies"}) {
      if (pipeline_.has(key) && !stashes) {
        diagnostics_.add(
            pipeline_.at(key),
            fmt::format("'{}' has a meaning for pipedream only, not for '{}'", key, schedule.name));
      }
    }
    if (out_.lowering.global_step && !schedule.flushes()) {
      diagnostics_.add(pipeline_.at("optimizer_sync"),
                       fmt::format("'{}' never flushes, so its devices cannot step all at once; "
                                   "use optimizer_sync: device",
                                   schedule.name));
    }
  }

  void read_cluster_section() {
    const int needed = static_cast<int>(std::min<std::uint64_t>(
        std::uint64_t{out_.shape.depth} * static_cast<std::uint64_t>(out_.lowering.width),
        1'000'000'000));
    if (cluster_) {
      out_.cluster = read_cluster(*cluster_, library_, needed, diagnostics_);
    } else if (!top_.has("cluster")) {
      out_.cluster.name = "free links";
      out_.cluster.devices_per_node = needed;
      out_.cluster.link = LinkSpec{};
    }
    const std::int64_t have = std::int64_t{out_.cluster.nodes} * out_.cluster.devices_per_node;
    if (diagnostics_.empty() && have < needed) {
      diagnostics_.add(
          pipeline_.has("stages") ? pipeline_.at("stages") : pipeline_.self(),
          fmt::format("{} stages x width {} need {} devices, the cluster '{}' has {}",
                      out_.shape.depth, out_.lowering.width, needed, out_.cluster.name, have));
    }
  }

  void check_size() {
    const std::uint64_t ops = count_ops(out_.shape, out_.lowering.width);
    if (ops > kMaxOps || double(out_.shape.microbatches_per_update) * out_.shape.batches *
                                 out_.shape.depth * out_.lowering.width >
                             double(kMaxOps)) {
      diagnostics_.add(pipeline_.self(),
                       fmt::format("the run has about {} ops, more than the {} that fit in memory; "
                                   "simulate fewer batches or microbatches",
                                   format_count(static_cast<std::int64_t>(
                                       std::min<std::uint64_t>(ops, 9'000'000'000'000'000'000ULL))),
                                   format_count(kMaxOps)));
      diagnostics_.throw_if_any();
    }
  }

  /// Which GPU each device of the Program is.
  void place() {
    const int depth = static_cast<int>(out_.shape.depth);
    const int width = out_.lowering.width;
    const bool pipeline_first = pipeline_.choice("rank_order").value_or(0) == 1;
    for (int replica = 0; replica < width; ++replica) {
      for (int s = 0; s < depth; ++s) {
        out_.gpu_of_device.push_back(pipeline_first ? replica * depth + s : s * width + replica);
      }
    }
  }

  void cost() {
    const int stages = static_cast<int>(out_.shape.depth);
    if (abstract_) {
      out_.costs = read_abstract_costs(*model_, stages, out_.recompute, diagnostics_);
      if (pipeline_.has("split"))
        diagnostics_.add(pipeline_.at("split"),
                         "an abstract model is given per stage; there is nothing to split");
    } else {
      cost_transformer(stages);
    }
    if (diagnostics_.empty() && out_.lowering.width > 1) cost_reduction();
  }

  void cost_transformer(int stages) {
    const TransformerSpec& model = *out_.transformer;
    const DeviceSpec& device = out_.cluster.device;
    if (device.peak_flops_per_s.empty()) {
      diagnostics_.add(top_.has("cluster") ? top_.at("cluster") : top_.self(),
                       "a model by shape needs a cluster with a 'device' (`penstock list "
                       "clusters`), or give the model's costs");
      return;
    }
    if (!device.peak_flops_per_s.contains(model.compute_type)) {
      std::vector<std::string> types;
      for (const auto& [type, rate] : device.peak_flops_per_s) types.push_back(type);
      diagnostics_.add(model_->at("precision"),
                       fmt::format("{} has no peak rate for {}; it has {}", device.name,
                                   model.compute_type, fmt::join(types, ", ")));
      return;
    }
    const StageCostOptions options{static_cast<double>(out_.microbatch_size), out_.recompute};
    split(model, device, stages, options);
    if (diagnostics_.empty()) out_.costs = stage_costs(model, device, out_.layers, options);
  }

  void split(const TransformerSpec& model, const DeviceSpec& device, int stages,
             const StageCostOptions& options) {
    const Value& where = pipeline_.has("split") ? pipeline_.at("split") : pipeline_.at("stages");
    if (where.kind == Value::Kind::list) {
      for (const double n : pipeline_.list("split").value_or(std::vector<double>{}))
        out_.layers.push_back(static_cast<int>(n));
      const int sum = std::accumulate(out_.layers.begin(), out_.layers.end(), 0);
      if (out_.layers.size() != static_cast<std::size_t>(stages)) {
        diagnostics_.add(where, fmt::format("'split' lists {} stages, the pipeline has {}",
                                            out_.layers.size(), stages));
      } else if (sum != model.num_layers) {
        diagnostics_.add(where, fmt::format("'split' adds up to {} layers, the model has {}", sum,
                                            model.num_layers));
      }
      return;
    }
    if (stages > model.num_layers) {
      diagnostics_.add(where, fmt::format("{} layers cannot fill {} stages; use at most {}",
                                          model.num_layers, stages, model.num_layers));
      return;
    }
    if (pipeline_.choice("split").value_or(0) == 1) {
      out_.layers = balanced_split(model, device, stages, options);
      return;
    }
    out_.layers = even_split(model.num_layers, stages);
    if (out_.layers.empty()) {
      int below = stages, above = stages;
      while (model.num_layers % below != 0) --below;
      while (above < model.num_layers && model.num_layers % above != 0) ++above;
      diagnostics_.add(where,
                       fmt::format("{} layers do not divide evenly into {} stages; the nearest "
                                   "depths that do are {} and {}, or use split: balanced or a list",
                                   model.num_layers, stages, below, above));
    }
  }

  /// The all-reduce over the replicas of each stage, on the slowest hop between them.
  void cost_reduction() {
    const int width = out_.lowering.width;
    const int depth = static_cast<int>(out_.shape.depth);
    const Cluster& cluster = out_.cluster;
    for (int s = 0; s < depth; ++s) {
      bool one_node = true;
      for (int r = 0; r < width; ++r) {
        const auto gpu = [&](int replica) {
          return out_.gpu_of_device[static_cast<std::size_t>(replica * depth + s)];
        };
        one_node = one_node && cluster.node_of(gpu(r)) == cluster.node_of(gpu(0));
      }
      const LinkSpec& link = cluster.link ? *cluster.link
                             : one_node   ? cluster.intra
                                          : cluster.inter;
      StageCosts& c = out_.costs[static_cast<std::size_t>(s)];
      c.reduce_grad_s = ring_all_reduce_s(width, static_cast<double>(c.reduced_bytes),
                                          link.latency_s, link.bytes_per_s);
    }
  }

  Diagnostics& diagnostics_;
  Library library_;
  Section top_;
  Section pipeline_;
  std::optional<Section> model_, cluster_;
  bool abstract_ = false;
  Scenario out_;
};

Scenario resolve(Value document, const std::string& origin,
                 const std::vector<Override>& overrides) {
  Diagnostics diagnostics;
  if (document.kind == Value::Kind::map) apply_overrides(document, overrides, diagnostics);
  const std::filesystem::path path(origin);
  Scenario scenario = Builder(document, path.parent_path().string(), diagnostics).build();
  scenario.origin = origin;
  if (scenario.name.empty()) scenario.name = path.stem().string();
  return scenario;
}

/// A shipped file of its own, as a section for `list` and tests.
struct Shipped {
  Diagnostics diagnostics;
  Library library{".", diagnostics};
  std::optional<Section> section;

  Shipped(const std::string& name, const std::string& kind, const std::string& folder) {
    Value value;
    value.kind = Value::Kind::scalar;
    value.text = name;
    value.source = std::make_shared<Source>(Source{name, {}});
    const Value* found = library.resolve(value, kind, folder);
    diagnostics.throw_if_any();
    section.emplace(*found, kind, diagnostics);
  }
};

}  // namespace

Scenario load_scenario(const std::string& path, const std::vector<Override>& overrides) {
  return resolve(load_document(path), path, overrides);
}

Scenario parse_scenario(const std::string& text, const std::string& origin,
                        const std::vector<Override>& overrides) {
  return resolve(parse_document(text, origin), origin, overrides);
}

TransformerSpec load_model(const std::string& name) {
  Shipped file(name, "model", "models");
  TransformerSpec model = read_transformer(*file.section, file.diagnostics);
  file.diagnostics.throw_if_any();
  return model;
}

Cluster load_cluster(const std::string& name) {
  Shipped file(name, "cluster", "models/clusters");
  Cluster cluster = read_cluster(*file.section, file.library, 1, file.diagnostics);
  file.diagnostics.throw_if_any();
  return cluster;
}

DeviceSpec load_device(const std::string& name) {
  Cluster cluster;
  Diagnostics diagnostics;
  Library library(".", diagnostics);
  const Value document = parse_document("{devices: 1, device: " + name + "}", name);
  const Section section(document, "cluster", diagnostics);
  cluster = read_cluster(section, library, 1, diagnostics);
  diagnostics.throw_if_any();
  return cluster.device;
}

}  // namespace penstock
