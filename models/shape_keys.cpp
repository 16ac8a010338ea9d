// SPDX-License-Identifier: Apache-2.0
#include "models/shape_keys.hpp"

#include <fmt/format.h>

namespace penstock {

std::vector<std::pair<std::string, std::string>> shape_keys(const TransformerSpec& model) {
  std::vector<std::pair<std::string, std::string>> keys;
  const auto add = [&](const char* key, const auto& value) {
    keys.emplace_back(key, fmt::format("{}", value));
  };
  const auto add_unless = [&](const auto& usual, const char* key, const auto& value) {
    if (value != usual) add(key, value);
  };
  const auto add_given = [&](const char* key, const auto& value) {
    if (value) add(key, *value);
  };
  add("family", kFamilyNames[static_cast<std::size_t>(model.family)]);
  add("num_layers", model.num_layers);
  add("hidden_size", model.hidden_size);
  add("num_attention_heads", model.num_attention_heads);
  add("num_query_groups", model.num_query_groups);
  add_given("head_dim", model.head_dim);
  add("ffn_hidden_size", model.ffn_hidden_size);
  add("vocab_size", model.vocab_size);
  add("seq_length", model.seq_length);
  const LayerForm form = model.form(), usual = form_of(model.family);
  const auto add_choice = [&](const char* key, auto field, const auto& names) {
    const auto name = [&](const LayerForm& f) { return names[static_cast<std::size_t>(f.*field)]; };
    add_unless(name(usual), key, name(form));
  };
  add_unless(usual.gated_mlp, "gated_mlp", form.gated_mlp);
  add_choice("norm", &LayerForm::norm, kNormNames);
  add_unless(usual.norms, "norms", form.norms);
  add_choice("qk_norm", &LayerForm::qk_norm, kQueryKeyNormNames);
  add_choice("biases", &LayerForm::biases, kBiasesNames);
  add_choice("positions", &LayerForm::positions, kPositionsNames);
  if (model.learned_positions() > model.seq_length) add("position_rows", model.learned_positions());
  add_unless(usual.parallel_residual, "parallel_residual", form.parallel_residual);
  add_unless(usual.dropout, "dropout", form.dropout);
  add_given("sliding_window", model.sliding_window);
  add_given("full_attention_every", model.full_attention_every);
  add_unless(usual.sinks, "attention_sinks", form.sinks);
  if (model.latent) {
    const LatentAttention& l = *model.latent;
    add("latent_attention",
        fmt::format("{{q_rank: {}, kv_rank: {}, rope_dim: {}, nope_dim: {}, value_dim: {}}}",
                    l.q_rank, l.kv_rank, l.rope_dim, l.nope_dim, l.value_dim));
  }
  if (model.experts) {
    const Experts& e = *model.experts;
    add("num_experts", e.count);
    add("experts_per_token", e.top_k);
    add("expert_ffn_hidden_size", e.width);
    add_unless(0, "shared_expert_ffn_hidden_size", e.shared_width);
    add_unless(false, "shared_expert_gate", e.shared_gate);
    add_unless(false, "router_bias", e.router_bias);
    add_unless(0, "first_dense_layers", e.first_dense);
    add_unless(1, "expert_layer_every", e.every);
    add_unless(1, "expert_groups", e.groups);
    add_unless(1, "groups_per_token", e.groups_per_token);
  }
  add_unless(0, "mtp_layers", model.mtp_layers);
  add_given("extra_parameters", model.extra_parameters);
  add("tie_embeddings", model.tie_embeddings);
  add("flash_attention", model.flash_attention);
  add("precision", precision_text(model.product_types, model.compute_type.ends_with("16")
                                                           ? "mixed-" + model.compute_type
                                                           : model.compute_type));
  return keys;
}

}  // namespace penstock
