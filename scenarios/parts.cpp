// SPDX-License-Identifier: Apache-2.0
#include "scenarios/parts.hpp"

#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr const char* kAbstractKeys[] = {"forward",         "backward",   "backward_input",
                                         "backward_weight", "step",       "output",
                                         "parameters",      "gradients",  "optimizer",
                                         "version",         "activation", "activation_after_input",
                                         "workspace",       "per"};
/// Keys of a model that may stand beside its costs; all others are of its shape.
constexpr const char* kOtherKeys[] = {
    "base", "name", "missing", "missing_saves", "profile_batch", "profile", "forward_backward"};

/// Every key without which a transformer has no shape, in one message.
void require_shape(const Section& model) {
  static constexpr const char* kNeeded[] = {"num_layers", "hidden_size", "num_attention_heads",
                                            "vocab_size", "seq_length"};
  std::vector<std::string> missing;
  for (const char* key : kNeeded) {
    if (!model.has(key)) missing.push_back(fmt::format("'{}'", key));
  }
  if (missing.empty() || model.self().kind != Value::Kind::map) return;
  const char* instead =
      missing.size() == std::size(kNeeded) ? "; or give its costs ('forward', 'backward' ...)" : "";
  model.refuse(fmt::format("the model needs {}{}", fmt::join(missing, ", "), instead));
}

/// Values of a key, one for each virtual stage; zeros when the key is missing.
class StageList {
 public:
  StageList(const Section& model, const StageShares& shares) : model_(model), shares_(shares) {}

  /// Of what a device's chunks divide among them.
  std::vector<double> divided(const std::string& key) const {
    std::vector<double> values = whole(key);
    if (of_devices(key))
      for (double& value : values) value /= shares_.chunks;
    return values;
  }
  /// The same in bytes: the chunks of a device have exactly its bytes.
  std::vector<std::int64_t> divided_bytes(const std::string& key) const {
    const std::vector<double> values = whole(key);
    std::vector<std::int64_t> bytes;
    if (values.empty()) return bytes;
    std::vector<int> before(static_cast<std::size_t>(shares_.devices));  // chunks by device
    const bool divide = of_devices(key);
    for (std::size_t s = 0; s < values.size(); ++s) {
      const int k = divide ? before[shares_.device_of[s]]++ : 0, n = divide ? shares_.chunks : 1;
      bytes.push_back(std::llround(values[s] * (k + 1) / n) - std::llround(values[s] * k / n));
    }
    return bytes;
  }
  /// Of what every chunk has as large as the whole device would.
  std::vector<double> whole(const std::string& key) const {
    const auto stages = shares_.device_of.size();
    const auto values = model_.list(key);
    if (!values) return std::vector<double>(stages, 0.0);
    if (model_.at(key).kind == Value::Kind::scalar)
      return std::vector<double>(stages, values->at(0));
    if (values->size() == stages) return *values;
    std::vector<double> each(stages, 0.0);
    if (of_devices(key)) {
      for (std::size_t s = 0; s < stages; ++s) each[s] = (*values)[shares_.device_of[s]];
    } else if (stages > 0 && values->size() == model_.at(key).items.size()) {
      model_.refuse(key, fmt::format("'{}' lists {} stages, the pipeline has {}{}", key,
                                     values->size(), stages, allowed()));
    }  // else the depth itself was refused, or an item
    return each;
  }

 private:
  /// Does the key say what a device has, rather than each of its chunks?
  bool of_devices(const std::string& key) const {
    const auto values = model_.list(key);
    if (!values || shares_.chunks == 1 || shares_.per_chunk) return false;
    return model_.at(key).kind == Value::Kind::scalar ||
           values->size() == static_cast<std::size_t>(shares_.devices);
  }
  std::string allowed() const {
    if (shares_.chunks == 1) return "";
    if (shares_.per_chunk)
      return fmt::format(" ({} devices x {} chunks) with per: chunk", shares_.devices,
                         shares_.chunks);
    return fmt::format("; list {} (one per device, divided among its {} chunks) or {}",
                       shares_.devices, shares_.chunks, shares_.device_of.size());
  }

  const Section& model_;
  const StageShares& shares_;
};

struct BackwardTimes {
  std::vector<double> full, input, weight;
};

/// What is missing or given twice among the keys of the backward pass.
void check_backward_keys(const Section& model) {
  const bool input = model.has("backward_input"), weight = model.has("backward_weight");
  if (input != weight) {
    const char* given = input ? "backward_input" : "backward_weight";
    const char* missing = input ? "backward_weight" : "backward_input";
    model.refuse(given, fmt::format("'{}' needs '{}', too", given, missing));
  } else if (input && model.has("backward")) {
    model.refuse(
        "backward",
        "'backward' is the sum of 'backward_input' and 'backward_weight'; give one or the other");
  } else if (!input && !model.has("backward")) {
    model.refuse("the model needs 'backward' (or 'backward_input' and 'backward_weight')");
  }
}

/// B from I + W or the other way round: a full backward without its parts is split in halves.
BackwardTimes read_backward(const Section& model, const StageList& per_stage) {
  check_backward_keys(model);
  BackwardTimes times{per_stage.divided("backward"), per_stage.divided("backward_input"),
                      per_stage.divided("backward_weight")};
  if (model.has("backward_input")) {
    for (std::size_t i = 0; i < times.full.size(); ++i)
      times.full[i] = times.input[i] + times.weight[i];
  } else {
    times.input = times.full;
    for (double& t : times.input) t /= 2;
    times.weight = times.input;
  }
  return times;
}

/// Does `a` divide by `b`, both given and well-formed?
bool divides(const Section& model, const char* b, const char* a) {
  const auto part = model.integer(b), whole = model.integer(a);
  return !part || !whole || *whole % *part == 0;
}

void check_shape(const TransformerSpec& t, const Section& model) {
  if (!t.head_dim && !t.latent && !divides(model, "num_attention_heads", "hidden_size")) {
    model.refuse("num_attention_heads", fmt::format("{} heads do not divide the hidden size {}",
                                                    t.num_attention_heads, t.hidden_size));
  }
  if (!divides(model, "num_query_groups", "num_attention_heads")) {
    model.refuse("num_query_groups", fmt::format("{} query groups do not divide {} heads",
                                                 t.num_query_groups, t.num_attention_heads));
  }
  // Far beyond any real model the byte counts would no longer fit.
  const double width =
      static_cast<double>(t.hidden_size + t.ffn_hidden_size) +
      (t.experts ? static_cast<double>(t.experts->count) * static_cast<double>(t.experts->width) +
                       static_cast<double>(t.experts->shared_width)
                 : 0);
  const double size =
      static_cast<double>(t.num_layers) * static_cast<double>(t.hidden_size) * width;
  const double embedding =
      (static_cast<double>(t.vocab_size) + static_cast<double>(t.learned_positions())) *
      static_cast<double>(t.hidden_size);
  if (size > 1e15 || embedding > 1e15) model.refuse("the model has more than 10^15 parameters");
  if (model.has("full_attention_every") && !model.has("sliding_window"))
    model.refuse("full_attention_every", "'full_attention_every' needs 'sliding_window', too");
  if (t.experts && model.has("measured"))
    model.refuse("measured", "'measured' rows are of layers that are alike, without experts");
}

/// Returns a number of layers, tokens or experts.
int small(const std::optional<std::int64_t>& number, int otherwise) {
  return static_cast<int>(std::min<std::int64_t>(number.value_or(otherwise), 1'000'000));
}

/// Returns the experts of a model's layers; none where it does not say how many there are.
std::optional<Experts> read_experts(const Section& model, const TransformerSpec& t) {
  static constexpr const char* kOfExperts[] = {"experts_per_token",
                                               "expert_ffn_hidden_size",
                                               "shared_expert_ffn_hidden_size",
                                               "shared_expert_gate",
                                               "router_bias",
                                               "first_dense_layers",
                                               "expert_layer_every",
                                               "expert_groups",
                                               "groups_per_token"};
  if (!model.has("num_experts")) {
    for (const char* key : kOfExperts)
      if (model.has(key)) model.refuse(key, fmt::format("'{}' needs 'num_experts', too", key));
    return std::nullopt;
  }
  if (!model.has("experts_per_token"))
    model.refuse("num_experts", "'num_experts' needs 'experts_per_token', too");
  Experts e;
  e.count = small(model.integer("num_experts"), 1);
  e.top_k = small(model.integer("experts_per_token"), 1);
  e.width = model.integer("expert_ffn_hidden_size").value_or(t.ffn_hidden_size);
  e.shared_width = model.integer("shared_expert_ffn_hidden_size").value_or(0);
  e.shared_gate = model.boolean("shared_expert_gate").value_or(false);
  e.router_bias = model.boolean("router_bias").value_or(false);
  e.first_dense = small(model.integer("first_dense_layers"), 0);
  e.every = small(model.integer("expert_layer_every"), 1);
  e.groups = small(model.integer("expert_groups"), 1);
  e.groups_per_token = small(model.integer("groups_per_token"), 1);
  if (e.count % e.groups != 0)
    model.refuse("expert_groups",
                 fmt::format("{} experts are not {} equal parts", e.count, e.groups));
  else if (e.groups_per_token > e.groups || (e.groups > 1 && e.top_k <= e.count &&
                                             e.top_k > e.count / e.groups * e.groups_per_token))
    model.refuse(model.has("groups_per_token") ? "groups_per_token" : "expert_groups",
                 fmt::format("{} experts of a token cannot be in {} of {} parts of {}", e.top_k,
                             e.groups_per_token, e.groups, e.count / e.groups));
  if (e.top_k > e.count)
    model.refuse("experts_per_token",
                 fmt::format("a token cannot use {} of {} experts", e.top_k, e.count));
  if (e.shared_gate && e.shared_width == 0)
    model.refuse("shared_expert_gate",
                 "'shared_expert_gate' needs 'shared_expert_ffn_hidden_size', too");
  if (e.first_dense >= t.num_layers)
    model.refuse("first_dense_layers",
                 fmt::format("none of {} layers has experts then", t.num_layers));
  return e;
}

constexpr std::int64_t kMostLatent = 1'000'000;

std::optional<LatentAttention> read_latent(const Section& model, const TransformerSpec& t) {
  if (!model.has("latent_attention") || model.broken("latent_attention")) return std::nullopt;
  const Section section(model, "latent_attention");
  for (const char* key : {"kv_rank", "rope_dim", "nope_dim", "value_dim"})
    if (!section.has(key)) section.refuse(fmt::format("'latent_attention' needs '{}', too", key));
  const auto size = [&](const char* key, std::int64_t otherwise) {
    return std::min(section.integer(key).value_or(otherwise), kMostLatent);
  };
  for (const char* key : {"head_dim", "qk_norm"})
    if (model.has(key))
      model.refuse(key, fmt::format("'{}' has no meaning beside 'latent_attention'", key));
  if (t.num_query_groups != t.num_attention_heads)
    model.refuse(
        "num_query_groups",
        "latent attention makes keys and values of every head: leave num_query_groups out");
  return LatentAttention{size("q_rank", 0), size("kv_rank", 1), size("rope_dim", 1),
                         size("nope_dim", 1), size("value_dim", 1)};
}

/// The family's, but for what the keys say.
std::optional<LayerForm> read_form(Family family, const Section& model) {
  LayerForm form = form_of(family);
  const auto choose = [&]<class T>(const char* key, T& value) {
    if (const auto place = model.choice(key)) value = static_cast<T>(*place);
  };
  const auto decide = [&](const char* key, bool& value) {
    value = model.boolean(key).value_or(value);
  };
  choose("norm", form.norm);
  choose("qk_norm", form.qk_norm);
  choose("biases", form.biases);
  choose("positions", form.positions);
  decide("gated_mlp", form.gated_mlp);
  decide("parallel_residual", form.parallel_residual);
  decide("dropout", form.dropout);
  decide("attention_sinks", form.sinks);
  form.norms = static_cast<int>(std::min<std::int64_t>(model.integer("norms").value_or(2), 100));
  return form == form_of(family) ? std::nullopt : std::optional(form);
}

}  // namespace

constexpr std::int64_t kMostQuerySize = 10'000'000;

namespace {

/// Sets the types of a model's numbers and products, and the bytes of its parameters.
void read_precision(const Section& model, TransformerSpec& t) {
  // In the order of the choices; of narrow types, everything else is bf16.
  static constexpr const char* kOwnTypes[] = {"fp16", "bf16", "fp32", "tf32", "bf16", "fp16"};
  constexpr int kFirstNarrow = std::size(kOwnTypes);
  const bool is_map = model.has("precision") && model.at("precision").kind == Value::Kind::map;
  const Section parts(model, is_map ? "precision" : "");
  const int base = (is_map ? parts.choice("base") : model.choice("precision")).value_or(1);
  t.compute_type = base < kFirstNarrow ? kOwnTypes[base] : "bf16";
  const bool single = t.element_bytes() > 2;
  if (base >= kFirstNarrow)
    t.product_types = linear_layers_in(
        static_cast<NumberType>(base - kFirstNarrow + static_cast<int>(NumberType::fp8)));
  for (std::size_t c = 0; c < kProductClasses; ++c) {
    const auto type = parts.choice(kProductClassNames[c]);
    if (!type) continue;
    const auto chosen = static_cast<NumberType>(*type + 1);
    const bool own = facts_of(chosen).peak == t.compute_type;
    t.product_types.of(static_cast<ProductClass>(c)) = own ? NumberType::model : chosen;
  }
  t.product_types.narrow_parameters = parts.choice("linear_weights").value_or(0) == 1;
  t.product_types.narrow_kept = parts.choice("kept_activations").value_or(0) == 1;
  const auto layers = [&](const char* key) {
    return static_cast<int>(std::min<std::int64_t>(parts.integer(key).value_or(0), t.num_layers));
  };
  t.product_types.first_wide = layers("first_wide_layers");
  t.product_types.last_wide = layers("last_wide_layers");
  t.bytes = read_parameter_bytes(model, single);
}

}  // namespace

ParameterBytes read_parameter_bytes(const Section& model, bool single) {
  ParameterBytes bytes;
  if (single) bytes = {4, 4, 8, 4, 4};
  if (!model.has("bytes_per_parameter")) return bytes;
  const Section given(model, "bytes_per_parameter");
  bytes.weights = given.number("weights").value_or(bytes.weights);
  bytes.gradients = given.number("gradients").value_or(bytes.gradients);
  bytes.optimizer = given.number("optimizer").value_or(bytes.optimizer);
  bytes.version = given.number("version").value_or(bytes.weights);
  bytes.reduced = given.number("reduced").value_or(std::min(bytes.gradients, 4.0));
  return bytes;
}

bool is_abstract_model(const Section& model) {
  return std::ranges::any_of(kAbstractKeys, [&](const char* key) { return model.has(key); });
}

TransformerSpec read_transformer(const Section& model) {
  require_shape(model);
  TransformerSpec t;
  t.family = static_cast<Family>(model.choice("family").value_or(0));
  t.name = model.text("name").value_or("inline model");
  t.num_layers = static_cast<int>(model.integer("num_layers").value_or(1));
  t.hidden_size = model.integer("hidden_size").value_or(1);
  t.num_attention_heads = model.integer("num_attention_heads").value_or(1);
  t.vocab_size = model.integer("vocab_size").value_or(1);
  t.seq_length = model.integer("seq_length").value_or(1);
  t.num_query_groups = model.integer("num_query_groups").value_or(t.num_attention_heads);
  t.ffn_hidden_size = model.integer("ffn_hidden_size").value_or(4 * t.hidden_size);
  t.head_dim = model.integer("head_dim");
  if (t.head_dim && t.query_size() > kMostQuerySize) {
    model.refuse("head_dim", fmt::format("heads of {} elements make queries of more than {}",
                                         *t.head_dim, kMostQuerySize));
    t.head_dim.reset();
  }
  if (t.query_size() == t.hidden_size) t.head_dim.reset();
  t.own_form = read_form(t.family, model);
  t.experts = read_experts(model, t);
  t.latent = read_latent(model, t);
  if (t.latent && t.query_size() > kMostQuerySize) {
    model.refuse("latent_attention",
                 fmt::format("its heads make queries of more than {} elements", kMostQuerySize));
    t.latent.reset();
  }
  t.mtp_layers = small(model.integer("mtp_layers"), 0);
  t.position_rows = model.integer("position_rows");
  t.sliding_window = model.integer("sliding_window");
  if (const auto every = model.integer("full_attention_every"))
    t.full_attention_every = static_cast<int>(*every);
  t.extra_parameters = model.integer("extra_parameters");
  const bool llama = t.family == Family::llama;
  t.tie_embeddings = model.boolean("tie_embeddings").value_or(!llama);
  t.flash_attention = model.boolean("flash_attention").value_or(llama);
  read_precision(model, t);
  check_shape(t, model);
  return t;
}

namespace {

/// The four times of a part, those that are missing made from the others.
ProfilePart read_part(const Section& row, const char* key) {
  ProfilePart p;
  if (!row.has(key) || row.broken(key)) return p;
  const Section part(row.at(key), "measured_part", row.diagnostics());
  const auto value = [&](const char* name) { return part.number(name).value_or(0); };
  p.forward_s = value("forward");
  const double parts = value("backward_input") + value("backward_weight");
  p.backward_s = part.number("backward").value_or(parts);
  const bool split = part.has("backward_input") || part.has("backward_weight");
  p.backward_input_s = split ? value("backward_input") : p.backward_s / 2;
  p.backward_weight_s = split ? value("backward_weight") : p.backward_s / 2;
  p.activation_bytes = value("activation");
  p.activation_after_input_bytes =
      part.number("activation_after_input").value_or(p.activation_bytes);
  p.forward_workspace_bytes = value("forward_workspace");
  p.backward_workspace_bytes = value("backward_workspace");
  return p;
}

/// A layer must have times: without them the whole model would take none.
void require_layer_times(const Section& row, const ProfilePart& layer) {
  if (row.broken("layer")) return;
  if (!row.has("layer")) {
    row.refuse("a measured row needs 'layer'");
  } else if (layer.forward_s == 0 || layer.backward_s == 0) {
    row.refuse("layer",
               "a measured layer needs 'forward' and 'backward' (or 'backward_input' and "
               "'backward_weight') of more than 0");
  }
}

ProfileRow read_profile_row(const Section& section) {
  ProfileRow row;
  if (!section.has("microbatch_size")) section.refuse("a measured row needs 'microbatch_size'");
  row.microbatch_size = static_cast<double>(section.integer("microbatch_size").value_or(1));
  row.recompute = static_cast<Recompute>(section.choice("recompute").value_or(0));
  row.load = static_cast<int>(section.integer("load").value_or(1));
  row.spread = section.number("spread").value_or(0);
  row.layer = read_part(section, "layer");
  row.embedding = read_part(section, "embedding");
  row.head = read_part(section, "head");
  row.overhead = read_part(section, "overhead");
  require_layer_times(section, row.layer);
  return row;
}

std::vector<ProfileRow> read_profile_rows(const Value& list, Diagnostics& diagnostics) {
  std::vector<ProfileRow> rows;
  for (const Value& item : list.items) {
    if (item.kind != Value::Kind::map) continue;  // refused already
    const Section section(item, "measured", diagnostics);
    const ProfileRow row = read_profile_row(section);
    const bool known = section.has("microbatch_size") && !section.broken("microbatch_size") &&
                       !section.broken("recompute") && !section.broken("load");
    if (!known) continue;
    const auto same = std::ranges::find_if(rows, [&](const ProfileRow& other) {
      return other.microbatch_size == row.microbatch_size && other.recompute == row.recompute &&
             other.load == row.load;
    });
    if (same != rows.end()) {
      diagnostics.add_error(
          item, fmt::format("microbatch_size {}, recompute {} and load {} are measured "
                            "in an earlier row, too",
                            row.microbatch_size, kRecomputeNames[static_cast<int>(row.recompute)],
                            row.load));
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<ProfileStep> read_profile_steps(const Section& model) {
  std::vector<ProfileStep> steps;
  if (!model.has("measured_step")) return steps;
  for (const Value& item : model.at("measured_step").items) {
    if (item.kind != Value::Kind::map) continue;  // refused already
    const Section section(item, "measured_step", model.diagnostics());
    const int load = static_cast<int>(section.integer("load").value_or(1));
    if (std::ranges::find(steps, load, &ProfileStep::load) != steps.end())
      model.diagnostics().add_error(
          item, fmt::format("load {} is measured in an earlier row, too", load));
    steps.push_back({load, section.number("overhead").value_or(0),
                     section.number("per_parameter").value_or(0)});
  }
  return steps;
}

}  // namespace

std::optional<LayerProfile> read_layer_profile(const Section& model) {
  if (!model.has("measured")) {
    for (const char* key : {"measured_step", "measured_load"}) {
      if (model.has(key)) model.refuse(key, fmt::format("'{}' needs 'measured', too", key));
    }
    return std::nullopt;
  }
  auto steps = read_profile_steps(model);
  auto rows = read_profile_rows(model.at("measured"), model.diagnostics());
  std::optional<bool> loaded;
  if (const auto asked = model.choice("measured_load")) loaded = *asked == 1;
  return LayerProfile(std::move(rows), std::move(steps), loaded);
}

std::vector<StageCosts> read_abstract_costs(const Section& model, const StageShares& shares,
                                            const PerStage<Recomputation>& recompute) {
  for (const KeyRow& row : key_table()) {
    const bool of_shape = row.section == "model" && std::ranges::count(kAbstractKeys, row.key) == 0;
    if (of_shape && std::ranges::count(kOtherKeys, row.key) == 0 && model.has(row.key))
      model.refuse(
          row.key,
          fmt::format("'{}' belongs to a model by shape, but this one gives its costs", row.key));
  }
  const StageList per_stage(model, shares);
  if (!model.has("forward")) model.refuse("the model needs 'forward'");
  const auto forward = per_stage.divided("forward");
  const BackwardTimes backward = read_backward(model, per_stage);
  const auto step = per_stage.divided("step");
  const auto both = per_stage.divided("forward_backward");
  std::vector<StageCosts> costs(shares.device_of.size());
  const auto bytes = [&](const std::string& key, std::int64_t StageCosts::*field) {
    const auto values = per_stage.divided_bytes(key);
    for (std::size_t i = 0; i < costs.size(); ++i) costs[i].*field = values[i];
  };
  const auto output = per_stage.whole("output"), workspace = per_stage.whole("workspace");
  bytes("parameters", &StageCosts::weight_bytes);
  bytes("gradients", &StageCosts::gradient_bytes);
  bytes("gradients", &StageCosts::reduced_bytes);
  bytes("optimizer", &StageCosts::optimizer_bytes);
  bytes(model.has("version") ? "version" : "parameters", &StageCosts::version_bytes);
  bytes("activation", &StageCosts::activation_bytes);
  bytes(model.has("activation_after_input") ? "activation_after_input" : "activation",
        &StageCosts::activation_after_input_bytes);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    StageCosts& c = costs[i];
    c.output_bytes = std::llround(output[i]);
    c.forward_workspace_bytes = c.backward_workspace_bytes = std::llround(workspace[i]);
    const bool recomputes = recompute.at(i) != Recompute::none;
    const double again = recomputes ? forward[i] : 0;
    c[OpKind::forward].seconds = forward[i];
    c[OpKind::backward].seconds = backward.full[i] + again;
    c[OpKind::backward_input].seconds = backward.input[i] + again;
    c[OpKind::backward_weight].seconds = backward.weight[i];
    c.step_s = step[i];
    if (model.has("forward_backward")) c.overlap_saving_s = forward[i] + backward.full[i] - both[i];
    if (!recomputes) continue;
    // Only the stage's input is kept; the activations live while B runs.
    c.backward_workspace_bytes += c.activation_bytes;
    c.activation_bytes = i == 0 ? c.output_bytes : costs[i - 1].output_bytes;
    c.activation_after_input_bytes = c.activation_bytes;
  }
  return costs;
}

}  // namespace penstock
