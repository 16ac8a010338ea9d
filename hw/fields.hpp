// SPDX-License-Identifier: Apache-2.0
// What both kinds of penstock-run's files say: the model, the optimizer.
#pragma once

#include "base/json_fields.hpp"
#include "hw/run_plan.hpp"

namespace penstock {

constexpr const auto& names_of(Family) { return kFamilyNames; }
constexpr const auto& names_of(Norm) { return kNormNames; }
constexpr const auto& names_of(QueryKeyNorm) { return kQueryKeyNormNames; }
constexpr const auto& names_of(Biases) { return kBiasesNames; }
constexpr const auto& names_of(Positions) { return kPositionsNames; }
constexpr const auto& names_of(Recompute) { return kRecomputeNames; }
constexpr const auto& names_of(OptimizerSpec::Kind) { return kOptimizerNames; }
constexpr const auto& names_of(TrainingSpec::Problem) { return kProblemNames; }
constexpr const auto& names_of(TrainingSpec::Data) { return kDataNames; }
constexpr const auto& names_of(TrainingSpec::Decay) { return kDecayNames; }

void each_field(Like<LayerForm> auto& f, auto&& visit) {
  visit("causal", f.causal);
  visit("gated_mlp", f.gated_mlp);
  visit("norm", f.norm);
  visit("norms", f.norms);
  visit("qk_norm", f.qk_norm);
  visit("biases", f.biases);
  visit("positions", f.positions);
  visit("parallel_residual", f.parallel_residual);
  visit("dropout", f.dropout);
}

void each_field(Like<TransformerSpec> auto& m, auto&& visit) {
  visit("name", m.name);
  visit("family", m.family);
  visit("own_form", m.own_form);
  visit("num_layers", m.num_layers);
  visit("hidden_size", m.hidden_size);
  visit("num_attention_heads", m.num_attention_heads);
  visit("num_query_groups", m.num_query_groups);
  visit("head_dim", m.head_dim);
  visit("ffn_hidden_size", m.ffn_hidden_size);
  visit("vocab_size", m.vocab_size);
  visit("seq_length", m.seq_length);
  visit("sliding_window", m.sliding_window);
  visit("full_attention_every", m.full_attention_every);
  visit("extra_parameters", m.extra_parameters);
  visit("tie_embeddings", m.tie_embeddings);
  visit("flash_attention", m.flash_attention);
  visit("compute_type", m.compute_type);
}

void each_field(Like<OptimizerSpec> auto& o, auto&& visit) {
  constexpr FieldRange kRange{-1e3, 1e3};
  visit("kind", o.kind);
  visit("learning_rate", o.learning_rate, kRange);
  visit("beta1", o.beta1, kRange);
  visit("beta2", o.beta2, kRange);
  visit("epsilon", o.epsilon, kRange);
  visit("weight_decay", o.weight_decay, kRange);
}

void each_field(Like<TrainingSpec> auto& t, auto&& visit) {
  visit("problem", t.problem);
  visit("data", t.data);
  visit("file", t.file);
  visit("held_out", t.held_out, {0, 1});
  visit("updates", t.updates);
  visit("warmup", t.warmup);
  visit("decay", t.decay);
  visit("final_rate", t.final_rate, {0, 1});
  visit("clip", t.clip);
  visit("rescheduled", t.rescheduled);
  visit("discounted", t.discounted);
  visit("predicted", t.predicted);
  visit("evaluate_every", t.evaluate_every);
  visit("evaluation_microbatches", t.evaluation_microbatches);
  visit("seed", t.seed);
}

}  // namespace penstock
