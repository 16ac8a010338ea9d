// SPDX-License-Identifier: Apache-2.0
#include "plan/search/source.hpp"

#include "base/error.hpp"
#include "base/numbers.hpp"
#include "scenarios/document.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Servers of GPUs on a switch, one NIC each; or GPUs with a link between every two.
/// Precondition: there are one or two.
std::string cluster_of(const std::vector<PlanLevel>& levels) {
  const auto rate = [](const PlanLevel& level) {
    return fmt::format("{:.0f} B/s", level.bytes_per_s);
  };
  if (levels.size() == 1)
    return fmt::format("{{devices: {}, link: {}}}", levels[0].width, rate(levels[0]));
  return fmt::format(
      "{{devices_per_node: {}, nodes: {}, intra: {{attachment: switch, bandwidth: {}}}, inter: "
      "{}}}",
      levels[0].width, levels[1].width, rate(levels[0]), rate(levels[1]));
}

Value map_of(std::vector<Value::Entry> entries) {
  Value value;
  value.kind = Value::Kind::map;
  value.entries = std::move(entries);
  return value;
}

/// The cluster with another memory of its devices.
Value with_memory(Value cluster, double bytes) {
  if (cluster.kind != Value::Kind::map) cluster = map_of({{to_value("base"), std::move(cluster)}});
  std::erase_if(cluster.entries, [](const Value::Entry& e) { return e.key.text == "memory"; });
  cluster.entries.push_back({to_value("memory"), to_value(fmt::format("{:.0f} B", bytes))});
  return cluster;
}

/// The model with another length of its samples.
Value with_seq_length(Value model, std::int64_t tokens) {
  if (model.kind != Value::Kind::map) model = map_of({{to_value("base"), std::move(model)}});
  std::erase_if(model.entries, [](const Value::Entry& e) { return e.key.text == "seq_length"; });
  model.entries.push_back({to_value("seq_length"), to_value(std::to_string(tokens))});
  return model;
}

/// A file, the name of what is shipped, or a map as scenarios have them.
Value part_of(const std::string& given, const std::string& origin) {
  std::error_code ignored;  // a long map is no possible name of a file
  if (fs::exists(given, ignored)) return to_value(fs::absolute(given).string());
  return given.starts_with('{') ? parse_document(given, origin) : to_value(given);
}

/// As a scenario without choices.
Value without_choices(Value model, Value cluster) {
  return map_of({{to_value("model"), std::move(model)}, {to_value("cluster"), std::move(cluster)}});
}

/// Precondition: it is given.
Value given_cluster(const PlanSource& source) { return part_of(*source.cluster, "--cluster"); }

/// The model of a calibration, or of a file of a model.
const Value& model_in(const Value& document) {
  const Value* model = document.find("model");
  return model == nullptr ? document : *model;
}

/// A microbatch and recomputation that was measured: without recomputation the smallest microbatch,
/// else the first row. Empty where nothing was, or it cannot be read.
std::vector<Value::Entry> profiled_choice(const Value& document) {
  const Value* rows = model_in(document).find("measured");
  if (rows == nullptr) return {};
  const auto text = [](const Value& row, const char* key, const char* otherwise) {
    const Value* value = row.find(key);
    return value == nullptr ? std::string(otherwise) : value->text;
  };
  const auto size = [&](const Value& row) {
    return parse_number<std::int64_t>(text(row, "microbatch_size", "1")).value_or(1);
  };
  const auto recomputes = [&](const Value& row) {
    return text(row, "recompute", "none") != "none";
  };
  const Value* best = nullptr;
  for (const Value& row : rows->items) {
    const bool better = best == nullptr || (recomputes(*best) && !recomputes(row)) ||
                        (recomputes(*best) == recomputes(row) && size(row) < size(*best));
    if (row.kind == Value::Kind::map && better) best = &row;
  }
  if (best == nullptr) return {};
  return {{to_value("microbatch_size"), to_value(std::to_string(size(*best)))},
          {to_value("recompute"), to_value(text(*best, "recompute", "none"))}};
}

/// A model or calibration on its cluster. Precondition: there is one.
Value named_problem(const PlanSource& source) {
  const std::string& name = source.name;
  const bool own = source.input == PlanInput::calibration && !source.cluster;
  Value model = part_of(name, "penstock plan");
  if (source.seq_length) model = with_seq_length(std::move(model), *source.seq_length);
  Value text = without_choices(std::move(model),
                               own ? part_of(name, "penstock plan") : given_cluster(source));
  if (source.stack) text.entries.push_back({to_value("stack"), part_of(*source.stack, "--stack")});
  if (!is_yaml(name) || !fs::exists(name)) return text;
  if (auto choice = profiled_choice(load_document(name)); !choice.empty())
    text.entries.push_back({to_value("pipeline"), map_of(std::move(choice))});
  return text;
}

}  // namespace

std::int64_t samples_of(std::int64_t tokens, std::int64_t tokens_per_sample) {
  if (tokens_per_sample == 0)
    throw InputError("--batch", "is in tokens, and the model's samples have no length");
  const std::int64_t samples = tokens / tokens_per_sample;
  if (tokens % tokens_per_sample == 0 && samples > 0) return samples;
  throw InputError(
      "--batch",
      fmt::format("{} tokens are no whole number of samples of {} tokens; the nearest that are: "
                  "{}{} (--batch N: samples)",
                  tokens, tokens_per_sample,
                  samples > 0 ? fmt::format("{} and ", samples * tokens_per_sample) : "",
                  (samples + 1) * tokens_per_sample));
}

void check_batch(std::int64_t samples, std::int64_t tokens_per_sample, const PlanSource& source) {
  // The largest batches that were published have 60 million tokens.
  constexpr std::int64_t kMostTokens = 256'000'000;
  if (source.batch_in_samples || source.batch_tokens || tokens_per_sample == 0) return;
  if (samples <= kMostTokens / tokens_per_sample || samples < tokens_per_sample) return;
  const std::int64_t meant = samples / tokens_per_sample;
  throw InputError(
      "--batch",
      fmt::format("{} samples of {} tokens are {:.3g} tokens per update: is the batch in tokens? "
                  "then --batch {} ({} tokens); if not: --batch '{} samples'",
                  samples, tokens_per_sample,
                  static_cast<double>(samples) * static_cast<double>(tokens_per_sample), meant,
                  meant * tokens_per_sample, samples));
}

bool is_yaml(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

std::string profile_problem(const PlanSource& source) {
  Value cluster =
      source.cluster ? given_cluster(source) : parse_document(cluster_of(source.levels), "--level");
  if (source.memory_bytes) cluster = with_memory(std::move(cluster), *source.memory_bytes);
  return to_yaml(without_choices(
      map_of({{to_value("profile"), to_value(fs::absolute(source.name).string())},
              {to_value("profile_batch"), to_value(std::to_string(source.minibatch()))}}),
      std::move(cluster)));
}

std::string model_problem(const PlanSource& source) {
  Value document = named_problem(source);
  std::vector<Value::Entry> pipeline;
  if (source.sequence_parallel)
    pipeline.push_back({to_value("sequence_parallel"), to_value("true")});
  if (source.distributed_optimizer)
    pipeline.push_back({to_value("distributed_optimizer"), to_value("true")});
  if (!pipeline.empty())
    document.entries.push_back({to_value("pipeline"), map_of(std::move(pipeline))});
  return to_yaml(document);
}

std::string first_message(const InputError& error) {
  return error.diagnostics().empty() ? error.what() : error.diagnostics().front().message;
}

PlannedScenario planned_scenario(const PlanSource& source) {
  const ScenarioTemplate given(source.name);
  try {
    return {given.resolve(source.changes)};
  } catch (const InputError& error) {
    std::vector<Override> changes = source.changes;
    for (const Override& on_one_stage : std::initializer_list<Override>{
             {"schedule", "1f1b"}, {"pipeline.stages", "1"}, {"pipeline.split", "even"}})
      changes.push_back(on_one_stage);
    try {
      return {given.resolve(changes), first_message(error)};
    } catch (const InputError&) {
      throw error;
    }
  }
}

Scenario scenario_of(const PlanSource& source) {
  if (source.input == PlanInput::scenario) return planned_scenario(source).scenario;
  return parse_scenario(to_yaml(named_problem(source)), source.origin(),
                        {{"schedule", "1f1b"},
                         {"pipeline.stages", "1"},
                         {"pipeline.width", "1"},
                         {"pipeline.microbatches", "1"}});
}

Cluster cluster_of_profile(const PlanSource& source) {
  const std::string one_second = to_yaml(without_choices(
      parse_document("{forward: 1 s, backward: 1 s}", source.name), given_cluster(source)));
  return parse_scenario(
             one_second, "--cluster",
             {{"schedule", "1f1b"}, {"pipeline.stages", "1"}, {"pipeline.microbatches", "1"}})
      .cluster;
}

}  // namespace penstock
