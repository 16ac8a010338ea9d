// SPDX-License-Identifier: Apache-2.0
#include "validate/sailor_files.hpp"

#include "base/json_fields.hpp"
#include "base/numbers.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

namespace penstock {
namespace {

constexpr int kMostLayers = 1 << 16;
constexpr int kMostSequences = 1 << 20;
constexpr double kShortestTime_s = 1e-9;

std::optional<int> positive_key(const std::string& key) {
  const auto value = parse_number<int>(key);
  return value && *value >= 1 ? value : std::nullopt;
}

// Plans
// ------------------------------------------------------------------------------------------

/// [[[GPU, GPUs of a node, zone]], tensor degree]
std::optional<SailorReplica> read_replica(const Json& json) {
  const bool shaped = json.is_array() && json.size() == 2 && json[0].is_array() &&
                      json[0].size() == 1 && json[0][0].is_array() && json[0][0].size() == 3 &&
                      json[0][0][0].is_string() && json[0][0][2].is_string() &&
                      json[1].is_number_integer();
  if (!shaped) return std::nullopt;
  const int tensor = json[1].get<int>();
  if (tensor < 1) return std::nullopt;
  return SailorReplica{json[0][0][0].get<std::string>(), tensor, json[0][0][2].get<std::string>()};
}

/// Stages with as many replicas each; layers in order.
std::string wrong_with(const SailorPipeline& pipeline) {
  if (pipeline.layers.empty() || pipeline.layers.size() != pipeline.replicas.size())
    return fmt::format(
        "'layers_per_stage' has {} stages, 'tmp_per_stage' {}; they must have equally many, at "
        "least one",
        pipeline.layers.size(), pipeline.replicas.size());
  int next = 0;
  for (const std::vector<int>& stage : pipeline.layers) {
    if (stage.empty()) return "a stage has no layers";
    for (const int layer : stage)
      if (layer != next++) return "layers must be 0, 1, 2, ... over the stages";
  }
  for (const auto& stage : pipeline.replicas) {
    if (stage.empty()) return "a stage has no replicas";
    if (stage.size() != pipeline.replicas.front().size())
      return "stages with different numbers of replicas are not modelled";
  }
  return "";
}

}  // namespace

void take_field(const Place& at, const Json& json, SailorReplica& out) {
  if (const auto replica = read_replica(json)) return void(out = *replica);
  at.wrong("[[[GPU, GPUs of a node, zone]], tensor degree] on one node", json);
}

void take_field(const Place& at, const Json& json, SailorPipeline& out) {
  const std::size_t before = at.problems();
  FieldReader read(at, json);
  read("layers_per_stage", out.layers, {0, kMostLayers - 1});
  read("tmp_per_stage", out.replicas);
  if (at.problems() > before) return;
  const std::string wrong = wrong_with(out);
  if (!wrong.empty()) at.problem(wrong);
}

namespace {

void check_whole(const SailorPlan& plan, const Place& at) {
  std::set<std::string> zones;
  for (const SailorPipeline& pipeline : plan.pipelines) {
    if (pipeline.layers.size() != plan.pipelines.front().layers.size())
      at.problem("pipelines of different depths are not modelled");
    for (const auto& stage : pipeline.replicas) {
      for (const SailorReplica& replica : stage) zones.insert(replica.zone);
    }
  }
  if (zones.size() > 1) at.problem("plans over several zones are not modelled");
}

// Curves
// ------------------------------------------------------------------------------------------

bool is_curve(const Json& json) {
  const auto number = [](const Json& x) { return x.is_number(); };
  return json.is_array() && json.size() == 2 && json[0].is_array() && json[0].size() == 3 &&
         std::ranges::all_of(json[0], number) && json[1].is_number() && json[1].get<double>() > 0;
}

}  // namespace

int SailorPlan::depth() const { return pipelines.front().depth(); }

int SailorPlan::width() const {
  int sum = 0;
  for (const SailorPipeline& pipeline : pipelines) sum += pipeline.width();
  return sum;
}

int SailorPlan::layers() const { return pipelines.front().layers.back().back() + 1; }

int SailorPlan::microbatches() const {
  const int at_once = microbatch_size * width();
  return (batch_size + at_once - 1) / at_once;
}

std::set<std::string> SailorPlan::gpus() const {
  std::set<std::string> out;
  for (const SailorPipeline& pipeline : pipelines) {
    for (const auto& stage : pipeline.replicas) {
      for (const SailorReplica& replica : stage) out.insert(replica.gpu);
    }
  }
  return out;
}

SailorPlan parse_sailor_plan(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  JsonProblems problems(origin);
  const Place whole(problems);
  FieldReader read(whole, json);
  SailorPlan out;
  out.file = origin;
  out.name = std::filesystem::path(origin).stem().string();
  read("pipeline_list", out.pipelines);
  read("mbs", out.microbatch_size, {1, kMostSequences});
  read("gbs", out.batch_size, {1, kMostSequences});
  read("real", out.measured_s, {kShortestTime_s});
  read("max_mem", out.max_bytes, {1});
  problems.throw_if_any();
  if (out.pipelines.empty())
    whole.in("pipeline_list").problem("holds no pipeline");
  else
    check_whole(out, whole);
  problems.throw_if_any();
  return out;
}

// Profiles
// ------------------------------------------------------------------------------------------

namespace {

/// {layer: [forward_s, backward_s, update_s]} with the layers 0, 1, 2, ...
std::vector<LayerTimes> read_layer_times(const Json& json, const Place& at) {
  std::vector<LayerTimes> out(json.is_object() ? json.size() : 0);
  if (out.empty()) at.problem("must be {layer: [forward, backward, update]}");
  for (std::size_t layer = 0; layer < out.size(); ++layer) {
    const Json* it = json.find(std::to_string(layer));
    const auto time = [](const Json& t) { return t.is_number() && t.get<double>() >= 0; };
    if (it == nullptr || !it->is_array() || it->size() != 3 || !std::ranges::all_of(*it, time)) {
      at.problem(fmt::format("layer {} must have [forward, backward, update] in seconds", layer));
      continue;
    }
    out[layer] = {(*it)[0].get<double>(), (*it)[1].get<double>(), (*it)[2].get<double>()};
  }
  return out;
}

/// Calls `each(number, value, place)` for an object whose keys are integers from 1.
template <class Each>
void each_numbered(const Json& json, const Place& at, const char* what, Each&& each) {
  if (!json.is_object() || json.empty()) return at.problem("must be an object");
  for (const auto& [key, value] : json.items()) {
    const Place inner = at.in(key);
    if (const auto number = positive_key(key))
      each(*number, value, inner);
    else
      at.problem(fmt::format("'{}' is not a {}", key, what));
  }
}

std::string keys_of(const auto& map) {
  std::string out;
  for (const auto& [key, value] : map) out += fmt::format("{}{}", out.empty() ? "" : ", ", key);
  return out;
}

}  // namespace

SailorProfile SailorProfile::parse(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  JsonProblems problems(origin);
  SailorProfile out;
  out.origin_ = origin;
  const Place whole(problems);
  std::set<std::size_t> layers;
  each_numbered(json, whole, "microbatch size",
                [&](int size, const Json& degrees, const Place& of) {
                  each_numbered(degrees, of, "tensor degree",
                                [&](int degree, const Json& one, const Place& at) {
                                  Layers& times = out.table_[size][degree];
                                  times = read_layer_times(one, at);
                                  layers.insert(times.size());
                                });
                });
  problems.throw_if_any();
  if (layers.size() != 1) whole.problem("every size and degree must have the same layers");
  problems.throw_if_any();
  out.layers_ = static_cast<int>(*layers.begin());
  return out;
}

namespace {

/// The layer of a model of `layers` that does what `layer` of `of` layers does.
std::size_t same_role(std::size_t layer, std::size_t of, std::size_t layers) {
  if (layer == 0) return 0;
  return layer + 1 == of ? layers - 1 : layers / 2;
}

/// What an op gains, to multiply up; 1 where one of the two was not measured.
double gain(double from_s, double to_s) { return from_s > 0 && to_s > 0 ? to_s / from_s : 1; }

LayerTimes gain(const LayerTimes& from, const LayerTimes& to) {
  return {gain(from.forward_s, to.forward_s), gain(from.backward_s, to.backward_s),
          gain(from.update_s, to.update_s)};
}

}  // namespace

SailorProfile SailorProfile::estimate(const SailorProfile& elsewhere,
                                      const std::vector<Reference>& references,
                                      const std::string& origin) {
  SailorProfile out;
  out.origin_ = origin;
  out.layers_ = elsewhere.layers_;
  for (const auto& [size, by_degree] : elsewhere.table_) {
    for (const auto& [degree, measured] : by_degree) {
      Layers scaled = measured;
      bool everywhere = !references.empty();
      for (const Reference& reference : references) {
        const Layers* from = reference.from.find(size, degree);
        const Layers* to = reference.to.find(size, degree);
        everywhere = everywhere && from != nullptr && to != nullptr;
        if (!everywhere) break;
        for (std::size_t layer = 0; layer < scaled.size(); ++layer) {
          const std::size_t role = same_role(layer, scaled.size(), from->size());
          const LayerTimes g = gain((*from)[role], (*to)[role]);
          const double share = 1.0 / static_cast<double>(references.size());
          scaled[layer].forward_s *= std::pow(g.forward_s, share);
          scaled[layer].backward_s *= std::pow(g.backward_s, share);
          scaled[layer].update_s *= std::pow(g.update_s, share);
        }
      }
      if (everywhere) out.table_[size][degree] = std::move(scaled);
    }
  }
  return out;
}

bool SailorProfile::has_updates() const {
  return std::ranges::all_of(table_, [](const auto& size) {
    return std::ranges::all_of(size.second, [](const auto& degree) {
      return std::ranges::all_of(degree.second, [](const LayerTimes& l) { return l.update_s > 0; });
    });
  });
}

void SailorProfile::add_missing(const SailorProfile& other) {
  for (const auto& [size, by_degree] : other.table_) {
    for (const auto& [degree, layers] : by_degree) table_[size].try_emplace(degree, layers);
  }
}

const SailorProfile::Layers* SailorProfile::find(int microbatch_size, int tensor) const {
  const auto size = table_.find(microbatch_size);
  if (size == table_.end()) return nullptr;
  const auto degree = size->second.find(tensor);
  return degree == size->second.end() ? nullptr : &degree->second;
}

const SailorProfile::Layers& SailorProfile::at(int microbatch_size, int tensor) const {
  const auto size = table_.find(microbatch_size);
  if (size == table_.end())
    throw InputError(origin_, fmt::format("has no times for microbatches of {}; it has {}",
                                          microbatch_size, keys_of(table_)));
  const auto degree = size->second.find(tensor);
  if (degree == size->second.end())
    throw InputError(origin_, fmt::format("has no times for microbatches of {} on {} GPUs; it has "
                                          "tensor degrees {}",
                                          microbatch_size, tensor, keys_of(size->second)));
  return degree->second;
}

double SailorProfile::without_launches(int microbatch_size, int tensor, int layer,
                                       double LayerTimes::*part) const {
  const auto l = static_cast<std::size_t>(layer);
  const double measured = at(microbatch_size, tensor)[l].*part;
  double same_degree = measured, least = measured;
  for (auto size = table_.lower_bound(microbatch_size); size != table_.end(); ++size) {
    for (const auto& [degree, layers] : size->second) {
      const double time = layers[l].*part;
      if (degree == tensor) same_degree = std::min(same_degree, time);
      if (degree <= tensor) least = std::min(least, time);
    }
  }
  return same_degree < measured ? least : measured;
}

LayerTimes SailorProfile::times(int microbatch_size, int tensor, int layer) const {
  return {without_launches(microbatch_size, tensor, layer, &LayerTimes::forward_s),
          without_launches(microbatch_size, tensor, layer, &LayerTimes::backward_s),
          at(microbatch_size, tensor)[static_cast<std::size_t>(layer)].update_s};
}

// Network
// ------------------------------------------------------------------------------------------

SailorNetwork SailorNetwork::parse(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  JsonProblems problems(origin);
  const Place whole(problems), inter = whole.in("inter");
  SailorNetwork out;
  out.origin_ = origin;
  const Json* by_gpu = FieldReader(whole, json).find("inter", true);
  if (by_gpu != nullptr && !by_gpu->is_object()) inter.wrong("an object", *by_gpu);
  problems.throw_if_any();
  for (const auto& [gpu, by_senders] : by_gpu->items()) {
    const Place of = inter.in(gpu);
    each_numbered(by_senders, of, "number of GPUs",
                  [&, &gpu = gpu](int senders, const Json& curve, const Place& at) {
                    if (!is_curve(curve)) return at.wrong("[[a, b, c], bytes/s]", curve);
                    const Json& c = curve[0];
                    out.curves_[gpu][senders] = {c[0].get<double>(), c[1].get<double>(),
                                                 c[2].get<double>(), curve[1].get<double>()};
                  });
  }
  problems.throw_if_any();
  return out;
}

double SailorNetwork::bytes_per_s(const std::string& gpu, int senders, double bytes) const {
  const auto kind = curves_.find(gpu);
  if (kind == curves_.end())
    throw InputError(origin_, fmt::format("has no bandwidths between nodes of {}; it has {}", gpu,
                                          keys_of(curves_)));
  const auto it = kind->second.find(senders);
  if (it == kind->second.end())
    throw InputError(origin_, fmt::format("has no bandwidths for {} GPUs of a node of {}; it has "
                                          "those for {}",
                                          senders, gpu, keys_of(kind->second)));
  const Curve& curve = it->second;
  // The curve was fitted from 1 MB up to where it is largest; beyond either end it is constant.
  double x = std::max(0.0, std::log2(bytes / 1e6));
  if (curve.a < 0) x = std::min(x, -curve.b / (2 * curve.a));
  const double rate = std::min(curve.most, 1e9 * (curve.a * x * x + curve.b * x + curve.c));
  return rate / senders;
}

// Models
// ------------------------------------------------------------------------------------------

TransformerSpec parse_sailor_model(const std::string& text, const std::string& origin) {
  constexpr FieldRange kSize{1, 1 << 30};
  const Json json = parse_json(text, origin);
  JsonProblems problems(origin);
  const Place whole(problems);
  FieldReader read(whole, json);
  TransformerSpec out;
  read("model", out.name);
  read("num_layers", out.num_layers, {1, kMostLayers});
  read("hidden_size", out.hidden_size, kSize);
  read("heads", out.num_attention_heads, kSize);
  read("vocab_size", out.vocab_size, kSize);
  read("sequence_length", out.seq_length, kSize);
  problems.throw_if_any();
  out.num_query_groups = out.num_attention_heads;
  out.ffn_hidden_size = 4 * out.hidden_size;
  return out;
}

std::optional<TransformerSpec> known_sailor_model(const std::string& name) {
  struct Known {
    const char* name;
    Family family;
    int layers;
    std::int64_t hidden, heads, groups, ffn, vocab, sequence;
  };
  // OPT: Zhang et al., 2022, table 1 (with 2048 positions); GPT-Neo 2.7B and Llama 3 8B: their
  // published config.json. Llama's layer times are those of 8192 positions: its head's rate and the
  // sizes that fitted into memory admit no fewer.
  constexpr Known kKnown[] = {
      {"OPT-350", Family::gpt, 24, 1024, 16, 16, 4096, 50272, 2048},
      {"OPT-30", Family::gpt, 48, 7168, 56, 56, 28672, 50272, 2048},
      {"GPT-Neo-2.7", Family::gpt, 32, 2560, 20, 20, 10240, 50257, 2048},
      {"LLAMA-3-8", Family::llama, 32, 4096, 32, 8, 14336, 128256, 8192},
  };
  for (const Known& k : kKnown) {
    if (name != k.name) continue;
    TransformerSpec out;
    out.name = name;
    out.family = k.family;
    out.num_layers = k.layers;
    out.hidden_size = k.hidden;
    out.num_attention_heads = k.heads;
    out.num_query_groups = k.groups;
    out.ffn_hidden_size = k.ffn;
    out.vocab_size = k.vocab;
    out.seq_length = k.sequence;
    return out;
  }
  return std::nullopt;
}

}  // namespace penstock
