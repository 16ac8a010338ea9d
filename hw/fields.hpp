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
  VISIT_FIELDS(visit, f, causal, gated_mlp, norm, norms, qk_norm, biases, positions,
               parallel_residual, dropout);
}

void each_field(Like<Experts> auto& e, auto&& visit) {
  VISIT_FIELDS(visit, e, count, top_k, width, shared_width, shared_gate, router_bias, first_dense,
               every, groups, groups_per_token);
}

void each_field(Like<TransformerSpec> auto& m, auto&& visit) {
  VISIT_FIELDS(visit, m, name, family, own_form, num_layers, hidden_size, num_attention_heads,
               num_query_groups, head_dim, ffn_hidden_size, vocab_size, seq_length, sliding_window,
               full_attention_every, experts, extra_parameters, tie_embeddings, flash_attention,
               compute_type);
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
  VISIT_FIELDS(visit, t, problem, data, file);
  visit("held_out", t.held_out, {0, 1});
  VISIT_FIELDS(visit, t, updates, warmup, decay);
  visit("final_rate", t.final_rate, {0, 1});
  VISIT_FIELDS(visit, t, clip, rescheduled, discounted, predicted, error_feedback, evaluate_every,
               evaluation_microbatches, seed);
}

}  // namespace penstock
