// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/text.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/document.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/job_division.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
/// switch says otherwise.
void refuse_other_models(ImportNotes& notes, const std::string& origin) {
  for (const auto& [kind, what] : {std::pair{"mamba", "a state-space model, which is not modelled"},
                                   {"starcoder2",
                                    "a StarCoder2; give its config.json of Hugging "
                                    "Face as model: and the degrees as pipeline:"}}) {
    const std::string key = fmt::format("model.model_config.is_{}_config", kind);
    if (is_true(notes.word(key, "")))
      throw InputError(origin, fmt::format("{}: it is {}", key, what));
  }
  if (notes.mentions("model.model_config.d_model") || notes.mentions("model.model_config.ssm_cfg"))
    throw InputError(
        origin,
        "model.model_config has d_model or ssm_cfg: it is a state-space model, which is "
        "not modelled");
}

std::string nanotron_model(ImportNotes& notes, const std::string& origin,
                           const std::string& given) {
  refuse_other_models(notes, origin);
  std::string out =
      given.empty() ? "model:\n  family: llama\n" : "model:\n" + model_of_name(given).keys;
  std::vector<std::string> unsaid;
  const auto size = [&](const std::string& theirs, const std::string& ours, bool needed) {
    const bool said = !given.empty() && ours != "seq_length";
    const auto value = notes.number(theirs, said ? "nothing: --model says it" : "model." + ours);
    if (said) return;
    if (value) out += fmt::format("  {}: {}\n", ours, *value);
    if (!value && needed) unsaid.push_back(theirs);
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
  if (!unsaid.empty())
    throw InputError(origin,
                     fmt::format("it does not say {}, without which it would be another job; put "
                                 "{} into the file, or give --model config.json|NAME, which gives "
                                 "the sizes of the model",
                                 fmt::join(unsaid, ", "), unsaid.size() > 1 ? "them" : "it"));
  const auto is_said = [&](const char* theirs, const char* ours) {
    return is_true(notes.word(config + theirs, given.empty() ? ours : "nothing: --model says it"));
  };
  const bool biases = is_said("attention_bias", "model.biases");
  const bool normed = is_said("_use_qk_norm", "model.qk_norm");
  const bool tied = is_said("tie_word_embeddings", "model.tie_embeddings");
  if (given.empty())
    out += fmt::format("{}{}  tie_embeddings: {}\n  flash_attention: true\n",
                       biases ? "  biases: qkv\n" : "", normed ? "  qk_norm: head\n" : "", tied);
  const std::string type = notes.word("model.dtype", "model.precision");
  // What adds gradients up in fp32 also keeps the fp32 weights (nanotron's gradient accumulators).
  const char* const sums = "optimizer.accumulate_grad_in_fp32";
  const bool in_16 = type != "float32" && notes.denies(sums, "model.bytes_per_parameter");
  notes.has(sums, "model.precision: gradients in fp32");
  return out + fmt::format("  precision: {}\n{}",
                           type == "float32"   ? "fp32"
                           : type == "float16" ? "mixed-fp16"
                                               : "mixed-bf16",
                           in_16
                               ? "  bytes_per_parameter: {weights: 2, gradients: 2, optimizer: 4}\n"
                               : "");
}

Division nanotron_division(ImportNotes& notes) {
  Division d;
  d.stages = notes.number("parallelism.pp", "pipeline.stages").value_or(1);
  d.width = notes.number("parallelism.dp", "pipeline.width").value_or(1);
  d.tensor = notes.number("parallelism.tp", "pipeline.tensor").value_or(1);
  if (notes.word("parallelism.pp_engine", "schedule") == "afab") d.schedule = "gpipe";
  const std::string mode = notes.word("parallelism.tp_mode", "pipeline.sequence_parallel");
  d.sequence_parallel = mode == "REDUCE_SCATTER" || mode == "reduce_scatter";
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
  const std::string zero = notes.word("optimizer.zero_stage", "pipeline.shard");
  d.distributed_optimizer = zero == "1";
  if (zero == "2") d.shard = "gradients";
  if (zero == "3") d.shard = "weights";
  d.microbatch_size =
      notes.number("tokens.micro_batch_size", "pipeline.microbatch_size").value_or(1);
  const auto accumulated =
      notes.number("tokens.batch_accumulation_per_replica", "pipeline.global_batch_size");
  d.batch = notes.product_of({d.microbatch_size, d.width, accumulated.value_or(1)}, "samples");
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
  ImportNotes notes(std::move(options), "", known_options("nanotron"));
  std::string model = nanotron_model(notes, origin, given_model);
  const Division d = nanotron_division(notes);
  const std::string cluster_part = where.text(notes, gpus_of(d, notes), {});
  model += notes.missing("  ");
  return job_head(origin, "nanotron-config", notes) + model + division_text(d, cluster_part);
}

}  // namespace penstock
