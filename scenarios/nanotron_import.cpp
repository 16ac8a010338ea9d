// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/text.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/document.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/job_division.hpp"
#include "scenarios/optimizer_state.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

/// Adds the leaves of a document, by the way to them: `parallelism.pp`.
void flatten(const Value& value, const std::string& name, std::vector<ScriptOption>& out) {
  if (value.kind == Value::Kind::map) {
    for (const Value::Entry& entry : value.entries)
      flatten(entry.value, name.empty() ? entry.key.text : name + "." + entry.key.text, out);
  } else if (value.kind == Value::Kind::list) {
    for (std::size_t i = 0; i < value.items.size(); ++i)
      flatten(value.items[i], fmt::format("{}[{}]", name, i), out);
  } else {
    out.push_back({name, {value.kind == Value::Kind::null ? "null" : value.text}, value.line});
  }
}

/// Throws InputError where its layers are no Llama's, which nanotron's configurations are unless a
/// switch says otherwise (is_NAME_config).
void refuse_other_models(const std::vector<ScriptOption>& options, ImportNotes& notes,
                         const std::string& origin) {
  constexpr std::string_view kBegin = "model.model_config.is_", kEnd = "_config";
  constexpr const char* kInstead =
      "give its config.json of Hugging Face as model: and the degrees as pipeline:";
  bool llama = false, denied = false;
  for (const ScriptOption& option : options) {
    if (!option.name.starts_with(kBegin) || !option.name.ends_with(kEnd)) continue;
    const std::string family =
        option.name.substr(kBegin.size(), option.name.size() - kBegin.size() - kEnd.size());
    const std::string value = option.values.empty() ? "" : lower_case(option.values.front());
    const bool known = family == "llama" || family == "qwen2";
    llama = llama || (known && is_true(value));
    denied = denied || (family == "llama" && value == "false");
    if (!is_true(value) || known) continue;
    throw InputError(
        origin,
        fmt::format("{}: it is {}", printable(option.name),
                    family == "mamba" ? "a state-space model, which is not modelled"
                                      : fmt::format("{}; {}",
                                                    family == "starcoder2"
                                                        ? "a StarCoder2"
                                                        : "another family than Llama and Qwen2",
                                                    kInstead)));
  }
  if (denied && !llama)
    throw InputError(origin, fmt::format("model.model_config.is_llama_config: it is false, and "
                                         "nothing says which family it is; {}",
                                         kInstead));
  if (notes.mentions("model.model_config.d_model") || notes.mentions("model.model_config.ssm_cfg"))
    throw InputError(
        origin,
        "model.model_config has d_model or ssm_cfg: it is a state-space model, which is "
        "not modelled");
}

/// Returns the sizes of its model; what they lack is asked for. `out`: the keys so far.
void add_sizes(ImportNotes& notes, const std::string& given, std::string& out) {
  const auto size = [&](const std::string& theirs, const std::string& ours, bool needed) {
    const bool said = !given.empty() && ours != "seq_length";
    const auto value = notes.number(theirs, said ? "nothing: --model says it" : "model." + ours);
    if (said) return;
    if (value) out += fmt::format("  {}: {}\n", ours, *value);
    if (!value && needed)
      notes.ask(theirs, ours == "seq_length"
                            ? ""
                            : "give --model config.json|NAME, which gives the sizes of the model");
  };
  const std::string config = "model.model_config.";
  size(config + "num_hidden_layers", "num_layers", true);
  size(config + "hidden_size", "hidden_size", true);
  size(config + "intermediate_size", "ffn_hidden_size", true);
  size(config + "num_attention_heads", "num_attention_heads", true);
  size(config + "num_key_value_heads", "num_query_groups", false);
  size(config + "head_dim", "head_dim", false);
  size(config + "vocab_size", "vocab_size", true);
  size(config + "sliding_window_size", "sliding_window", false);
  size("tokens.sequence_length", "seq_length", true);
}

/// Returns the number type and what a parameter takes where it is not what the stack says.
/// `sizes`: the keys of its model, for what an optimizer keeps.
std::string nanotron_numbers(ImportNotes& notes, const std::string& sizes) {
  const std::string type =
      notes.choice("model.dtype", "model.precision",
                   {"bfloat16", "float16", "float32", "bf16", "fp16", "fp32", "half", "float"});
  const bool single = type == "float32" || type == "fp32" || type == "float";
  const bool half = type == "float16" || type == "fp16" || type == "half";
  // Whoever adds gradients up in fp32 also keeps the fp32 weights (nanotron's gradient
  // accumulators).
  const char* const sums = "optimizer.accumulate_grad_in_fp32";
  const bool in_16 = !single && notes.denies(sums, "model.bytes_per_parameter");
  notes.has(sums, "model.precision: gradients in fp32");
  // torch.optim.SGD has no momentum there (nanotron/config/config.py, SGDOptimizerArgs).
  const std::string optimizer = "optimizer.optimizer_factory.name";
  const std::string named = notes.word(optimizer, "");
  const bool muon = lower_case(named).find("muon") != std::string::npos;
  const double adam = in_16 ? 4 : 8;
  const double moments = moment_bytes(notes, {optimizer, named, adam, 0},
                                      muon ? model_of_keys(sizes) : TransformerSpec());
  const double usual = single ? 8 : load_stack("nanotron").optimizer_bytes.value_or(12);
  std::string bytes;
  if (in_16)
    bytes = fmt::format("{{weights: 2, gradients: 2, optimizer: {:.4g}}}", moments);
  else if (moments != adam)
    bytes = fmt::format("{{optimizer: {:.4g}}}", usual - adam + moments);
  return fmt::format("  precision: {}\n{}",
                     single ? "fp32"
                     : half ? "mixed-fp16"
                            : "mixed-bf16",
                     bytes.empty() ? "" : fmt::format("  bytes_per_parameter: {}\n", bytes));
}

std::string nanotron_model(ImportNotes& notes, const std::string& given) {
  std::string out =
      given.empty() ? "model:\n  family: llama\n" : "model:\n" + model_of_name(given).keys;
  add_sizes(notes, given, out);
  const std::string config = "model.model_config.";
  const auto is_said = [&](const char* theirs, const char* ours) {
    return is_true(notes.word(config + theirs, given.empty() ? ours : "nothing: --model says it"));
  };
  const bool biases = is_said("attention_bias", "model.biases");
  const bool normed = is_said("_use_qk_norm", "model.qk_norm");
  const bool tied = is_said("tie_word_embeddings", "model.tie_embeddings");
  if (given.empty())
    out += fmt::format("{}{}  tie_embeddings: {}\n  flash_attention: true\n",
                       biases ? "  biases: qkv\n" : "", normed ? "  qk_norm: head\n" : "", tied);
  return out + nanotron_numbers(notes, out);
}

Division nanotron_division(ImportNotes& notes) {
  Division d;
  d.stages = notes.needed("parallelism.pp", "pipeline.stages");
  d.width = notes.needed("parallelism.dp", "pipeline.width");
  d.tensor = notes.needed("parallelism.tp", "pipeline.tensor");
  if (notes.choice("parallelism.pp_engine", "schedule", {"1f1b", "afab"}) == "afab")
    d.schedule = "gpipe";
  d.sequence_parallel = notes.choice("parallelism.tp_mode", "pipeline.sequence_parallel",
                                     {"ALL_REDUCE", "REDUCE_SCATTER"}) == "REDUCE_SCATTER";
  d.context = notes.number("parallelism.context_parallel_size", "pipeline.context").value_or(1);
  const char* const experts = "parallelism.expert_parallel_size";
  notes.unless_one(experts, notes.number(experts, "").value_or(1));
  const char* const slices = "model.model_config.pretraining_tp";
  notes.unless_one(slices, notes.number(slices, "").value_or(1));
  for (const char* overlap :
       {"parallelism.tp_linear_async_communication", "parallelism.tp_recompute_allgather"}) {
    const bool on = is_true(notes.word(overlap, "")) && d.tensor > 1;
    notes.unless_one(overlap, on ? 2 : 1);
  }
  if (is_true(notes.word("parallelism.recompute_layer", "pipeline.recompute")))
    d.recompute = "full";
  const std::string zero =
      notes.choice("optimizer.zero_stage", "pipeline.shard", {"0", "1", "2", "3"});
  d.distributed_optimizer = zero == "1";
  if (zero == "2") d.shard = "gradients";
  if (zero == "3") d.shard = "weights";
  d.microbatch_size = notes.needed("tokens.micro_batch_size", "pipeline.microbatch_size");
  const std::int64_t accumulated =
      notes.needed("tokens.batch_accumulation_per_replica", "pipeline.global_batch_size");
  d.batch = notes.product_of({d.microbatch_size, d.width, accumulated}, "samples");
  d.balanced = true;  // it divides by cost, the head included
  d.stack = "nanotron";
  notes.assume(
      "stack: nanotron (its launches, traffic, memory and overlap; stack: none is the neutral "
      "one)");
  return d;
}

}  // namespace

std::string scenario_of_nanotron(const std::string& text, const std::string& origin,
                                 const std::string& cluster, const std::string& given_model) {
  std::vector<ScriptOption> options;
  const Value document = parse_document(text, origin);
  flatten(document, "", options);
  if (document.find("parallelism") == nullptr && document.find("tokens") == nullptr)
    throw InputError(origin, "is no configuration of nanotron: neither 'parallelism' nor 'tokens'");
  const JobCluster where(cluster);
  ImportNotes notes(options, "", known_options("nanotron"));
  notes.expect_numbers();
  notes.ask_in_file();
  refuse_other_models(options, notes, origin);
  std::string model = nanotron_model(notes, given_model);
  const Division d = nanotron_division(notes);
  const std::string cluster_part = where.text(notes, gpus_of(d, notes), {});
  model += notes.missing("  ");
  return job_head(origin, "nanotron-config", notes) + model + division_text(d, cluster_part);
}

}  // namespace penstock
