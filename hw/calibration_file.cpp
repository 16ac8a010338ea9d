// Requests and results of a calibration as JSON, for the program that measures on another machine.
#include "base/error.hpp"
#include "base/json_fields.hpp"
#include "base/say.hpp"
#include "hw/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr int kVersion = 1;
constexpr std::string_view kFamilyNames[] = {"gpt", "bert", "llama"};
constexpr std::string_view kPrecisions[] = {"fp32", "bf16"};
constexpr std::string_view kOptimizerNames[] = {"sgd", "adamw"};

// Field by field, both ways: one list for writing and reading. `e` visits an enum by its names.

template <class T, class V>
void each(T& m, V&& v, const TransformerSpec*) {
  v("name", m.name);
  v.e("family", m.family, kFamilyNames);
  v("num_layers", m.num_layers);
  v("hidden_size", m.hidden_size);
  v("num_attention_heads", m.num_attention_heads);
  v("num_query_groups", m.num_query_groups);
  v("ffn_hidden_size", m.ffn_hidden_size);
  v("vocab_size", m.vocab_size);
  v("seq_length", m.seq_length);
  v("tie_embeddings", m.tie_embeddings);
  v("flash_attention", m.flash_attention);
  v("compute_type", m.compute_type);
}

template <class T, class V>
void each(T& o, V&& v, const OptimizerPlan*) {
  v.e("kind", o.kind, kOptimizerNames);
  v("learning_rate", o.learning_rate);
  v("beta1", o.beta1);
  v("beta2", o.beta2);
  v("epsilon", o.epsilon);
  v("weight_decay", o.weight_decay);
}

template <class T, class V>
void each(T& r, V&& v, const CalibrationRequest*) {
  v.object("model", r.model);
  v.e("precision", r.precision, kPrecisions);
  v.object("optimizer", r.optimizer);
  v("microbatch_sizes", r.microbatch_sizes);
  v.list("recompute", r.recompute, kRecomputeNames);
  v("layer_counts", r.layer_counts);
  v("message_bytes", r.message_bytes);
  v("workers", r.workers);
  v("rotation", r.rotation);
  v("warmup", r.warmup);
  v("min_repetitions", r.min_repetitions);
  v("max_repetitions", r.max_repetitions);
  v("stage_s", r.stage_s);
  v("spread", r.spread);
  v("link", r.link);
  v("partitions", r.partitions);
  v("seed", r.seed);
}

template <class T, class V>
void each(T& s, V&& v, const Sample*) {
  v("n", s.n);
  v("median_s", s.median_s);
  v("p5_s", s.p5_s);
  v("p95_s", s.p95_s);
}

template <class T, class V>
void each(T& s, V&& v, const StageShape*) {
  v.e("role", s.role, kStageRoleNames);
  v("layers", s.layers);
  v("microbatch_size", s.microbatch_size);
  v.e("recompute", s.recompute, kRecomputeNames);
}

template <class T, class V>
void each(T& s, V&& v, const StageSizes*) {
  v("parameters", s.parameters);
  v("input_bytes", s.input_bytes);
  v("output_bytes", s.output_bytes);
  v("saved_bytes", s.saved_bytes);
  v("saved_for_weight_bytes", s.saved_for_weight_bytes);
  v("kept_bytes", s.kept_bytes);
  v("weight_needs_input", s.weight_needs_input);
  v("forward_workspace_bytes", s.forward_workspace_bytes);
  v("backward_workspace_bytes", s.backward_workspace_bytes);
}

constexpr std::string_view kKinds[] = {"F", "B", "I", "W", "REDUCE_GRAD", "STEP"};

template <class T, class V>
void each(T& m, V&& v, const OpMeasurement*) {
  v.object("stage", m.stage);
  v("load", m.load);
  v.e("op", m.kind, kKinds);
  v.object("time", m.time);
}

template <class T, class V>
void each(T& m, V&& v, const StageMeasurement*) {
  v.object("stage", m.stage);
  v.object("sizes", m.sizes);
}

template <class T, class V>
void each(T& m, V&& v, const LinkMeasurement*) {
  v.e("traffic", m.traffic, kTrafficNames);
  v("bytes", m.bytes);
  v("load", m.load);
  v.object("first", m.first);
  v.object("last", m.last);
}

template <class T, class V>
void each(T& r, V&& v, const CalibrationResult*) {
  v.object("request", r.request);
  v("backend", r.backend);
  v("machine", r.machine);
  v.objects("stages", r.stages);
  v.objects("ops", r.ops);
  v.objects("links", r.links);
}

struct CalibrationWriter {
  Json& json;

  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = value;
  }
  template <class T, class Names>
  void e(const char* key, const T& value, const Names& names) {
    json[key] = names[static_cast<std::size_t>(value)];
  }
  template <class T, class Names>
  void list(const char* key, const std::vector<T>& values, const Names& names) {
    json[key] = Json::array();
    for (const T& value : values) json[key].push_back(names[static_cast<std::size_t>(value)]);
  }
  template <class T>
  void object(const char* key, const T& value) {
    json[key] = Json::object();
    each(value, CalibrationWriter{json[key]}, &value);
  }
  template <class T>
  void objects(const char* key, const std::vector<T>& values) {
    json[key] = Json::array();
    for (const T& value : values) {
      json[key].push_back(Json::object());
      each(value, CalibrationWriter{json[key].back()}, &value);
    }
  }
};

struct CalibrationReader {
  const Json& json;

  template <class T>
  void operator()(const char* key, T& value) {
    FieldReader{json, -1e30}(key, value);
  }
  void operator()(const char* key, Description& value) {
    const Json& given = member(json, key);
    if (!given.is_object()) wrong_field(key, "an object of texts", given);
    for (const auto& [name, text] : given.items()) take(key, text, value[name]);
  }
  template <class T, class Names>
  void e(const char* key, T& value, const Names& names) {
    value = enum_of<T>(json, names, key);
  }
  template <class T, class Names>
  void list(const char* key, std::vector<T>& values, const Names& names) {
    values.clear();
    for (const Json& item : penstock::list(json, key)) values.push_back(named<T>(item, names, key));
  }
  template <class T>
  void object(const char* key, T& value) {
    each(value, CalibrationReader{member(json, key)}, &value);
  }
  template <class T>
  void objects(const char* key, std::vector<T>& values) {
    values.clear();
    for (const Json& item : penstock::list(json, key)) {
      T& value = values.emplace_back();
      each(value, CalibrationReader{item}, &value);
    }
  }
};

template <class T>
std::string write(const T& value, const char* mark) {
  Json json = {{mark, kVersion}};
  each(value, CalibrationWriter{json}, &value);
  return json.dump(1) + "\n";
}

template <class T>
T read(const std::string& text, const std::string& origin, const char* mark) {
  T value;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains(mark) || json.at(mark) != kVersion)
      throw InputError(origin, fmt::format("has no '{}': {}", mark, kVersion));
    each(value, CalibrationReader{json}, &value);
  } catch (const JsonError& error) {
    throw InputError(origin, "cannot be understood: " + without_controls(error.what()));
  } catch (const Unsound& error) {
    throw InputError(origin, "cannot be understood: " + without_controls(error.what()));
  }
  return value;
}

constexpr const char* kRequest = "penstock_calibration_request";
constexpr const char* kResult = "penstock_calibration_result";

}  // namespace

std::string to_json(const CalibrationRequest& request) { return write(request, kRequest); }
std::string to_json(const CalibrationResult& result) { return write(result, kResult); }

CalibrationRequest parse_calibration_request(const std::string& json, const std::string& origin) {
  return read<CalibrationRequest>(json, origin, kRequest);
}

CalibrationResult parse_calibration_result(const std::string& json, const std::string& origin) {
  return read<CalibrationResult>(json, origin, kResult);
}

}  // namespace penstock
