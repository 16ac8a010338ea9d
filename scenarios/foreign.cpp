#include "scenarios/foreign.hpp"

#include "scenarios/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <span>

namespace penstock {
namespace {

using Words = std::span<const std::string_view>;

bool contains(Words words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Hugging Face's model_type and our families.
constexpr std::pair<std::string_view, std::string_view> kFamilies[] = {
    {"gpt2", "gpt"},    {"gpt", "gpt"},       {"gpt_neo", "gpt"},
    {"opt", "gpt"},     {"bert", "bert"},     {"roberta", "bert"},
    {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "llama"}};

constexpr std::string_view kLongest[] = {"max_position_embeddings", "n_positions", "n_ctx"};
constexpr std::string_view kActivations[] = {"hidden_act", "activation_function",
                                             "hidden_activation"};
constexpr std::string_view kGated[] = {"silu", "swish", "swiglu"};
constexpr std::string_view kPlain[] = {
    "gelu",       "gelu_new",  "gelu_fast",         "gelu_10", "gelu_python",
    "quick_gelu", "fast_gelu", "gelu_pytorch_tanh", "relu",    "relu2"};

/// Mixtures of experts whose MLP has a gate (SiLU) where no key names_any otherwise.
constexpr std::string_view kGatedMixtures[] = {"mixtral",  "qwen2_moe",   "qwen3_moe",
                                               "deepseek", "deepseek_v2", "deepseek_v3",
                                               "olmoe",    "phimoe",      "granitemoe"};
constexpr const char* kNoMixture = "mixture-of-experts models are not modelled";
constexpr std::string_view kExpertCounts[] = {"num_local_experts", "num_experts",
                                              "n_routed_experts"};

/// Keys that name a model beyond our families when their value is more than 0, or true.
constexpr std::pair<std::string_view, const char*> kBeyondUs[] = {
    {"num_local_experts", kNoMixture},
    {"num_experts", kNoMixture},
    {"n_routed_experts", kNoMixture},
    {"num_experts_per_tok", kNoMixture},
    {"n_shared_experts", kNoMixture},
    {"encoder_layers", "encoder-decoder models are not modelled"},
    {"decoder_layers", "encoder-decoder models are not modelled"},
    {"num_decoder_layers", "encoder-decoder models are not modelled"},
    {"decoder_num_layers", "encoder-decoder models are not modelled"},
    {"is_encoder_decoder", "encoder-decoder models are not modelled"},
    {"add_cross_attention", "encoder-decoder models are not modelled"},
    {"multi_latent_attention", "multi-latent attention is not modelled"},
    {"kv_lora_rank", "multi-latent attention is not modelled"},
    {"q_lora_rank", "multi-latent attention is not modelled"},
    {"multi_query", "give 'num_query_groups' instead of 'multi_query'"},
    {"mtp_num_layers", "multi-token prediction is not modelled"},
    {"num_nextn_predict_layers", "multi-token prediction is not modelled"}};

/// Keys without a meaning for a prediction: whole names, beginnings and endings.
constexpr std::string_view kMeaningless[] = {
    "architectures",
    "_name_or_path",
    "name_or_path",
    "auto_map",
    "use_cache",
    "gradient_checkpointing",
    "is_decoder",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "pretraining_tp",
    "problem_type",
    "id2label",
    "label2id",
    "finetuning_task",
    "task_specific_params",
    "dropout",
    "activation_dropout",
    "attention_bias",
    "mlp_bias",
    "qkv_bias",
    "enable_bias",
    "add_bias_linear",
    "disable_bias_linear",
    "add_qkv_bias",
    "type_vocab_size",
    "vocab_file",
    "merge_file",
    "make_vocab_size_divisible_by",
    "do_layer_norm_before",
    "_remove_final_layer_norm",
    "apply_layernorm_1p",
    "norm_epsilon",
    "norm_eps",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "reorder_and_upcast_attn",
    "classifier_dropout",
    "layerdrop",
    "position_buckets",
    "prefix",
    "torchscript",
    "openai_gelu",
    "onnx_safe",
    "lr",
    "min_lr",
    "weight_decay",
    "clip_grad",
    "seed",
    "train_iters",
    "train_samples",
    "exit_interval",
    "split",
    "save",
    "load",
    "loss_scale",
    "initial_loss_scale",
    "encoder_num_layers",
    "attention_softmax_in_fp32",
    "accumulate_allreduce_grads_in_fp32",
    "apply_query_key_layer_scaling",
    "apply_residual_connection_post_layernorm",
    "distributed_backend",
};
constexpr std::string_view kMeaninglessBeginnings[] = {
    "rope_",         "rotary_", "layer_norm_",   "layernorm_",     "rms_norm_",      "initializer_",
    "init_method",   "lr_",     "adam_",         "sgd_",           "log_",           "eval_",
    "save_",         "load_",   "data_",         "vocab_",         "tokenizer_",     "summary_",
    "tensorboard_",  "wandb_",  "transformers_", "special_tokens", "min_loss_scale", "loss_scale_",
    "weight_decay_",
};
constexpr std::string_view kMeaninglessEndings[] = {
    "_token_id", "_dropout", "_dropout_prob", "_pdrop", "_drop_rate", "_eps", "_epsilon",
};

bool is_meaningless(std::string_view key) {
  return contains(kMeaningless, key) ||
         std::ranges::any_of(kMeaninglessBeginnings, [&](auto w) { return key.starts_with(w); }) ||
         std::ranges::any_of(kMeaninglessEndings, [&](auto w) { return key.ends_with(w); });
}

bool is_positive(const Value& value) {
  return value.kind == Value::Kind::scalar &&
         (value.text == "true" || std::atof(value.text.c_str()) > 0);
}

std::string listed(const std::vector<std::string>& keys) {
  constexpr std::size_t kMost = 20;
  std::vector<std::string> shown;
  for (const std::string& key : keys) {
    if (shown.size() < kMost) shown.push_back(printable(key));
  }
  const std::size_t more = keys.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// The number that an entry gives under the first of its names that is there, or 0.
double first_of(const Value& document, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Value* value = document.find(key);
    const double number = value == nullptr ? 0 : std::atof(value->text.c_str());
    if (number > 0) return number;
  }
  return 0;
}

/// The entry that names_any how many experts there are, or null.
const Value::Entry* experts_of(const Value& document) {
  for (const Value::Entry& entry : document.entries)
    if (contains(kExpertCounts, entry.key.text) && is_positive(entry.value)) return &entry;
  return nullptr;
}

/// Of the hidden layers of the experts that a token visits, all together; 0: it is not said.
double width_of_experts(const Value& document) {
  const double visited = first_of(document, {"num_experts_per_tok", "moe_router_topk"});
  const double size = first_of(document, {"moe_intermediate_size", "moe_ffn_hidden_size",
                                          "intermediate_size", "ffn_hidden_size"});
  const double shared = first_of(document, {"n_shared_experts"}) * size +
                        first_of(document, {"shared_expert_intermediate_size",
                                            "moe_shared_expert_intermediate_size"});
  return visited == 0 || size == 0 ? 0 : visited * size + shared;
}

class Adoption {
 public:
  Adoption(Value& document, Diagnostics& diagnostics, std::vector<std::string>& notes)
      : document_(document), diagnostics_(diagnostics), notes_(notes) {}

  void run() {
    find_family();
    for (const Value::Entry& entry : document_.entries) {
      if (entry.value.kind != Value::Kind::null) adopt(entry);
    }
    check_heads();
    check_experts();
    if (family_entry_) kept_.push_back(*family_entry_);
    document_.entries = std::move(kept_);
    note("keys without a meaning for a prediction", meaningless_);
    note("not understood and ignored", unknown_);
  }

 private:
  const Value::Entry* given(std::string_view key) const {
    for (const Value::Entry& entry : document_.entries) {
      if (entry.key.text == key && entry.value.kind != Value::Kind::null) return &entry;
    }
    return nullptr;
  }

  bool is(std::string_view key, std::string_view text) const {
    const Value::Entry* entry = given(key);
    return entry != nullptr && entry->value.text == text;
  }

  /// Of a mixture of experts: what can be asked instead.
  std::string nearest_without_experts() const {
    const double width = width_of_experts(document_);
    if (width == 0) return "";
    return fmt::format(
        "; the nearest is a dense model whose ffn_hidden_size is {:.0f}, that of the experts which "
        "a token visits (the weights of the others, routing and all-to-all are missing then): "
        "`penstock import {} -o nearest.yaml` writes it",
        width, document_.source->name);
  }

  double number_of(std::string_view key) const {
    const KeyRow* row = find_key("model", key);
    for (const Value::Entry& entry : document_.entries) {
      const bool same = row != nullptr && find_key("model", entry.key.text) == row;
      if (same || entry.key.text == key) return std::atof(entry.value.text.c_str());
    }
    return 0;
  }

  void note(const char* what, const std::vector<std::string>& keys) {
    if (keys.empty()) return;
    notes_.push_back(fmt::format("{}: {}: {}", document_.source->name, what, listed(keys)));
  }

  // --- family -----------------------------------------------------------------------------------

  /// What an entry names_any of a llama-like part: true, false, or nothing.
  struct Sign {
    const Value::Entry* entry = nullptr;
    bool like_llama = false;
  };

  void find_family() {
    read_signs();
    const Value::Entry* type = given("family");
    if (type == nullptr) type = given("model_type");
    if (type == nullptr) return derive_family();
    const auto known =
        std::ranges::find(kFamilies, type->value.text, [](const auto& f) { return f.first; });
    if (known == std::end(kFamilies)) {
      if (experts_of(document_) != nullptr) return;  // which are refused
      std::vector<std::string_view> names;
      for (const auto& family : kFamilies) names.push_back(family.first);
      // No suggestion: a neighbour in spelling is another model.
      return diagnostics_.add_error(
          type->value, fmt::format("the {} '{}' is not known (known: {})", type->key.text,
                                   printable(type->value.text), fmt::join(names, ", ")));
    }
    keep_family(*type, known->second);
    for (const Sign& sign : signs_) {
      if (sign.like_llama == (known->second == "llama")) continue;
      diagnostics_.add_error(sign.entry->key,
                             fmt::format("'{}: {}' contradicts the family {}", sign.entry->key.text,
                                         printable(sign.entry->value.text), known->second));
    }
  }

  void keep_family(Value::Entry entry, std::string_view family) {
    entry.key.text = "family";
    entry.value.text = family;
    family_entry_ = std::move(entry);
  }

  void read_signs() {
    for (const char* key : {"swiglu", "gated_linear_unit", "use_rotary_position_embeddings"}) {
      if (is(key, "true")) signs_.push_back({given(key), true});
    }
    if (is("swiglu", "false")) signs_.push_back({given("swiglu"), false});
    static constexpr std::string_view kRotary[] = {"rope", "rotary"};
    static constexpr std::string_view kLearned[] = {"learned_absolute", "absolute", "learned"};
    static constexpr std::string_view kRms[] = {"RMSNorm", "rmsnorm"};
    static constexpr std::string_view kLayerNorm[] = {"LayerNorm", "layernorm"};
    // Megatron states this beside the rotary ones, too.
    const bool rotary = is("use_rotary_position_embeddings", "true");
    if (!rotary || !is("position_embedding_type", "learned_absolute"))
      read_sign("position_embedding_type", kRotary, kLearned);
    read_sign("normalization", kRms, kLayerNorm);
    for (const std::string_view key : kActivations) read_sign(key, kGated, kPlain);
  }

  void read_sign(std::string_view key, Words llama, Words other) {
    const Value::Entry* entry = given(key);
    if (entry == nullptr) return;
    const bool like_llama = contains(llama, entry->value.text);
    if (like_llama || contains(other, entry->value.text)) {
      signs_.push_back({entry, like_llama});
    } else {
      diagnostics_.add_error(
          entry->value, fmt::format("'{}: {}' is not modelled", key, printable(entry->value.text)));
    }
  }

  /// Without a name: a llama has a gate, rotary positions and RMS norm, a gpt none of these.
  void derive_family() {
    const auto names_any = [&](std::initializer_list<std::string_view> keys) {
      return std::ranges::any_of(signs_, [&](const Sign& sign) {
        return sign.like_llama && std::ranges::find(keys, sign.entry->key.text) != std::end(keys);
      });
    };
    const auto first = std::ranges::find(signs_, true, &Sign::like_llama);
    if (first == signs_.end()) return;
    std::vector<const char*> missing;
    if (!names_any({"swiglu", "gated_linear_unit", "hidden_act", "activation_function",
                    "hidden_activation"}))
      missing.push_back("'swiglu: true'");
    if (!names_any({"position_embedding_type", "use_rotary_position_embeddings"}))
      missing.push_back("'position_embedding_type: rope'");
    if (!names_any({"normalization"})) missing.push_back("'normalization: RMSNorm'");
    const Value::Entry& entry = *first->entry;
    const auto against = std::ranges::find(signs_, false, &Sign::like_llama);
    if (!missing.empty()) {
      diagnostics_.add_error(
          entry.key,
          fmt::format("'{}: {}' without {} is none of the known families "
                      "(gpt, bert, llama)",
                      entry.key.text, printable(entry.value.text), fmt::join(missing, " and ")));
    } else if (against != signs_.end()) {
      const Value::Entry& other = *against->entry;
      diagnostics_.add_error(other.key, fmt::format("'{}: {}' contradicts '{}: {}'", other.key.text,
                                                    printable(other.value.text), entry.key.text,
                                                    printable(entry.value.text)));
    } else if (number_of("ffn_hidden_size") == 0) {
      diagnostics_.add_error(entry.key, fmt::format("'{}: {}' needs 'ffn_hidden_size', too",
                                                    entry.key.text, printable(entry.value.text)));
    }
    keep_family(entry, "llama");
  }

  // --- the other keys ---------------------------------------------------------------------------

  void adopt(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    if (key == "family" || key == "model_type" || is_sign(key)) return;
    if (refused(entry) || translated(entry) || superseded(key)) return;
    if (find_key("model", key) != nullptr && !is_meaningless(key)) return keep(entry);
    (is_meaningless(key) ? meaningless_ : unknown_).push_back(key);
  }

  bool is_sign(std::string_view key) const {
    return key == "swiglu" || key == "gated_linear_unit" || key == "normalization" ||
           key == "position_embedding_type" || key == "use_rotary_position_embeddings" ||
           contains(kActivations, key);
  }

  bool refused(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    const auto beyond = std::ranges::find(kBeyondUs, key, [](const auto& b) { return b.first; });
    if (beyond == std::end(kBeyondUs)) return refused_parallelism(entry);
    const Value::Entry* experts = experts_of(document_);
    if (!is_positive(entry.value)) return true;
    if (experts == nullptr || beyond->second != kNoMixture)
      diagnostics_.add_error(entry.key, beyond->second);
    else if (experts->key.text == key)  // the others say the same
      diagnostics_.add_error(entry.key, kNoMixture + nearest_without_experts());
    return true;
  }

  /// DeepSpeed gives the stage of ZeRO in a map of its own.
  bool refused_parallelism(const Value::Entry& entry) {
    const NotModelled* known = find_not_modelled(entry.key.text);
    if (known == nullptr) return false;
    const Value* stage = entry.value.kind == Value::Kind::map ? entry.value.find("stage") : nullptr;
    const Value& value = stage != nullptr ? *stage : entry.value;
    const double size = value.text == "true" ? 1 : std::atof(value.text.c_str());
    if (size < known->from) return false;
    diagnostics_.add_error(entry.key, std::string(known->instead));
    return true;
  }

  /// Keys of ours under another name and with other values.
  bool translated(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    const std::string& text = entry.value.text;
    const bool yes = text == "true";
    if (key == "untie_embeddings_and_output_weights") return as(entry, "tie_embeddings", !yes);
    if (key == "share_embeddings_and_output_weights") return as(entry, "tie_embeddings", yes);
    if (key == "use_flash_attn") return as(entry, "flash_attention", yes);
    if (key == "params_dtype" || key == "torch_dtype" || key == "dtype") return type(entry);
    if (key == "bf16" || key == "fp16") {
      if (yes) keep(entry, "precision", "mixed-" + key);
      return true;
    }
    if (key == "group_query_attention") {
      if (yes && number_of("num_query_groups") == 0)
        diagnostics_.add_error(entry.key,
                               "'group_query_attention: true' needs 'num_query_groups', too");
      return true;
    }
    // checked together with the heads, or the experts, at the end
    return key == "head_dim" || key == "kv_channels" || key == "word_embed_proj_dim" ||
           key.starts_with("moe_");
  }

  bool as(const Value::Entry& entry, const char* key, bool value) {
    if (entry.value.text != "true" && entry.value.text != "false") {
      diagnostics_.add_error(entry.value,
                             fmt::format("'{}' must be true or false", entry.key.text));
    } else {
      keep(entry, key, value ? "true" : "false");
    }
    return true;
  }

  bool type(const Value::Entry& entry) {
    std::string_view name = entry.value.text;
    if (name.starts_with("torch.")) name.remove_prefix(6);
    const char* precision = name == "bfloat16" || name == "bf16"                     ? "mixed-bf16"
                            : name == "float16" || name == "half" || name == "fp16"  ? "mixed-fp16"
                            : name == "float32" || name == "float" || name == "fp32" ? "fp32"
                                                                                     : nullptr;
    if (precision == nullptr) {
      diagnostics_.add_error(entry.value,
                             fmt::format("'{}' must be one of bfloat16, float16, float32, got '{}'",
                                         entry.key.text, printable(entry.value.text)));
    } else {
      keep(entry, "precision", precision);
    }
    return true;
  }

  /// Does another key of the file say the same better?
  bool superseded(std::string_view key) const {
    if (contains(kLongest, key)) return given("seq_length") != nullptr;
    if (key == "vocab_size") return given("padded_vocab_size") != nullptr;
    if (key == "num_query_groups") return is("group_query_attention", "false");
    return false;
  }

  void keep(Value::Entry entry, const char* key, std::string text) {
    Value::Entry ours = entry;
    ours.key.text = key;
    ours.value.text = std::move(text);
    const KeyRow* row = find_key("model", key);
    for (const Value::Entry& other : kept_) {
      if (find_key("model", other.key.text) != row) continue;
      if (other.value.text != ours.value.text) {
        diagnostics_.add_error(entry.key,
                               fmt::format("'{}: {}' contradicts line {}", entry.key.text,
                                           printable(entry.value.text), other.key.line));
      }
      return;
    }
    kept_.push_back(std::move(ours));
  }

  void keep(const Value::Entry& entry) {
    const KeyRow* row = find_key("model", entry.key.text);
    // GPT-2 names_any n_ctx and n_positions; what differs is reported when the section is read.
    const bool again = std::ranges::any_of(kept_, [&](const Value::Entry& other) {
      return find_key("model", other.key.text) == row && other.value.text == entry.value.text;
    });
    if (!again) kept_.push_back(entry);
  }

  // --- together
  // -----------------------------------------------------------------------------------

  void check_heads() {
    const double heads = number_of("num_attention_heads"), hidden = number_of("hidden_size");
    for (const char* key : {"head_dim", "kv_channels"}) {
      const double head = number_of(key);
      if (head <= 0 || heads <= 0 || head * heads == hidden) continue;
      diagnostics_.add_error(
          given(key)->key, fmt::format("a {} other than hidden_size / heads is not modelled", key));
    }
    const double projected = number_of("word_embed_proj_dim");
    if (projected > 0 && projected != hidden) {
      diagnostics_.add_error(given("word_embed_proj_dim")->key,
                             "a word_embed_proj_dim other than hidden_size is not modelled");
    }
  }

  /// Megatron lists the defaults of moe_* beside `num_experts: null`.
  void check_experts() {
    const bool none =
        document_.find("num_experts") != nullptr && !is_positive(*document_.find("num_experts"));
    for (const Value::Entry& entry : document_.entries) {
      if (!entry.key.text.starts_with("moe_")) continue;
      if (!none && is_positive(entry.value)) {
        if (experts_of(document_) == nullptr) diagnostics_.add_error(entry.key, kNoMixture);
      } else if (entry.value.kind != Value::Kind::null) {
        meaningless_.push_back(entry.key.text);
      }
    }
  }

  Value& document_;
  Diagnostics& diagnostics_;
  std::vector<std::string>& notes_;
  std::vector<Sign> signs_;
  std::optional<Value::Entry> family_entry_;
  std::vector<Value::Entry> kept_;
  std::vector<std::string> meaningless_, unknown_;
};

}  // namespace

std::vector<std::string> take_out_experts(Value& document) {
  const double width = width_of_experts(document);
  if (experts_of(document) == nullptr || width == 0) return {};
  std::vector<std::string> missing;
  const double heads = first_of(document, {"num_attention_heads"});
  const double hidden = first_of(document, {"hidden_size"});
  bool gated = false, usually_gated = false, plain = false;
  std::erase_if(document.entries, [&](const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    gated = gated || (contains(kActivations, key) && contains(kGated, entry.value.text)) ||
            (key == "swiglu" && is_positive(entry.value));
    plain = plain || (contains(kActivations, key) && contains(kPlain, entry.value.text));
    usually_gated =
        usually_gated || (key == "model_type" && contains(kGatedMixtures, entry.value.text));
    const auto beyond = std::ranges::find(kBeyondUs, key, [](const auto& b) { return b.first; });
    const char* why = beyond != std::end(kBeyondUs) ? beyond->second : nullptr;
    const bool head = key == "head_dim" || key == "kv_channels";
    if (head && std::atof(entry.value.text.c_str()) * heads != hidden)
      why = "heads are hidden_size / num_attention_heads wide here";
    if (why == nullptr)
      return key.starts_with("moe_") || key == "intermediate_size" || key == "ffn_hidden_size" ||
             key == "model_type";
    if (is_positive(entry.value))
      missing.push_back(fmt::format("{} {}: {}", printable(key), printable(entry.value.text), why));
    return true;
  });
  const auto add = [&](const char* key, std::string text) {
    Value scalar;
    scalar.kind = Value::Kind::scalar;
    scalar.source = document.source;
    Value::Entry entry{scalar, scalar};
    entry.key.text = key;
    entry.value.text = std::move(text);
    document.entries.push_back(std::move(entry));
  };
  add("model_type", gated || (usually_gated && !plain) ? "llama" : "gpt2");
  add("intermediate_size", fmt::format("{:.0f}", width));
  return missing;
}

void adopt_foreign_model(Value& document, Diagnostics& diagnostics,
                         std::vector<std::string>& notes) {
  Adoption(document, diagnostics, notes).run();
}

std::string note_on_length(const Value& model) {
  for (const Value::Entry& entry : model.entries) {
    const bool foreign = entry.key.source != nullptr && entry.key.source->name.ends_with(".json");
    if (!foreign || !contains(kLongest, entry.key.text)) continue;
    return fmt::format(
        "{}: seq_length {} is the file's {}, the longest the model can take; set model.seq_length "
        "to what you train with, as in {{base: FILE, seq_length: 4096}}",
        entry.key.source->name, printable(entry.value.text), entry.key.text);
  }
  return "";
}

}  // namespace penstock
