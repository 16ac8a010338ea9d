// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_import.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "models/layout_string.hpp"
#include "scenarios/foreign_experts.hpp"
#include "scenarios/document.hpp"
#include "scenarios/flag_files.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/megatron_programs.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/shell_words.hpp"
#include "scenarios/vocabularies.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <cctype>
#include <filesystem>
#include <optional>

namespace penstock {
namespace {

/// Bytes of a number, by Megatron-LM's name of its type.
double bytes_of_type(const std::string& type) {
  return type == "fp8" ? 1 : type == "bf16" || type == "fp16" ? 2 : 4;
}

class Import : public ImportNotes {
 public:
  explicit Import(MegatronJob job)
      : ImportNotes(std::move(job.options), job.is_script ? "--" : "", known_options("megatron")),
        origin_(job.origin),
        programs_(std::move(job.programs)),
        cluster_(job.cluster),
        given_model_(job.model),
        deepspeed_(job.by_deepspeed || mentions("deepspeed") || mentions("deepspeed-config") ||
                   mentions("zero-stage")),
        stack_(deepspeed_ ? "megatron-deepspeed" : "megatron") {
    for (std::string& note : job.notes) assume(std::move(note));
  }

  std::string scenario() {
    refuse_other_models(programs_, *this, origin_);
    bert_ = trains_bert(programs_, *this);
    std::string model_part = model();  // first: it counts the layers
    const std::string other_parts = rest() + routing();
    model_part += missing("  ");
    const std::string head = ImportNotes::head(origin_);
    if (!errors_.empty()) throw InputError(std::move(errors_));
    return fmt::format("# {} by `penstock import megatron-args`\n{}{}{}", as_comment(origin_), head,
                       model_part, other_parts);
  }

 private:
  /// Adds an error: what Megatron-LM itself would not start.
  void refuse_job(const std::string& why) {
    errors_.push_back({{origin_, 0, 0}, why + ", which Megatron-LM refuses", "", 1, 0});
  }

  std::int64_t size(const char* flag, const char* key) {
    const auto value = number(flag, key);
    if (!value) ask(flag, "--model config.json|NAME, which gives the sizes of the model");
    return value.value_or(1);
  }

  std::string model() {
    std::optional<std::int64_t> length = number("seq-length", "model.seq_length");
    if (!length) length = number("encoder-seq-length", "model.seq_length");
    if (!length) ask("seq-length");
    shape_.seq_length = length.value_or(1);
    std::string out = given_model_.empty() ? sizes() : base();
    out += fmt::format("  seq_length: {}\n  flash_attention: {}\n", length.value_or(1), flash());
    const bool bf16 = has("bf16", "model.precision: mixed-bf16");
    const bool fp16 = has("fp16", "model.precision: mixed-fp16") && !bf16;
    if (!bf16 && !fp16) assume("model.precision: fp32, as neither --bf16 nor --fp16 is given");
    out += fmt::format("  precision: {}\n", precision(bf16   ? "mixed-bf16"
                                                      : fp16 ? "mixed-fp16"
                                                             : "fp32"));
    return out + bytes(bf16, fp16);
  }

  /// Returns the types of products: --fp8-format or --fp4-format asks for Transformer Engine's,
  /// --fp8-recipe says how they are scaled (megatron/core/enums.py: Fp8Recipe; delayed by default).
  std::string precision(const std::string& own) {
    bool narrow =
        has("fp8-format", "model.precision") && word("fp8-format", "model.precision") != "none";
    for (const char* early : {"fp8-hybrid", "fp8-e4m3"})
      narrow = has(early, "model.precision") || narrow;
    const bool of_4_bits = has("fp4-format", "model.precision");
    if (!narrow && !of_4_bits) return own;
    const std::string recipe = lower_case(word("fp8-recipe", "model.precision"));
    word("fp4-recipe", "model.precision");
    std::string type = of_4_bits                ? "nvfp4"
                       : recipe == "tensorwise" ? "fp8-current"
                       : recipe == "blockwise"  ? "fp8-block"
                       : recipe == "mxfp8"      ? "mxfp8"
                                                : "fp8";
    if (recipe == "custom") assume("model.precision: fp8 (its recipe is Python's and not read)");
    std::string more;
    const auto add = [&](std::initializer_list<const char*> flags, const std::string& text) {
      bool given = false;
      for (const char* flag : flags) given = has(flag, "model.precision") || given;
      if (given) more += ", " + text;
    };
    add({"fp8-dot-product-attention", "fp8-multi-head-attention"}, "attention: " + type);
    add({"fp8-output-proj"}, "head: " + type);
    add({"fp8-param-gather", "fp8-param", "fp8-params", "fp4-param", "fp4-param-gather"},
        "linear_weights: narrow");
    const auto first = number("num-layers-at-start-in-bf16", "model.precision");
    const auto last = number("num-layers-at-end-in-bf16", "model.precision");
    if (has("first-last-layers-bf16", "model.precision"))
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
    const TransformerSpec spec = load_model(given_model_);
    layers_ = spec.num_layers;
    shape_ = spec;
    for (const char* flag : {"num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads",
                             "group-query-attention", "num-query-groups", "num-key-value-heads",
                             "kv-channels", "vocab-size", "padded-vocab-size", "pad-vocab-size-to",
                             "tokenizer-type", "tokenizer-model", "swiglu",
                             "untie-embeddings-and-output-weights", "use-checkpoint-args"})
      has(flag, "nothing: --model says it");
    const bool is_file = std::filesystem::is_regular_file(given_model_);
    return fmt::format(
        "model:\n  base: {}\n",
        Json(is_file ? std::filesystem::absolute(given_model_).string() : given_model_).dump());
  }

  std::string sizes() {
    TransformerSpec& m = shape_;
    layers_ = size("num-layers", "model.num_layers");
    m.num_layers = static_cast<int>(layers_);
    m.hidden_size = size("hidden-size", "model.hidden_size");
    m.num_attention_heads = size("num-attention-heads", "model.num_attention_heads");
    const bool gated = has("swiglu", "model.family: llama");
    m.family = bert_ ? Family::bert : gated ? Family::llama : Family::gpt;
    const auto given = number("ffn-hidden-size", "model.ffn_hidden_size");
    // Megatron-LM's defaults (megatron/training/arguments.py, validate_args).
    const std::int64_t dense = given.value_or(
        gated && !deepspeed_ ? m.hidden_size * 4 * 2 / 3 / 64 * 64 : 4 * m.hidden_size);
    if (dense == 0) ask("ffn-hidden-size");
    if (!given && dense > 0)
      assume(fmt::format("model.ffn_hidden_size: {} (Megatron-LM's default, no ffn-hidden-size)",
                         dense));
    m.ffn_hidden_size = dense;
    m.num_query_groups = groups();
    const std::string latents = latent_attention();
    m.tie_embeddings = !has("untie-embeddings-and-output-weights", "model.tie_embeddings: false");
    m.vocab_size = vocabulary();
    std::string out = fmt::format(
        "model:\n  family: {}\n  num_layers: {}\n  hidden_size: {}\n  ffn_hidden_size: {}\n"
        "  num_attention_heads: {}\n",
        bert_   ? "bert"
        : gated ? "llama"
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
    const auto of_deepspeed = number("num-key-value-heads", "model.num_query_groups");
    if (of_deepspeed) return *of_deepspeed;
    const bool grouped = has("group-query-attention", "model.num_query_groups");
    const auto given = number("num-query-groups", "model.num_query_groups");
    if (given && !grouped) has("num-query-groups", "nothing, without --group-query-attention");
    return grouped ? given.value_or(1) : shape_.num_attention_heads;
  }

  std::string head_width() {
    const auto width = number("kv-channels", "model.head_dim");
    if (!width) return "";
    const std::int64_t usual = shape_.hidden_size / shape_.num_attention_heads;
    if (*width == usual) {
      has("kv-channels", "hidden-size / num-attention-heads");
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
      if (has(flag, meaning)) say(key, value);
    };
    // Megatron-LM's defaults are those of GPT-2, whatever the MLP (megatron/training/arguments.py);
    // but who asks for a gated MLP and says nothing of these means a llama, which a line says.
    std::string silent;
    const auto means_llama = [&](bool says, const char* what) {
      if (says || !gated) return false;
      silent += (silent.empty() ? "" : ", ") + std::string(what);
      return true;
    };
    const std::string positions = lower_case(word("position-embedding-type", "model.positions") +
                                             word("pos-emb", "model.positions"));
    const std::string norm =
        lower_case(word("normalization", "model.norm") + word("norm", "model.norm"));
    const bool rotary = positions.starts_with("ro") || positions == "yarn" ||
                        has("use-rotary-position-embeddings", "model.positions: rotary");
    const bool absent =
        positions == "none" || (positions.empty() && mentions("no-position-embedding"));
    const std::string_view place = rotary                                         ? "rotary"
                                   : absent                                       ? "none"
                                   : positions == "alibi"                         ? "alibi"
                                   : means_llama(!positions.empty(), "positions") ? "rotary"
                                                                                  : "learned";
    if (place != (gated ? "rotary" : "learned")) say("positions", place.data());
    out += position_rows(place == "learned");
    const bool rms = norm == "rmsnorm" || means_llama(!norm.empty(), "norm");
    if (rms != gated) say("norm", rms ? "rms" : "layer");
    const bool unbiased = has("disable-bias-linear", "model.biases: none");
    const bool of_qkv = has("add-qkv-bias", "model.biases: qkv");
    const bool bare = unbiased || means_llama(false, "biases");
    const std::string_view biases = !bare ? "all" : of_qkv ? "qkv" : "none";
    if (!silent.empty())
      assume(
          fmt::format("model.family: llama ({} as a llama has them; no --position-embedding-type, "
                      "--normalization or --disable-bias-linear says it)",
                      silent));
    if (biases != (gated ? "none" : "all")) say("biases", biases.data());
    out += dropout(gated) + window();
    if (shape_.latent)  // the norms of its latents, which it always has here
      has("qk-layernorm", "model.latent_attention");
    else
      is("qk-layernorm", "model.qk_norm: head", "qk_norm", "head");
    is("gpt-j-residual", "model.parallel_residual: true", "parallel_residual", "true");
    return out;
  }

  /// Of a learned table that is longer than the sequences.
  std::string position_rows(bool learned) {
    if (!learned) return "";
    const auto rows =
        parse_number<std::int64_t>(word("max-position-embeddings", "model.position_rows"));
    if (rows && *rows > shape_.seq_length) return fmt::format("  position_rows: {}\n", *rows);
    ignore("max-position-embeddings");
    return "";
  }

  /// Megatron-LM's default is 0.1 of both; a llama of ours has none unless a flag says so.
  std::string dropout(bool gated) {
    int given = 0, zero = 0;
    for (const char* flag : {"hidden-dropout", "attention-dropout"}) {
      const std::string text = word(flag, "model.dropout");
      given += text.empty() ? 0 : 1;
      zero += !text.empty() && parse_number<double>(text) == 0.0 ? 1 : 0;
    }
    if (!gated && zero == 2) return "  dropout: false\n";
    return gated && given > zero ? "  dropout: true\n" : "";
  }

  /// A window of W tokens to the left, and each token's own: --window-size W,0.
  std::string window() {
    std::string text =
        fmt::format("{}", fmt::join(words("window-size", "model.sliding_window"), ","));
    std::erase_if(text,
                  [](char c) { return c == '(' || c == ')' || c == '[' || c == ']' || c == ' '; });
    const auto left = parse_number<std::int64_t>(text.substr(0, text.find(',')));
    if (!left || *left < 0 || *left > 1'000'000 || !text.ends_with(",0")) {
      unless_one("window-size", text.starts_with("-1,") ? 1 : 2);
      return "";
    }
    std::string out = fmt::format("  sliding_window: {}\n", *left + 1);
    const std::string every = word("window-attn-skip-freq", "model.full_attention_every");
    const auto layers = parse_number<std::int64_t>(every);
    if (layers && *layers > 0 && *layers <= 1'000'000)
      out += fmt::format("  full_attention_every: {}\n", *layers);
    else if (!every.empty())
      unless_one("window-attn-skip-freq", 2);
    return out;
  }

  bool flash() {
    bool flash = false;
    for (const char* flag : {"use-flash-attn", "use-flash-attn-v1", "use-flash-attn-v2",
                             "use-flash-attn-triton", "use-flash-attn-builder"})
      flash = has(flag, "model.flash_attention: true") || flash;
    // Of Transformer Engine's kernels flash and cuDNN's fused one keep no probabilities.
    const std::string backend = lower_case(word("attention-backend", "model.flash_attention"));
    if (backend.ends_with("unfused") || backend == "local") return false;
    if (backend.empty() || backend == "auto") ignore("attention-backend");
    // Transformer Engine, which is the default, has it; of 2021's flags none knows it.
    const std::string implementation = word("transformer-impl", "model.flash_attention");
    if (flash || implementation == "transformer_engine") return true;
    for (const char* old : {"checkpoint-activations", "activations-checkpoint-method",
                            "model-parallel-size", "ddp-impl", "DDP-impl"})
      if (mentions(old) && !deepspeed_) {
        assume(fmt::format("model.flash_attention: false (--{} is of a time before it)", old));
        return false;
      }
    if (deepspeed_ || implementation == "local" || mentions("use-legacy-models")) return false;
    assume("model.flash_attention: true (Transformer Engine's; no --transformer-impl local)");
    return true;
  }

  /// Returns a number that may be 0 or none, which mean nothing.
  std::int64_t count_of(const char* flag, const char* key) {
    const std::int64_t count = parse_number<std::int64_t>(word(flag, "")).value_or(0);
    if (count <= 0) {
      ignore(flag);
      return 0;
    }
    return number(flag, key).value_or(0);
  }

  /// Returns the keys of latent attention, with Megatron-LM's defaults (MLATransformerConfig).
  std::string latent_attention() {
    const char* const key = "model.latent_attention";
    if (!has("multi-latent-attention", key)) return "";
    const auto size = [&](const char* flag, std::int64_t usual) {
      return number(flag, key).value_or(usual);
    };
    const LatentAttention latent{count_of("q-lora-rank", key), size("kv-lora-rank", 32),
                                 size("qk-pos-emb-head-dim", 64), size("qk-head-dim", 128),
                                 size("v-head-dim", 128)};
    shape_.latent = latent;
    shape_.num_query_groups = shape_.num_attention_heads;
    for (const char* flag : {"kv-channels", "group-query-attention", "num-query-groups"})
      has(flag, "nothing, with latent attention");
    return fmt::format(
        "  latent_attention: {{q_rank: {}, kv_rank: {}, rope_dim: {}, nope_dim: {}, value_dim: "
        "{}}}\n",
        latent.q_rank, latent.kv_rank, latent.rope_dim, latent.nope_dim, latent.value_dim);
  }

  /// Returns the keys of experts, with Megatron-LM's defaults.
  std::string experts(std::int64_t dense) {
    const std::vector<std::string> counts = words("num-experts", "model.num_experts");
    const auto count = number("num-experts", "model.num_experts");
    if (count.value_or(1) <= 1) {
      for (const char* flag : {"num-experts", "expert-interval", "topk"}) unless_one(flag, 1);
      return "";
    }
    if (std::ranges::adjacent_find(counts, std::ranges::not_equal_to{}) != counts.end())
      for (const Leaves memory : {Leaves::more, Leaves::less})
        leave_out("layers with other numbers of experts", memory);
    Experts e;
    e.count = static_cast<int>(std::min<std::int64_t>(*count, 1'000'000));
    e.top_k = static_cast<int>(std::clamp<std::int64_t>(
        number({"moe-router-topk", "topk"}, "model.experts_per_token").value_or(deepspeed_ ? 1 : 2),
        1, e.count));
    e.width = number("moe-ffn-hidden-size", "model.expert_ffn_hidden_size").value_or(dense);
    e.shared_width =
        number("moe-shared-expert-intermediate-size", "model.shared_expert_ffn_hidden_size")
            .value_or(0);
    e.shared_gate = has("moe-shared-expert-gate", "model.shared_expert_gate: true");
    std::string out =
        fmt::format("  num_experts: {}\n  experts_per_token: {}\n  expert_ffn_hidden_size: {}\n",
                    e.count, e.top_k, e.width);
    if (e.shared_width > 0)
      out += fmt::format("  shared_expert_ffn_hidden_size: {}\n", e.shared_width);
    if (e.shared_gate) out += "  shared_expert_gate: true\n";
    if (const auto groups = number("moe-router-num-groups", "model.expert_groups"))
      out += fmt::format("  expert_groups: {}\n  groups_per_token: {}\n", *groups,
                         number("moe-router-group-topk", "model.groups_per_token").value_or(1));
    const char* const flag = "moe-layer-freq";
    std::string freq = fmt::format("{}", fmt::join(words(flag, "model.first_dense_layers"), ""));
    if (freq.empty() && deepspeed_) {  // microsoft/Megatron-DeepSpeed, megatron/arguments.py
      freq = word("expert-interval", "model.expert_layer_every");
      if (freq.empty()) assume("model.expert_layer_every: 2 (its default, no expert-interval)");
      if (freq.empty()) freq = "2";
    }
    if (!freq.empty()) {
      const auto has_experts =
          layer_pattern(freq, static_cast<int>(std::min<std::int64_t>(layers_, 100'000)));
      const auto rule = has_experts && static_cast<std::int64_t>(has_experts->size()) == layers_
                            ? expert_layers(*has_experts)
                            : std::nullopt;
      if (!rule) {
        unmodelled(flag, "layers with experts are all behind the first dense ones, or every n-th");
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
    const auto padded = number({"padded-vocab-size", "pad-vocab-size-to"}, key);
    const auto given = number("vocab-size", key);
    std::vector<std::string> names;
    for (const char* flag : {"tokenizer-model", "tokenizer-name-or-path", "vocab-file",
                             "patch-tokenizer-type", "tokenizer-type"})
      if (mentions(flag)) names.push_back(word(flag, padded || given ? "" : key));
    if (padded) return *padded;
    if (given) return *given;
    for (const std::string& name : names)
      if (const auto known = vocabulary_of(name)) {
        assume(fmt::format("{}: {} (of the tokenizer '{}': models/tokenizers/vocabularies.yaml)",
                           key, *known, as_comment(name)));
        return *known;
      }
    ask("vocab-size", "--model config.json|NAME, which gives the sizes of the model");
    return 1;
  }

  /// What a parameter costs where it is not what the stack says.
  std::string bytes(bool bf16, bool fp16) {
    const bool mixed = bf16 || fp16;
    const bool aware = has("use-precision-aware-optimizer", "model.bytes_per_parameter");
    const auto type = [&](const char* flag) {
      const std::string name = word(flag, aware ? "model.bytes_per_parameter" : "");
      if (!aware) unless_one(flag, name.empty() || name == "fp32" ? 1 : 2);
      return aware && !name.empty() ? bytes_of_type(name) : 4;
    };
    const StackSpec stack = load_stack(stack_);
    const double in_32 = mixed ? stack.gradient_bytes.value_or(4) : 4;
    const double usual = fp16 ? stack.fp16_gradient_bytes.value_or(in_32) : in_32;
    const double main_gradients = type("main-grads-dtype");
    const bool reduced_in_16 = has("grad-reduce-in-bf16", "model.bytes_per_parameter.gradients");
    const bool summed_in_32 = has("accumulate-allreduce-grads-in-fp32",
                                  fp16 ? "model.bytes_per_parameter.gradients" : "");
    double gradients = in_32;
    // Megatron-LM sums gradients in fp32 by itself with --bf16 alone (validate_args).
    if ((mixed && reduced_in_16) || (fp16 && !summed_in_32) || main_gradients < 4) gradients = 2;
    if (deepspeed_) {  // which keeps 16 bits, and the 32 of the part that it steps
      const std::string type = word("grad-accum-dtype", "model.bytes_per_parameter.gradients");
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
    const std::string name = lower_case(word("optimizer", ""));
    if (name.empty() || name == "adam" || name == "adamw" || name.ends_with("fused_adam") ||
        name == "fusedadam" || name == "cpu_adam") {
      ignore("optimizer");
      return master + moments;
    }
    const char* const key = "model.bytes_per_parameter.optimizer";
    if (name == "sgd") {  // --sgd-momentum is 0.9 by default
      has("optimizer", key);
      const std::string momentum = word("sgd-momentum", key);
      return master + (momentum == "0" || momentum == "0.0" ? 0 : 4);
    }
    if (name == "lion") {  // Chen et al., arXiv:2302.06675: one momentum
      has("optimizer", key);
      return master + 4;
    }
    if (name == "muon" || name == "dist_muon") {
      // Of matrices in layers one momentum, of all others Adam's two moments (Liu et al.,
      // arXiv:2502.16982, section 2.1).
      has("optimizer", key);
      const double matrices =
          static_cast<double>(layers_) * static_cast<double>(shape_.layer_matrix_parameters());
      const double ends = (shape_.tie_embeddings ? 1 : 2) * static_cast<double>(shape_.vocab_size) *
                          static_cast<double>(shape_.hidden_size);
      const double share = matrices / (matrices + ends);
      assume(
          fmt::format("{}: Muon's momentum for {:.1f} % of the parameters, the matrices of "
                      "layers, Adam's two moments for the others: their mean",
                      key, 100 * share));
      return master + moments - 4 * share;
    }
    unmodelled("optimizer", "its state is taken for Adam's");
    leave_out(fmt::format("the state of {}", name), Leaves::more);
    leave_out(fmt::format("the state of {}", name), Leaves::less);
    return master + moments;
  }

  std::string schedule_of(std::int64_t stages, bool interleaved) {
    const bool zero_bubble = has("enable-zbh1-pipeline", "schedule: zb-h1") && stages > 1;
    std::string out = fmt::format("schedule: {}\n", interleaved   ? "interleaved-1f1b"
                                                    : zero_bubble ? "zb-h1"
                                                                  : "1f1b");
    // Without chunks Megatron-LM sends and receives together and waits for both.
    out += fmt::format("transfers: {}\n", stages > 1 && !interleaved ? "coupled" : "overlapped");
    if (interleaved)
      unmodelled("no-overlap-p2p-communication",
                 "messages between interleaved stages overlap computation here: too fast");
    else
      has("no-overlap-p2p-communication", "transfers: coupled");
    return out;
  }

  std::string batch_of(std::int64_t micro, std::int64_t width) {
    const auto batch = number("global-batch-size", "pipeline.global_batch_size");
    const auto steps =
        number("gradient-accumulation-steps", "microbatches of a replica in an update");
    const std::string out =
        fmt::format("  global_batch_size: {}\n",
                    batch ? *batch : product_of({micro, width, steps.value_or(1)}, "samples"));
    if (!batch && !steps)
      assume(
          "pipeline.global_batch_size: one microbatch per replica and update (no "
          "--global-batch-size: Megatron-LM's default)");
    return out;
  }

  /// Of gradients over the GPUs that share a stage's weights.
  std::string reduction_of(std::int64_t sharers, bool divided_optimizer) {
    const bool given =
        has("overlap-grad-reduce", sharers > 1 ? "pipeline.reduction.overlap: backward"
                                               : "nothing, with a single replica");
    const bool late = has("overlap-param-gather",
                          divided_optimizer && sharers > 1
                              ? "pipeline.reduction.gather: first-forward"
                              : "nothing, where replicas do not divide the optimizer alone");
    return sharers > 1
               ? fmt::format("  reduction: {{overlap: {}{}}}\n", given ? "backward" : "none",
                             late && divided_optimizer ? ", gather: first-forward" : "")
               : "";
  }

  /// Returns the key of the GPUs of an instance of the distributed optimizer, of which several hold
  /// all of its states.
  std::string shard_group_of(std::int64_t sharers, int zero) {
    const std::int64_t instances =
        number("num-distributed-optimizer-instances", "pipeline.shard_group").value_or(1);
    if (zero == 0 || instances <= 1) return "";
    if (sharers % instances != 0) {
      unmodelled("num-distributed-optimizer-instances",
                 fmt::format("{} replicas cannot be divided so: they are one instance", sharers));
      return "";
    }
    return fmt::format("  shard_group: {}\n", sharers / instances);
  }

  /// Returns how many tokens an expert takes, where that is limited.
  std::string routing() {
    if (!shape_.experts) return "";
    const char* const flag = "moe-expert-capacity-factor";
    const std::string text = word(flag, "routing.capacity_factor");
    const bool pads = has("moe-pad-expert-input-to-capacity", "routing.pad_to_capacity: true");
    if (text.empty()) {
      if (pads)
        refuse_job("--moe-pad-expert-input-to-capacity without --moe-expert-capacity-factor");
      return "";
    }
    const auto factor = parse_number<double>(text);
    if (!factor) unreadable(flag);
    if (!factor || *factor <= 0) return "";  // less than 0: none is dropped
    return fmt::format("routing: {{capacity_factor: {:g}{}}}\n", *factor,
                       pads ? ", pad_to_capacity: true" : "");
  }

  /// Returns how GPUs divide experts and exchange tokens. `overlaps`: passes can run together.
  std::string divided_experts(std::int64_t expert, std::int64_t expert_tensor, std::int64_t tensor,
                              bool overlaps) {
    std::string out;
    if (expert > 1) out += fmt::format("  expert: {}\n", expert);
    if (expert_tensor != tensor) out += fmt::format("  expert_tensor: {}\n", expert_tensor);
    const bool deep = has("moe-enable-deepep", "pipeline.expert_exchange: once-per-node");
    const std::string how = word("moe-token-dispatcher-type", "pipeline.expert_exchange");
    const std::string backend =
        word("moe-flex-dispatcher-backend", "pipeline.expert_exchange: once-per-node");
    if (expert > 1 && !deep && backend.empty() && (how.empty() || how == "allgather"))
      assume(
          "pipeline.expert_exchange: all-to-all (Megatron-LM's allgather of tokens is not "
          "modelled)");
    if (deep || how == "flex" || !backend.empty()) out += "  expert_exchange: once-per-node\n";
    if (has("overlap-moe-expert-parallel-comm",
            overlaps ? "pipeline.expert_overlap: true" : "nothing, without virtual stages") &&
        overlaps)
      out += "  expert_overlap: true\n";
    return out;
  }

  std::string rest() {
    const std::int64_t tensor =
        number({"tensor-model-parallel-size", "model-parallel-size"}, "pipeline.tensor")
            .value_or(1);
    std::int64_t stages = number("pipeline-model-parallel-size", "pipeline.stages").value_or(1);
    if (has("no-pipeline-parallel", "pipeline.stages: 1")) stages = 1;
    const std::int64_t context = number("context-parallel-size", "pipeline.context").value_or(1);
    // One for all layers, or one for each.
    const std::vector<std::string> rings = words("cp-comm-type", "");
    const bool alike =
        std::ranges::adjacent_find(rings, std::ranges::not_equal_to{}) == rings.end();
    const std::string ring = alike && !rings.empty() ? rings.front() : "";
    const bool known = ring.starts_with("all") || ring == "a2a";
    unless_one("cp-comm-type", context == 1 || ring == "p2p" || known ? 1 : 2);
    const std::int64_t chunks = chunks_of(stages);
    const std::int64_t micro = needed("micro-batch-size", "pipeline.microbatch_size");
    const std::int64_t expert =
        shape_.experts
            ? number({"expert-model-parallel-size", "moe-expert-parallel-size"}, "pipeline.expert")
                  .value_or(1)
            : 1;
    const std::int64_t position = product_of({tensor, context}, "GPUs");
    const std::int64_t expert_tensor =
        shape_.experts
            ? number("expert-tensor-parallel-size", "pipeline.expert_tensor").value_or(tensor)
            : 1;
    const std::int64_t least =
        shape_.experts ? std::lcm(product_of({expert, expert_tensor}, "GPUs"), position) / position
                       : 1;
    const std::optional<std::int64_t> told_width =
        width_of(product_of({position, stages}, "GPUs"), least);
    const std::int64_t width = told_width.value_or(least);
    const std::int64_t sharers = width * context;
    const bool said_sequence =
        has("sequence-parallel", tensor > 1 ? "pipeline.sequence_parallel: true"
                                            : "nothing, without tensor parallelism");
    const bool sequence = said_sequence || (tensor > 1 && shape_.experts.has_value());
    if (sequence && !said_sequence)
      assume("pipeline.sequence_parallel: true (experts with tensor parallelism need it)");
    int zero =
        sharding(has("use-distributed-optimizer", "pipeline.distributed_optimizer: true") ? 1 : 0);
    if (zero == 0 && sharers > 1 && deepspeed_ && mentions("zero-stage") && mentions("bf16")) {
      zero = 1;  // deepspeed/runtime/bf16_optimizer.py
      assume(
          "pipeline.distributed_optimizer: true (DeepSpeed's optimizer for bf16 divides its state "
          "among replicas without ZeRO, too)");
    }
    for (const char* flag : {"zero-stage", "use-torch-fsdp2"}) {
      if (stages == 1 || zero < 2 || !mentions(flag)) continue;
      unmodelled(flag, "the framework refuses it with pipeline stages: ZeRO-1 is predicted");
      zero = 1;
    }
    const bool dividing = tensor > 1 && !sequence;
    std::string out = fmt::format(
        "cluster: {}\nstack: {}\n",
        cluster_.text(*this, product_of({tensor, context, stages, width}, "GPUs"), per_node_),
        stack_);
    assume(
        fmt::format("stack: {} (its launches, traffic, memory and overlap; stack: none is the "
                    "neutral one)",
                    stack_));
    const bool interleaved = chunks > 1;
    out += schedule_of(stages, interleaved);
    out += fmt::format("pipeline:\n  stages: {}\n", stages);
    if (interleaved) out += fmt::format("  chunks: {}\n", chunks);
    if (const auto group = number({"microbatch-group-size-per-virtual-pipeline-stage",
                                   "microbatch-group-size-per-vp-stage"},
                                  "pipeline.group");
        group && interleaved)
      out += fmt::format("  group: {}\n", *group);
    out += fmt::format("  width: {}\n", width);
    if (tensor > 1) out += fmt::format("  tensor: {}\n", tensor);
    if (context > 1) out += fmt::format("  context: {}\n", context);
    if (context > 1 && known)
      out += fmt::format("  context_exchange: {}\n", ring == "a2a" ? "all-to-all" : "all-gather");
    if (sequence && tensor > 1) out += "  sequence_parallel: true\n";
    if (has("tp-comm-overlap", sequence && tensor > 1 ? "pipeline.tensor_overlap: true"
                                                      : "nothing, without sequence parallelism") &&
        sequence && tensor > 1)
      out += "  tensor_overlap: true\n";
    if (shape_.experts)
      out += divided_experts(expert, expert_tensor, tensor, interleaved || stages == 1);
    if (dividing && has("scatter-gather-tensors-in-pipeline", "pipeline.transfers_divided: true"))
      out += "  transfers_divided: true\n";
    if (zero == 1) out += "  distributed_optimizer: true\n";
    out += shard_group_of(sharers, zero);
    if (zero > 1) out += fmt::format("  shard: {}\n", zero == 2 ? "gradients" : "weights");
    const bool kept = has("torch-fsdp2-no-reshard-after-forward", "pipeline.reshard_after_forward");
    if (zero == 3 && (kept || stages > 1))  // Megatron-FSDP gathers in each pass of a pipeline, too
      out += fmt::format("  reshard_after_forward: {}\n", kept ? "never" : "always");
    out += fmt::format("  microbatch_size: {}\n", micro);
    out += batch_of(micro, width);
    out += recomputation() + split(stages * chunks, chunks);
    if (has("use-tp-pp-dp-mapping", "pipeline.rank_order: pipeline-first"))
      out += "  rank_order: pipeline-first\n";
    return out + reduction_of(sharers, zero == 1 || zero == 2);
  }

  /// Returns the stage of ZeRO, 0 to 3: `stage`, or more where other flags say it.
  int sharding(int stage) {
    const char* const key = "pipeline.shard";
    const auto at_least = [&](int more) { stage = std::max(stage, more); };
    const auto of_deepspeed = number("zero-stage", key);
    if (deepspeed_ && of_deepspeed) at_least(static_cast<int>(*of_deepspeed));
    if (deepspeed_ && !mentions("zero-stage") &&
        (mentions("deepspeed-config") || mentions("deepspeed")))
      ask("zero-stage");
    if (has("use-torch-fsdp2", key)) at_least(3);
    bool megatron_fsdp = has("use-megatron-fsdp", key);
    megatron_fsdp = has("use-custom-fsdp", key) || megatron_fsdp;
    std::string strategy = word("data-parallel-sharding-strategy", key);
    if (!megatron_fsdp) {  // without which it says nothing
      ignore("data-parallel-sharding-strategy");
      strategy.clear();
    }
    at_least(strategy == "optim_grads_params" ? 3
             : strategy == "optim_grads"      ? 2
             : strategy == "optim"            ? 1
                                              : 0);
    return stage;
  }

  std::int64_t chunks_of(std::int64_t stages) {
    const auto chunks = number("num-virtual-stages-per-pipeline-rank", "pipeline.chunks");
    const auto layers = number("num-layers-per-virtual-pipeline-stage", "pipeline.chunks");
    if (chunks && *chunks > 1 && stages == 1)
      refuse_job(fmt::format("{} virtual stages without pipeline parallelism", *chunks));
    if (chunks) return *chunks;
    if (const std::int64_t of_all = layout_stages(); of_all > stages && of_all % stages == 0)
      return of_all / stages;
    if (layers && stages == 1 && *layers < layers_)
      refuse_job(fmt::format("{} layers per virtual stage without pipeline parallelism", *layers));
    if (layers && layers_ % (*layers * stages) == 0) return layers_ / (*layers * stages);
    if (layers)
      assume(fmt::format("pipeline.chunks: 1 ({} layers are no multiple of {} x {} stages)",
                         layers_, *layers, stages));
    return 1;
  }

  /// Virtual stages of a layout; 0 without one. Throws InputError where it is none.
  std::int64_t layout_stages() {
    const std::string layout = word("pipeline-model-parallel-layout", "pipeline.split");
    if (layout.empty()) return 0;
    return static_cast<std::int64_t>(
        parse_layout(layout, origin_ + ", pipeline-model-parallel-layout").size());
  }

  /// None where nothing says how many GPUs there are.
  std::optional<std::int64_t> width_of(std::int64_t model_gpus, std::int64_t least) {
    auto nodes = number({"nnodes", "num-nodes", "nodes", "num-machines"}, "cluster.nodes");
    auto each = number({"nproc-per-node", "num-gpus", "gpus-per-node", "ntasks-per-node"},
                       "cluster.devices_per_node");
    const std::string per_node = word("nproc-per-node", "cluster.devices_per_node");
    if (!each && (per_node == "gpu" || per_node == "auto")) {
      has("nproc-per-node", "cluster.devices_per_node: 8, all of a node");
      each = 8;
    }
    if (deepspeed_) take_hosts(word("include", "cluster"), nodes, each);
    auto world = processes(nodes, each);
    if (!world && !(nodes && each)) world = number("gpus", "cluster");  // of Slurm's whole job
    const bool counted = world || nodes;
    if (!counted && cluster_.gpus()) not_asked({"nnodes", "num-nodes", "nodes", "world-size"});
    if (!counted && !each && !cluster_.gpus()) {
      assume(
          fmt::format("pipeline.width: {} (no --nnodes, --nproc-per-node or --world-size, and no "
                      "--cluster with "
                      "nodes: it is the number of GPUs / (stages x tensor x context))",
                      least));
      return std::nullopt;
    }
    const std::int64_t gpus = world     ? *world
                              : counted ? product_of({*nodes, each.value_or(8)}, "GPUs")
                                        : cluster_.gpus().value_or(each.value_or(8));
    per_node_ = each ? *each : world && nodes ? std::max<std::int64_t>(1, gpus / *nodes) : 8;
    const std::int64_t width = gpus / model_gpus;
    const bool told = world || (each && (nodes || !cluster_.gpus()));
    if (const bool divides = width > 0 && width * model_gpus == gpus; !divides && told)
      refuse_job(fmt::format("{} GPUs are no multiple of {} (stages x tensor x context)", gpus,
                             model_gpus));
    else if (!divides)
      assume(fmt::format("pipeline.width: {} ({} GPUs are no multiple of {})",
                         std::max<std::int64_t>(1, width), gpus, model_gpus));
    return std::max<std::int64_t>(1, width);
  }

  /// Takes nodes and GPUs of each from DeepSpeed's --include: "n0:0,1@n1:0,1".
  static void take_hosts(const std::string& hosts, std::optional<std::int64_t>& nodes,
                         std::optional<std::int64_t>& each) {
    if (hosts.empty() || hosts.find('$') != hosts.npos) return;
    const auto all = 1 + std::ranges::count(hosts, '@');
    const auto gpus = std::ranges::count(hosts, ':') + std::ranges::count(hosts, ',');
    if (!nodes) nodes = all;
    if (!each && std::ranges::count(hosts, ':') == all && gpus % all == 0) each = gpus / all;
  }

  /// Returns the world's size, where it is said. Tasks are GPUs unless they start processes of
  /// their own: a single task, or torchrun's.
  std::optional<std::int64_t> processes(std::optional<std::int64_t> nodes,
                                        std::optional<std::int64_t> each) {
    const auto world = number({"world-size", "num-processes"}, "cluster");
    const auto tasks = number("ntasks", "cluster");
    if (!world && tasks && *tasks > nodes.value_or(1) && !(nodes && each) &&
        !mentions("nproc-per-node"))
      return tasks;
    ignore("ntasks");
    return world;
  }

  std::string recomputation() {
    const char* const key = "pipeline.recompute";
    const bool of_experts = shape_.experts && has("moe-layer-recompute", key);  // of 2024
    const bool selective =
        has("recompute-activations", "pipeline.recompute: selective") || of_experts;
    bool full = has("checkpoint-activations", "pipeline.recompute: full");
    const auto either = [&](const char* flag, const char* earlier) {
      const std::string value = word(flag, key);
      return value.empty() ? word(earlier, key) : value;
    };
    const std::string granularity =
        either("recompute-granularity", "activations-checkpoint-granularity");
    const std::string method = either("recompute-method", "activations-checkpoint-method");
    // No layer in a block is no recomputation.
    const bool none = method == "block" && (word("recompute-num-layers", key) == "0" ||
                                            word("activations-checkpoint-num-layers", key) == "0");
    const auto layers = number(
        {"recompute-num-layers", "activations-checkpoint-num-layers", "checkpoint-num-layers"},
        key);
    full = full || granularity == "full" || (granularity.empty() && !selective && !method.empty());
    const std::string modules = recomputed_modules(selective || granularity == "selective");
    if (full && none) return "";
    if (full) {
      const bool block = method == "block";
      if (!layers || (!block && *layers == 1)) return "  recompute: full\n";
      return fmt::format("  recompute: full\n  recompute_method: {}\n  recompute_layers: {}\n",
                         block ? "block" : "uniform", *layers);
    }
    return selective || granularity == "selective" ? "  recompute: selective\n" + modules : "";
  }

  /// Returns the key of what selective recomputation makes again, if it is not core attention.
  std::string recomputed_modules(bool selective) {
    const char* const flag = "recompute-modules";
    std::vector<std::string> modules = words(flag, "pipeline.recompute");
    if (mentions("moe-layer-recompute") && shape_.experts) modules.emplace_back("moe");
    std::vector<std::string> known, others;
    for (const std::string& module : modules) {
      const bool is_known = std::ranges::find(kLayerPartNames, module) != std::end(kLayerPartNames);
      if (is_known)
        known.push_back(module);
      else if (module != "[]")
        others.push_back(as_comment(module));
    }
    if (!selective) {
      ignore(flag);
      return "";
    }
    if (!others.empty()) {
      unmodelled(flag, fmt::format("of single modules only the recomputation of {} is modelled",
                                   fmt::join(kLayerPartNames, ", ")));
      leave_out(fmt::format("the recomputation of {}", fmt::join(others, ", ")), Leaves::less);
    }
    if (known.empty() || known == std::vector<std::string>{"core_attn"}) return "";
    return fmt::format("  recompute_modules: [{}]\n", fmt::join(known, ", "));
  }

  /// Layers that do not divide, or that stand where flags say.
  std::string split(std::int64_t stages, std::int64_t chunks) {
    const std::string layout = word("pipeline-model-parallel-layout", "pipeline.split");
    if (!layout.empty()) return of_layout(layout, stages);
    const auto first = number("decoder-first-pipeline-num-layers", "pipeline.split");
    const auto last = number("decoder-last-pipeline-num-layers", "pipeline.split");
    const bool embedding = has("account-for-embedding-in-pipeline-split", "pipeline.split");
    const bool loss = has("account-for-loss-in-pipeline-split", "pipeline.split");
    if (stages < 2 || stages > 65'536) return "";
    if (embedding || loss) return counting_ends(stages, embedding, loss);
    return first || last ? of_ends(stages, chunks, first, last) : evenly(stages);
  }

  std::string counting_ends(std::int64_t stages, bool embedding, bool loss) {
    const std::int64_t all = layers_ + (embedding ? 1 : 0) + (loss ? 1 : 0);
    if (all % stages != 0)
      return not_followed(
          {"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"},
          fmt::format("{} layers and what it counts beside them, {}, do not divide "
                      "into {} stages, which Megatron-LM refuses",
                      layers_, all, stages),
          stages);
    std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), all / stages);
    layers.front() -= embedding ? 1 : 0;
    layers.back() -= loss ? 1 : 0;
    return listed(layers);
  }

  /// Of the first and last rank, all their chunks together.
  std::string of_ends(std::int64_t stages, std::int64_t chunks, std::optional<std::int64_t> first,
                      std::optional<std::int64_t> last) {
    const std::int64_t ranks = stages / chunks;
    const std::int64_t middle = ranks - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t left = layers_ - first.value_or(0) - last.value_or(0);
    const auto refused = [&](const std::string& why) {
      return not_followed({"decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"},
                          why + ", which Megatron-LM refuses", stages);
    };
    if (left < 0 || (middle < 1 && left != 0))
      return refused(fmt::format("{} + {} layers are not those of a model of {}", first.value_or(0),
                                 last.value_or(0), layers_));
    if (middle > 0 && left % middle != 0)
      return refused(fmt::format("the other {} layers do not divide among {} ranks", left, middle));
    std::vector<std::int64_t> layers(static_cast<std::size_t>(stages));
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      const std::int64_t rank = stage % ranks;
      const std::int64_t of_rank = first && rank == 0          ? *first
                                   : last && rank + 1 == ranks ? *last
                                                               : left / middle;
      if (of_rank % chunks != 0)
        return refused(fmt::format("the {} layers of rank {} do not divide into {} virtual stages",
                                   of_rank, rank, chunks));
      layers[static_cast<std::size_t>(stage)] = of_rank / chunks;
    }
    return listed(layers);
  }

  static std::string listed(const std::vector<std::int64_t>& layers) {
    return fmt::format("  split: [{}]\n", fmt::join(layers, ", "));
  }

  std::string of_layout(const std::string& text, std::int64_t stages) {
    const char* const flag = "pipeline-model-parallel-layout";
    std::vector<std::int64_t> layers;
    std::int64_t all = 0;
    for (const StageLayers& stage : parse_layout(text, origin_)) {
      layers.push_back(stage.layers);
      all += stage.layers;
    }
    if (static_cast<std::int64_t>(layers.size()) != stages)
      return not_followed(
          {flag}, fmt::format("it has {} stages, the job {}", layers.size(), stages), stages);
    if (all != layers_)
      return not_followed({flag}, fmt::format("it has {} layers, the model {}", all, layers_),
                          stages);
    return listed(layers);
  }

  std::string not_followed(std::initializer_list<const char*> flags, const std::string& why,
                           std::int64_t stages) {
    for (const char* flag : flags) unmodelled(flag, "not followed: " + why);
    return evenly(stages);
  }

  std::string evenly(std::int64_t stages) {
    if (layers_ % stages == 0) return "";
    assume(fmt::format("pipeline.split: balanced ({} layers do not divide into {} stages)", layers_,
                       stages));
    return "  split: balanced\n";
  }

  std::string origin_;
  std::vector<std::string> programs_;
  JobCluster cluster_;
  std::string given_model_;
  bool deepspeed_, bert_ = false;
  std::string stack_;
  std::vector<Diagnostic> errors_;
  TransformerSpec shape_;
  std::int64_t layers_ = 0, per_node_ = 8;
};

bool is_of_megatron(const std::string& name) {
  static constexpr std::string_view kSome[] = {"num-layers",
                                               "hidden-size",
                                               "micro-batch-size",
                                               "pipeline-model-parallel-size",
                                               "tensor-model-parallel-size",
                                               "model-parallel-size",
                                               "encoder-num-layers",
                                               "yaml-cfg"};
  return std::ranges::find(kSome, name) != std::end(kSome);
}

/// A definition is a flag where its name can be no variable's, or is no variable of the script:
/// num-layers, num_layers, bf16.
std::vector<ScriptOption> defined_flags(const ScriptSurroundings& defined, std::string_view text) {
  std::vector<ScriptOption> out;
  for (const auto& [name, value] : defined) {
    const bool used = text.find("$" + name) != text.npos || text.find("${" + name) != text.npos ||
                      text.find(name + "=") != text.npos;
    std::string flag = name;
    flag.erase(0, std::min(flag.find_first_not_of('-'), flag.size()));
    if (flag != lower_case(flag) || (used && flag.find('-') == flag.npos)) continue;
    std::ranges::replace(flag, '_', '-');
    ScriptOption& option = out.emplace_back();
    option.name = flag;
    option.values = {value};
    option.shown = "--define " + name;
  }
  return out;
}

}  // namespace

std::string scenario_of_megatron(std::string_view text, const std::string& origin,
                                 const std::string& cluster, const ScriptSurroundings& defined,
                                 const std::string& model) {
  MegatronJob job{.options = {}, .origin = origin, .cluster = cluster, .model = model};
  job.defined = defined;
  std::string why_none;
  if (is_flag_file(text, origin)) {
    read_flag_file(std::string(text), job);
  } else {
    ScriptLaunch launch = script_launch(text, origin, defined, is_of_megatron, pretrains);
    job.written = std::move(launch.written);
    job.options = std::move(launch.options);
    // Transformer Engine's switches; --attention-backend goes over them.
    if (launch.exported["NVTE_FLASH_ATTN"] == "0" && launch.exported["NVTE_FUSED_ATTN"] == "0") {
      ScriptOption& option = *job.options.emplace(job.options.begin());
      option.name = "attention-backend";
      option.values = {"unfused"};
      option.shown = "NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0";
    }
    job.notes = std::move(launch.notes);
    job.programs = programs_in(launch.command);
    job.by_deepspeed = is_started_by_deepspeed(launch.command);
    why_none = launch.none.empty() ? "" : ": " + launch.none;
  }
  for (ScriptOption& flag : defined_flags(defined, text)) job.options.push_back(std::move(flag));
  if (std::ranges::none_of(job.options, is_of_megatron, &ScriptOption::name))
    throw InputError(
        origin,
        "has none of Megatron-LM's flags, such as --num-layers and --micro-batch-size" + why_none);
  read_yaml_cfg(job);
  read_deepspeed_config(job);
  return Import(std::move(job)).scenario();
}

}  // namespace penstock
