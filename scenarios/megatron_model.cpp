// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_model.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "scenarios/foreign_experts.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/optimizer_state.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/vocabularies.hpp"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <numeric>
#include <filesystem>
#include <optional>

namespace penstock {
namespace {

/// Bytes of a number, by Megatron-LM's name of its type.
double bytes_of_type(const std::string& type) {
  return type == "none" ? 0 : type == "fp8" ? 1 : type == "bf16" || type == "fp16" ? 2 : 4;
}

class ModelOfFlags {
 public:
  ModelOfFlags(ImportNotes& notes, const MegatronModelAsked& asked)
      : notes_(notes), asked_(asked) {}

  MegatronModel model() {
    std::optional<std::int64_t> length = notes_.number("seq-length", "model.seq_length");
    if (!length) length = notes_.number("encoder-seq-length", "model.seq_length");
    if (!length) notes_.ask("seq-length");
    shape_.seq_length = length.value_or(1);
    std::string out = asked_.model.empty() ? sizes() : base();
    out += fmt::format("  seq_length: {}\n  flash_attention: {}\n", length.value_or(1), flash());
    const bool bf16 = notes_.has("bf16", "model.precision: mixed-bf16");
    const bool fp16 = notes_.has("fp16", "model.precision: mixed-fp16") && !bf16;
    if (!bf16 && !fp16)
      notes_.assume("model.precision: fp32, as neither --bf16 nor --fp16 is given");
    out += fmt::format("  precision: {}\n", precision(bf16   ? "mixed-bf16"
                                                      : fp16 ? "mixed-fp16"
                                                             : "fp32"));
    out += bytes(bf16, fp16);
    return {std::move(out), shape_, layers_};
  }

 private:
  /// Returns the types of products: --fp8-format or --fp4-format asks for Transformer Engine's,
  /// --fp8-recipe says how they are scaled (megatron/core/enums.py: Fp8Recipe; delayed by default).
  std::string precision(const std::string& own) {
    bool narrow = notes_.has("fp8-format", "model.precision") &&
                  lower_case(notes_.word("fp8-format", "model.precision")) != "none";
    for (const char* early : {"fp8-hybrid", "fp8-e4m3"})
      narrow = notes_.has(early, "model.precision") || narrow;
    const bool of_4_bits = notes_.has("fp4-format", "model.precision");
    if (!narrow && !of_4_bits) return own;
    const std::string recipe = lower_case(notes_.word("fp8-recipe", "model.precision"));
    notes_.word("fp4-recipe", "model.precision");
    std::string type = of_4_bits                ? "nvfp4"
                       : recipe == "tensorwise" ? "fp8-current"
                       : recipe == "blockwise"  ? "fp8-block"
                       : recipe == "mxfp8"      ? "mxfp8"
                                                : "fp8";
    if (recipe == "custom")
      notes_.assume("model.precision: fp8 (its recipe is Python's and not read)");
    std::string more;
    const auto add = [&](std::initializer_list<const char*> flags, const std::string& text) {
      bool given = false;
      for (const char* flag : flags) given = notes_.has(flag, "model.precision") || given;
      if (given) more += ", " + text;
    };
    add({"fp8-dot-product-attention", "fp8-multi-head-attention"}, "attention: " + type);
    add({"fp8-output-proj"}, "head: " + type);
    add({"fp8-param-gather", "fp8-param", "fp8-params", "fp4-param", "fp4-param-gather"},
        "linear_weights: narrow");
    const auto first = notes_.number("num-layers-at-start-in-bf16", "model.precision");
    const auto last = notes_.number("num-layers-at-end-in-bf16", "model.precision");
    if (notes_.has("first-last-layers-bf16", "model.precision"))
      more += fmt::format(", first_wide_layers: {}, last_wide_layers: {}", first.value_or(1),
                          last.value_or(1));
    if (own == "mixed-bf16") {
      if (more.empty()) return type;
      return fmt::format("{{base: {}{}}}", type, more);
    }
    return fmt::format("{{base: {}, attention_projections: {}, mlp: {}, experts: {}{}}}", own, type,
                       type, type, more);
  }

  /// The model of --model, whatever sizes there are beside it.
  std::string base() {
    const TransformerSpec spec = load_model(asked_.model);
    layers_ = spec.num_layers;
    shape_ = spec;
    for (const char* flag : {"num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads",
                             "group-query-attention", "num-query-groups", "num-key-value-heads",
                             "kv-channels", "vocab-size", "padded-vocab-size", "pad-vocab-size-to",
                             "tokenizer-type", "tokenizer-model", "swiglu",
                             "untie-embeddings-and-output-weights", "use-checkpoint-args"})
      notes_.has(flag, "nothing: --model says it");
    const bool is_file = std::filesystem::is_regular_file(asked_.model);
    return fmt::format(
        "model:\n  base: {}\n",
        Json(is_file ? std::filesystem::absolute(asked_.model).string() : asked_.model).dump());
  }

  std::string sizes() {
    TransformerSpec& m = shape_;
    layers_ = model_size(notes_, "num-layers", "model.num_layers");
    m.num_layers = static_cast<int>(layers_);
    m.hidden_size = model_size(notes_, "hidden-size", "model.hidden_size");
    m.num_attention_heads = model_size(notes_, "num-attention-heads", "model.num_attention_heads");
    const bool gated = notes_.has("swiglu", "model.family: llama");
    m.family = asked_.bert ? Family::bert : gated ? Family::llama : Family::gpt;
    const auto given = notes_.number("ffn-hidden-size", "model.ffn_hidden_size");
    // Megatron-LM's defaults (megatron/training/arguments.py, validate_args).
    const std::int64_t dense = given.value_or(
        gated && !asked_.deepspeed ? m.hidden_size * 4 * 2 / 3 / 64 * 64 : 4 * m.hidden_size);
    if (dense == 0) notes_.ask("ffn-hidden-size");
    if (!given && dense > 0)
      notes_.assume(fmt::format(
          "model.ffn_hidden_size: {} (Megatron-LM's default, no ffn-hidden-size)", dense));
    m.ffn_hidden_size = dense;
    m.num_query_groups = groups();
    const std::string latents = latent_attention();
    m.tie_embeddings =
        !notes_.has("untie-embeddings-and-output-weights", "model.tie_embeddings: false");
    m.vocab_size = vocabulary();
    std::string out = fmt::format(
        "model:\n  family: {}\n  num_layers: {}\n  hidden_size: {}\n  ffn_hidden_size: {}\n"
        "  num_attention_heads: {}\n",
        asked_.bert ? "bert"
        : gated     ? "llama"
                    : "gpt",
        layers_, m.hidden_size, m.ffn_hidden_size, m.num_attention_heads);
    if (m.num_query_groups != m.num_attention_heads)
      out += fmt::format("  num_query_groups: {}\n", m.num_query_groups);
    out += (latents.empty() ? head_width() : latents) + unusual_layers(gated) + experts(dense);
    if (const std::int64_t further = count_of("mtp-num-layers", "model.mtp_layers"); further > 0)
      out += fmt::format("  mtp_layers: {}\n", further);
    return out +
           fmt::format("  vocab_size: {}\n  tie_embeddings: {}\n", m.vocab_size, m.tie_embeddings);
  }

  /// Megatron-DeepSpeed has no switch for it, only the number.
  std::int64_t groups() {
    const auto of_deepspeed = notes_.number("num-key-value-heads", "model.num_query_groups");
    if (of_deepspeed) return *of_deepspeed;
    const bool grouped = notes_.has("group-query-attention", "model.num_query_groups");
    const auto given = notes_.number("num-query-groups", "model.num_query_groups");
    if (given && !grouped)
      notes_.has("num-query-groups", "nothing, without --group-query-attention");
    return grouped ? given.value_or(1) : shape_.num_attention_heads;
  }

  std::string head_width() {
    const auto width = notes_.number("kv-channels", "model.head_dim");
    if (!width) return "";
    const std::int64_t usual = shape_.hidden_size / shape_.num_attention_heads;
    if (*width == usual) {
      notes_.has("kv-channels", "hidden-size / num-attention-heads");
      return "";
    }
    return fmt::format("  head_dim: {}\n", *width);
  }

  /// What of a layer is not as its family has it.
  std::string unusual_layers(bool gated) {
    std::string out;
    const auto say = [&](const char* key, const char* value) {
      out += fmt::format("  {}: {}\n", key, value);
    };
    const auto is = [&](const char* flag, const char* meaning, const char* key, const char* value) {
      if (notes_.has(flag, meaning)) say(key, value);
    };
    // Megatron-LM's defaults are those of GPT-2, whatever the MLP (megatron/training/arguments.py);
    // but who asks for a gated MLP and says nothing of these means a llama, which a line says.
    std::string silent;
    const auto means_llama = [&](bool says, const char* what) {
      if (says || !gated) return false;
      silent += (silent.empty() ? "" : ", ") + std::string(what);
      return true;
    };
    const std::string positions =
        lower_case(notes_.word("position-embedding-type", "model.positions") +
                   notes_.word("pos-emb", "model.positions"));
    const std::string norm =
        lower_case(notes_.word("normalization", "model.norm") + notes_.word("norm", "model.norm"));
    const bool rotary = positions.starts_with("ro") || positions == "yarn" ||
                        notes_.has("use-rotary-position-embeddings", "model.positions: rotary");
    const bool absent =
        positions == "none" || (positions.empty() && notes_.mentions("no-position-embedding"));
    const std::string_view place = rotary                                         ? "rotary"
                                   : absent                                       ? "none"
                                   : positions == "alibi"                         ? "alibi"
                                   : means_llama(!positions.empty(), "positions") ? "rotary"
                                                                                  : "learned";
    if (place != (gated ? "rotary" : "learned")) say("positions", place.data());
    out += position_rows(place == "learned");
    const bool rms = norm == "rmsnorm" || means_llama(!norm.empty(), "norm");
    if (rms != gated) say("norm", rms ? "rms" : "layer");
    const bool unbiased = notes_.has("disable-bias-linear", "model.biases: none");
    const bool of_qkv = notes_.has("add-qkv-bias", "model.biases: qkv");
    const bool bare = unbiased || means_llama(false, "biases");
    const std::string_view biases = !bare ? "all" : of_qkv ? "qkv" : "none";
    if (!silent.empty())
      notes_.assume(
          fmt::format("model.family: llama ({} as a llama has them; no --position-embedding-type, "
                      "--normalization or --disable-bias-linear says it)",
                      silent));
    if (biases != (gated ? "none" : "all")) say("biases", biases.data());
    out += dropout(gated) + window();
    if (shape_.latent)  // the norms of its latents, which it always has here
      notes_.has("qk-layernorm", "model.latent_attention");
    else
      is("qk-layernorm", "model.qk_norm: head", "qk_norm", "head");
    is("gpt-j-residual", "model.parallel_residual: true", "parallel_residual", "true");
    return out;
  }

  /// Of a learned table that is longer than the sequences.
  std::string position_rows(bool learned) {
    if (!learned) return "";
    const auto rows =
        parse_number<std::int64_t>(notes_.word("max-position-embeddings", "model.position_rows"));
    if (rows && *rows > shape_.seq_length) return fmt::format("  position_rows: {}\n", *rows);
    notes_.ignore("max-position-embeddings");
    return "";
  }

  /// Megatron-LM's default is 0.1 of both; a llama of ours has none unless a flag says so.
  std::string dropout(bool gated) {
    int given = 0, zero = 0;
    for (const char* flag : {"hidden-dropout", "attention-dropout"}) {
      const std::string text = notes_.word(flag, "model.dropout");
      given += text.empty() ? 0 : 1;
      zero += !text.empty() && parse_number<double>(text) == 0.0 ? 1 : 0;
    }
    if (!gated && zero == 2) return "  dropout: false\n";
    return gated && given > zero ? "  dropout: true\n" : "";
  }

  /// A window of W tokens to the left, and each token's own: --window-size W,0.
  std::string window() {
    std::string text =
        fmt::format("{}", fmt::join(notes_.words("window-size", "model.sliding_window"), ","));
    std::erase_if(text,
                  [](char c) { return c == '(' || c == ')' || c == '[' || c == ']' || c == ' '; });
    const auto left = parse_number<std::int64_t>(text.substr(0, text.find(',')));
    if (!left || *left < 0 || *left > 1'000'000 || !text.ends_with(",0")) {
      notes_.unless_one("window-size", text.starts_with("-1,") ? 1 : 2);
      return "";
    }
    std::string out = fmt::format("  sliding_window: {}\n", *left + 1);
    const std::string every = notes_.word("window-attn-skip-freq", "model.full_attention_every");
    const auto layers = parse_number<std::int64_t>(every);
    if (layers && *layers > 0 && *layers <= 1'000'000)
      out += fmt::format("  full_attention_every: {}\n", *layers);
    else if (!every.empty())
      notes_.unless_one("window-attn-skip-freq", 2);
    return out;
  }

  bool flash() {
    bool flash = false;
    for (const char* flag : {"use-flash-attn", "use-flash-attn-v1", "use-flash-attn-v2",
                             "use-flash-attn-triton", "use-flash-attn-builder"})
      flash = notes_.has(flag, "model.flash_attention: true") || flash;
    // Of Transformer Engine's kernels flash and cuDNN's fused one keep no probabilities.
    const std::string backend =
        lower_case(notes_.word("attention-backend", "model.flash_attention"));
    if (backend.ends_with("unfused") || backend == "local") return false;
    if (backend.empty() || backend == "auto") notes_.ignore("attention-backend");
    // Transformer Engine, which is the default, has it; of 2021's flags none knows it.
    const std::string implementation = notes_.word("transformer-impl", "model.flash_attention");
    if (flash || implementation == "transformer_engine") return true;
    for (const char* old : {"checkpoint-activations", "activations-checkpoint-method",
                            "model-parallel-size", "ddp-impl", "DDP-impl"})
      if (notes_.mentions(old) && !asked_.deepspeed) {
        notes_.assume(
            fmt::format("model.flash_attention: false (--{} is of a time before it)", old));
        return false;
      }
    if (asked_.deepspeed || implementation == "local" || notes_.mentions("use-legacy-models"))
      return false;
    notes_.assume(
        "model.flash_attention: true (Transformer Engine's; no --transformer-impl local)");
    return true;
  }

  /// Returns a number that may be 0 or none, which mean nothing.
  std::int64_t count_of(const char* flag, const char* key) {
    const std::int64_t count = parse_number<std::int64_t>(notes_.word(flag, "")).value_or(0);
    if (count <= 0) {
      notes_.ignore(flag);
      return 0;
    }
    return notes_.number(flag, key).value_or(0);
  }

  /// Returns the keys of latent attention, with Megatron-LM's defaults (MLATransformerConfig).
  std::string latent_attention() {
    const char* const key = "model.latent_attention";
    if (!notes_.has("multi-latent-attention", key)) return "";
    const auto size = [&](const char* flag, std::int64_t usual) {
      return notes_.number(flag, key).value_or(usual);
    };
    const LatentAttention latent{count_of("q-lora-rank", key), size("kv-lora-rank", 32),
                                 size("qk-pos-emb-head-dim", 64), size("qk-head-dim", 128),
                                 size("v-head-dim", 128)};
    shape_.latent = latent;
    shape_.num_query_groups = shape_.num_attention_heads;
    for (const char* flag : {"kv-channels", "group-query-attention", "num-query-groups"})
      notes_.has(flag, "nothing, with latent attention");
    return fmt::format(
        "  latent_attention: {{q_rank: {}, kv_rank: {}, rope_dim: {}, nope_dim: {}, value_dim: "
        "{}}}\n",
        latent.q_rank, latent.kv_rank, latent.rope_dim, latent.nope_dim, latent.value_dim);
  }

  /// Returns the keys of experts, with Megatron-LM's defaults.
  std::string experts(std::int64_t dense) {
    const std::vector<std::string> counts = notes_.words("num-experts", "model.num_experts");
    const auto count = notes_.number("num-experts", "model.num_experts");
    if (count.value_or(1) <= 1) {
      for (const char* flag : {"num-experts", "expert-interval", "topk"})
        notes_.unless_one(flag, 1);
      return "";
    }
    if (std::ranges::adjacent_find(counts, std::ranges::not_equal_to{}) != counts.end())
      for (const Leaves memory : {Leaves::more, Leaves::less})
        notes_.leave_out("layers with other numbers of experts", memory);
    Experts e;
    e.count = static_cast<int>(std::min<std::int64_t>(*count, 1'000'000));
    const auto chosen = notes_.number({"moe-router-topk", "topk"}, "model.experts_per_token");
    if (chosen && *chosen > e.count)
      notes_.fault(
          notes_.mentions("moe-router-topk") ? "moe-router-topk" : "topk",
          fmt::format("a token cannot use {} of {} experts (num-experts)", *chosen, e.count));
    e.top_k = static_cast<int>(
        std::clamp<std::int64_t>(chosen.value_or(asked_.deepspeed ? 1 : 2), 1, e.count));
    e.width = notes_.number("moe-ffn-hidden-size", "model.expert_ffn_hidden_size").value_or(dense);
    e.shared_width =
        notes_.number("moe-shared-expert-intermediate-size", "model.shared_expert_ffn_hidden_size")
            .value_or(0);
    e.shared_gate = notes_.has("moe-shared-expert-gate", "model.shared_expert_gate: true");
    std::string out =
        fmt::format("  num_experts: {}\n  experts_per_token: {}\n  expert_ffn_hidden_size: {}\n",
                    e.count, e.top_k, e.width);
    if (e.shared_width > 0)
      out += fmt::format("  shared_expert_ffn_hidden_size: {}\n", e.shared_width);
    if (e.shared_gate) out += "  shared_expert_gate: true\n";
    if (const auto groups = notes_.number("moe-router-num-groups", "model.expert_groups"))
      out +=
          fmt::format("  expert_groups: {}\n  groups_per_token: {}\n", *groups,
                      notes_.number("moe-router-group-topk", "model.groups_per_token").value_or(1));
    const char* const flag = "moe-layer-freq";
    std::string freq =
        fmt::format("{}", fmt::join(notes_.words(flag, "model.first_dense_layers"), ""));
    if (freq.empty() && asked_.deepspeed) {  // microsoft/Megatron-DeepSpeed, megatron/arguments.py
      freq = notes_.word("expert-interval", "model.expert_layer_every");
      if (freq.empty())
        notes_.assume("model.expert_layer_every: 2 (its default, no expert-interval)");
      if (freq.empty()) freq = "2";
    }
    if (!freq.empty()) {
      const auto has_experts =
          layer_pattern(freq, static_cast<int>(std::min<std::int64_t>(layers_, 100'000)));
      const auto rule = has_experts && static_cast<std::int64_t>(has_experts->size()) == layers_
                            ? expert_layers(*has_experts)
                            : std::nullopt;
      if (!rule) {
        notes_.unmodelled(flag,
                          "layers with experts are all behind the first dense ones, or every n-th");
      } else {
        e.first_dense = rule->first_dense;
        e.every = rule->every;
        if (e.first_dense > 0) out += fmt::format("  first_dense_layers: {}\n", e.first_dense);
        if (e.every > 1) out += fmt::format("  expert_layer_every: {}\n", e.every);
      }
    }
    shape_.experts = e;
    return out;
  }

  std::int64_t vocabulary() {
    const char* const key = "model.vocab_size";
    const auto padded = notes_.number({"padded-vocab-size", "pad-vocab-size-to"}, key);
    const auto given = notes_.number("vocab-size", key);
    std::vector<std::string> names;
    for (const char* flag : {"tokenizer-model", "tokenizer-name-or-path", "vocab-file",
                             "patch-tokenizer-type", "tokenizer-type"})
      if (notes_.mentions(flag)) names.push_back(notes_.word(flag, padded || given ? "" : key));
    if (padded) return *padded;
    if (given) return *given;
    for (const std::string& name : names)
      if (const auto known = vocabulary_of(name)) {
        notes_.assume(
            fmt::format("{}: {} (of the tokenizer '{}': models/tokenizers/vocabularies.yaml)", key,
                        *known, as_comment(name)));
        return *known;
      }
    notes_.ask("vocab-size", "--model config.json|NAME, which gives the sizes of the model");
    return 1;
  }

  /// What a parameter costs where it is not what the stack says.
  std::string bytes(bool bf16, bool fp16) {
    const bool mixed = bf16 || fp16;
    const bool aware = notes_.has("use-precision-aware-optimizer", "model.bytes_per_parameter");
    const auto type = [&](const char* flag) {
      const std::string name = notes_.word(flag, aware ? "model.bytes_per_parameter" : "");
      if (!aware) notes_.unless_one(flag, name.empty() || name == "fp32" ? 1 : 2);
      return aware && !name.empty() ? bytes_of_type(name) : 4;
    };
    const StackSpec stack = load_stack(asked_.stack);
    const double in_32 = mixed ? stack.gradient_bytes.value_or(4) : 4;
    const double usual = fp16 ? stack.fp16_gradient_bytes.value_or(in_32) : in_32;
    const double main_gradients = type("main-grads-dtype");
    const bool reduced_in_16 =
        notes_.has("grad-reduce-in-bf16", "model.bytes_per_parameter.gradients");
    const bool summed_in_32 = notes_.has("accumulate-allreduce-grads-in-fp32",
                                         fp16 ? "model.bytes_per_parameter.gradients" : "");
    double gradients = in_32;
    // Megatron-LM sums gradients in fp32 by itself with --bf16 alone (validate_args).
    if ((mixed && reduced_in_16) || (fp16 && !summed_in_32) || main_gradients < 4) gradients = 2;
    if (asked_.deepspeed) {  // which keeps 16 bits, and the 32 of the part that it steps
      const std::string type =
          notes_.word("grad-accum-dtype", "model.bytes_per_parameter.gradients");
      gradients = mixed && (type == "bf16" || type == "fp16") ? 2 : usual;
    }
    const double master = mixed ? type("main-params-dtype") : 0;
    const double moments = type("exp-avg-dtype") + type("exp-avg-sq-dtype");
    const double optimizer = optimizer_bytes(master, moments);
    if (gradients == usual && optimizer == (mixed ? 12 : 8)) return "";
    return fmt::format("  bytes_per_parameter: {{weights: {}, gradients: {}, optimizer: {:.4g}}}\n",
                       mixed ? 2 : 4, gradients, optimizer);
  }

  /// Master weights, and one or two moments.
  double optimizer_bytes(double master, double moments) {
    const std::string name = notes_.word("optimizer", "");
    const bool sgd = lower_case(name) == "sgd";  // --sgd-momentum is 0.9 by default
    const std::string momentum =
        sgd ? notes_.word("sgd-momentum", "model.bytes_per_parameter.optimizer") : "";
    const double of_sgd = momentum == "0" || momentum == "0.0" ? 0 : 4;
    return master + moment_bytes(notes_, {"optimizer", name, moments, of_sgd}, shape_);
  }

  ImportNotes& notes_;
  const MegatronModelAsked& asked_;
  TransformerSpec shape_;
  std::int64_t layers_ = 0;
};

}  // namespace

std::int64_t model_size(ImportNotes& notes, const char* flag, const char* key) {
  auto value = notes.number(flag, key);
  // Megatron-LM takes it for the layers where these are not said (validate_args).
  if (!value && flag == std::string_view("num-layers"))
    value = notes.number("encoder-num-layers", key);
  if (!value) notes.ask(flag, "--model config.json|NAME, which gives the sizes of the model");
  return value.value_or(1);
}

MegatronModel model_of_flags(ImportNotes& notes, const MegatronModelAsked& asked) {
  return ModelOfFlags(notes, asked).model();
}

}  // namespace penstock
