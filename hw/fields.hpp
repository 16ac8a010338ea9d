// What both kinds of penstock-run's files say: the model, the optimizer.
#pragma once

#include "base/json_fields.hpp"
#include "hw/run_plan.hpp"

namespace penstock {

inline constexpr std::string_view kFamilyNames[] = {"gpt", "bert", "llama"};
inline constexpr std::string_view kOptimizerNames[] = {"sgd", "adamw"};

constexpr const auto& names_of(Family) { return kFamilyNames; }
constexpr const auto& names_of(Recompute) { return kRecomputeNames; }
constexpr const auto& names_of(OptimizerPlan::Kind) { return kOptimizerNames; }

void each_field(Like<TransformerSpec> auto& m, auto&& visit) {
  visit("name", m.name);
  visit("family", m.family);
  visit("num_layers", m.num_layers);
  visit("hidden_size", m.hidden_size);
  visit("num_attention_heads", m.num_attention_heads);
  visit("num_query_groups", m.num_query_groups);
  visit("ffn_hidden_size", m.ffn_hidden_size);
  visit("vocab_size", m.vocab_size);
  visit("seq_length", m.seq_length);
  visit("tie_embeddings", m.tie_embeddings);
  visit("flash_attention", m.flash_attention);
  visit("compute_type", m.compute_type);
}

void each_field(Like<OptimizerPlan> auto& o, auto&& visit) {
  constexpr FieldRange kRange{-1e3, 1e3};
  visit("kind", o.kind);
  visit("learning_rate", o.learning_rate, kRange);
  visit("beta1", o.beta1, kRange);
  visit("beta2", o.beta2, kRange);
  visit("epsilon", o.epsilon, kRange);
  visit("weight_decay", o.weight_decay, kRange);
}

}  // namespace penstock
