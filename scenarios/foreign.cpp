// SPDX-License-Identifier: Apache-2.0
#include "scenarios/foreign.hpp"

#include "base/suggest.hpp"
#include "models/layer_form.hpp"
#include "scenarios/foreign_experts.hpp"
#include "scenarios/foreign_parts.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace penstock {
namespace {

constexpr std::size_t kMostSuggestedKeys = 200;  // each is compared with all keys

/// What a `model_type` says that its configuration need not.
struct ForeignType {
  std::string_view name;
  const Value* facts;     ///< keys of ours; the first is the family
  const Value* defaults;  ///< of keys that its files may leave out, as they write them, or null
  std::string_view bias;  ///< what its attention_bias gives biases
  const Value* needs;     ///< keys without which it would be another model, or null
};

/// Returns none where it is not known.
std::optional<ForeignType> find_foreign_type(std::string_view name) {
  for (const auto& [key, row] : hf_table("types").entries) {
    if (key.text != name) continue;
    const std::string_view bias = said_of(row, "attention_bias");
    return ForeignType{key.text, row.find("facts"), row.find("defaults"),
                       bias.empty() ? "attention" : bias, row.find("needs")};
  }
  return std::nullopt;
}

/// Returns whether a key changes nothing that is predicted.
bool is_meaningless(std::string_view key) {
  const auto begins = [&](const Value& with) { return key.starts_with(with.text); };
  const auto ends = [&](const Value& with) { return key.ends_with(with.text); };
  return lists(hf_table("ignored"), key) ||
         std::ranges::any_of(hf_table("ignored_beginnings").items, begins) ||
         std::ranges::any_of(hf_table("ignored_endings").items, ends);
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

class Adoption {
 public:
  Adoption(Value& document, Diagnostics& diagnostics, std::vector<std::string>& notes)
      : document_(document), diagnostics_(diagnostics), notes_(notes) {}

  void run() {
    published_ = document_.find("dim") != nullptr && document_.find("n_layers") != nullptr &&
                 document_.find("norm_eps") != nullptr && document_.find("model_type") == nullptr;
    take_language_model();
    join_map("attn_config");
    join_map("ffn_config");
    rename_keys();
    has_experts_ = has_experts(document_);
    find_type();
    for (const Value::Entry& entry : document_.entries) {
      if (entry.value.kind != Value::Kind::null) adopt(entry);
    }
    check_projection();
    check_needs();
    settle_experts();
    settle_heads();
    settle_biases();
    settle_dropout();
    settle_window();
    settle_family();
    settle_latents();
    if (!missing_.empty()) add_default("missing", missing_);
    document_.entries = std::move(kept_);
    if (!meaningless_.empty())
      notes_.push_back(fmt::format("{}: {} of its keys change nothing that is predicted",
                                   document_.source->name, meaningless_.size()));
    note("not understood and ignored", unknown_);
  }

 private:
  const Value::Entry* given(std::string_view key) const { return given_in(document_, key); }

  bool is(std::string_view key, std::string_view text) const {
    const Value::Entry* entry = given(key);
    return entry != nullptr && entry->value.text == text;
  }

  bool is_of(std::string_view type) const { return type_ && type_->name == type; }

  double number_of(std::string_view key) const {
    const KeyRow* row = find_key("model", key);
    for (const Value::Entry& entry : document_.entries) {
      const bool same = row != nullptr && find_key("model", entry.key.text) == row;
      if ((same || entry.key.text == key) && entry.value.kind == Value::Kind::scalar)
        return std::atof(entry.value.text.c_str());
    }
    return 0;
  }

  void note(const char* what, const std::vector<std::string>& keys) {
    if (keys.empty()) return;
    notes_.push_back(fmt::format("{}: {}: {}", document_.source->name, what, listed(keys)));
  }

  // --- maps and names

  /// Takes the language model of one that also sees or hears, which is in a map of its own.
  void take_language_model() {
    const Value::Entry* vision = given("vision_config");
    const Value::Entry* text = given("text_config");
    const bool has_text = text != nullptr && text->value.kind == Value::Kind::map;
    if (vision != nullptr && vision->value.kind == Value::Kind::map) {
      const double width = has_text ? first_of(text->value, {"hidden_size"}) : 0;
      const std::int64_t extra = vision_parameters(vision->value, width);
      missing_ = extra > 0 ? "the vision encoder's compute and activations" : "the vision encoder";
      if (extra > 0) extra_parameters_ = std::to_string(extra);
    }
    if (const std::string parts = parts_beside(document_, has_text); !parts.empty())
      missing_ += (missing_.empty() ? "" : ", ") + parts;
    if (!has_text) {
      refuse_inner_model(document_);
      std::erase_if(document_.entries, [](const Value::Entry& e) {
        return is_part(e) || e.key.text == "vision_config";
      });
      return;
    }
    std::vector<Value::Entry> entries = text->value.entries;
    for (const Value::Entry& outer : document_.entries) {
      const std::string& key = outer.key.text;
      const bool shared = key == "torch_dtype" || key == "dtype" || key == "tie_word_embeddings";
      if (shared && text->value.find(key) == nullptr) entries.push_back(outer);
      if (key == "model_type" && text->value.find(key) == nullptr) {
        entries.push_back(outer);
        for (const char* name : {"gemma3", "llama4"})
          if (outer.value.text == name) entries.back().value.text += "_text";
      }
    }
    document_.entries = std::move(entries);
  }

  /// Joins a map to the others' keys: MPT and DBRX say what attention and experts are in their own.
  void join_map(const char* key) {
    const Value::Entry* map = given(key);
    if (map == nullptr || map->value.kind != Value::Kind::map) return;
    const std::vector<Value::Entry> inner = map->value.entries;
    std::erase_if(document_.entries, [&](const Value::Entry& e) { return e.key.text == key; });
    document_.entries.insert(document_.entries.end(), inner.begin(), inner.end());
  }

  void rename_keys() {
    for (Value::Entry& entry : document_.entries) {
      const std::string_view renamed = said_of(hf_table("renamed"), entry.key.text);
      if (!renamed.empty()) entry.key.text = renamed;
    }
  }

  // --- type

  void find_type() {
    const Value::Entry* said = given("family");
    if (said == nullptr) said = given("model_type");
    if (said != nullptr) origin_ = *said;
    if (said == nullptr && published_) return take_published();
    if (said == nullptr) return find_type_by_activation();
    type_ = find_foreign_type(said->value.text);
    if (const auto what = said_of(hf_table("others"), said->value.text); !what.empty())
      return diagnostics_.add_error(said->value,
                                    fmt::format("the {} '{}' is {}, which is not modelled: only "
                                                "decoders of alike layers are. The nearest that "
                                                "works is a model by its costs, or by a table of "
                                                "its layers (`penstock init` shows both)",
                                                said->key.text, said->value.text, what));
    if (type_) return;
    if (is_like_llama()) return take_by_keys(printable(said->value.text));
    std::vector<std::string> known;
    for (const auto& row : hf_table("types").entries) known.push_back(row.key.text);
    // No suggestion: a neighbour in spelling is another model.
    diagnostics_.add_error(
        said->value,
        fmt::format("the {} '{}' is not known (known: {}); give the model's sizes as keys of a "
                    "scenario's 'model' (docs/scenario.md)",
                    said->key.text, printable(said->value.text), fmt::join(known, ", ")));
  }

  const Value::Entry* gated_activation() const {
    for (const Value& key : hf_table("activations").items) {
      const Value::Entry* entry = given(key.text);
      if (entry != nullptr && lists(hf_table("gated"), entry->value.text)) return entry;
    }
    return nullptr;
  }

  bool is_like_llama() const {
    return gated_activation() != nullptr && given("rms_norm_eps") != nullptr &&
           number_of("ffn_hidden_size") > 0 && number_of("num_attention_heads") > 0;
  }

  void take_by_keys(const std::string& what) {
    by_keys_ = true;
    type_ = find_foreign_type("llama");
    notes_.push_back(fmt::format(
        "{}: the model_type '{}' is not known; all of its keys are a llama's (gated MLP, RMS norm, "
        "rotary positions), so it is taken as one",
        document_.source->name, what));
  }

  /// Takes Llama's and Mistral's own params.json, in which the MLP's width may have to be worked
  /// out (meta-llama/llama3, llama/model.py).
  void take_published() {
    type_ = find_foreign_type("llama");
    if (number_of("ffn_hidden_size") > 0) return;
    const double multiple = std::max(number_of("multiple_of"), 1.0);
    const double factor = given("ffn_dim_multiplier") ? number_of("ffn_dim_multiplier") : 1;
    const double width = std::floor(factor * std::floor(8 * number_of("hidden_size") / 3));
    add_default("ffn_hidden_size", fmt::format("{:.0f}", std::ceil(width / multiple) * multiple));
  }

  /// Finds the type of Megatron's arguments, which have none, and say gates and norms in words of
  /// their own.
  void find_type_by_activation() {
    const Value::Entry* gated = gated_activation();
    if (gated == nullptr) return;
    origin_ = *gated;
    if (is_like_llama()) return take_by_keys("");
    diagnostics_.add_error(
        gated->key, fmt::format("'{}: {}' without a 'model_type' does not say which model it is",
                                gated->key.text, printable(gated->value.text)));
  }

  // --- keys, one by one

  void adopt(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    if (key == "family" || key == "model_type" || lists(hf_table("activations"), key)) return;
    if (is_settled_together(key) || adopted_of_experts(entry) || refused(entry) ||
        translated(entry) || superseded(key))
      return;
    if (find_key("model", key) != nullptr) return keep(entry);
    if (is_meaningless(key)) return meaningless_.push_back(key);
    if (unknown_.size() >= kMostSuggestedKeys) return unknown_.push_back(key);
    std::vector<std::string> known = keys_of("model");
    for (const auto& renamed : hf_table("renamed").entries) known.push_back(renamed.key.text);
    const std::string near = nearest(key, known);
    refuse_slip(entry, near);
    if (near.empty() && entry.value.text == "false") return meaningless_.push_back(key);
    unknown_.push_back(near.empty() ? key : fmt::format("{} (did you mean '{}'?)", key, near));
  }

  /// Makes a slip of a size that the file does not say elsewhere an error.
  void refuse_slip(const Value::Entry& entry, const std::string& near) {
    const KeyRow* row = near.empty() ? nullptr : find_key("model", near);
    if (row == nullptr || number_of(near) > 0 || !lists(hf_table("sizes"), row->key)) return;
    diagnostics_.add_error(entry.key, fmt::format("'{}' is not known; did you mean '{}'?",
                                                  printable(entry.key.text), near));
  }

  /// Returns whether a key means something only with others.
  bool is_settled_together(std::string_view key) {
    return lists(hf_table("windows"), key) || lists(hf_table("dropouts"), key) ||
           hf_table("biases").find(std::string(key)) != nullptr || key == "attention_out_bias" ||
           lists(hf_table("latents"), key) || key == "multi_query" || key == "alibi" ||
           key == "new_decoder_architecture" || key == "multi_query_attention" ||
           key == "attn_type" || key == "learned_pos_emb" || (key == "num_ln_in_parallel_attn") ||
           key == "group_query_attention";
  }

  /// Keeps a key of experts where there are some; Megatron lists their defaults beside
  /// `num_experts: null`.
  bool adopted_of_experts(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    const KeyRow* row = find_key("model", key);
    const bool ours = row != nullptr && lists(hf_table("of_experts"), row->key);
    const bool layers = lists(hf_table("layers_of_experts"), key);
    if (!ours && !layers && !key.starts_with("moe_")) return false;
    const bool unsaid = !has_experts_ && !says_dense(document_) && is_positive(entry.value);
    if (ours && (has_experts_ || unsaid))
      keep(entry);
    else if (!layers || !has_experts_)
      meaningless_.push_back(key);
    return true;
  }

  bool refused(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    const Value* beyond = beyond_us(key);
    if (beyond == nullptr) return refused_parallelism(entry);
    if (is_positive(entry.value))
      diagnostics_.add_error(entry.key, std::string(said_of(*beyond, "why")));
    return true;
  }

  /// Refuses a way to divide a model that is not modelled. DeepSpeed gives the stage of ZeRO in a
  /// map of its own.
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

  /// Keeps what is a key of ours under another name and with other values.
  bool translated(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    const std::string& text = entry.value.text;
    const bool yes = text == "true";
    if (key == "untie_embeddings_and_output_weights") return as(entry, "tie_embeddings", !yes);
    if (key == "share_embeddings_and_output_weights") return as(entry, "tie_embeddings", yes);
    if (key == "use_flash_attn" && text == "auto") {  // Qwen's: where it is installed
      keep(entry, "flash_attention", "true");
      return true;
    }
    if (key == "use_flash_attn") return as(entry, "flash_attention", yes);
    if (key == "swiglu" || key == "gated_linear_unit") return as(entry, "gated_mlp", yes);
    if (key == "params_dtype" || key == "torch_dtype" || key == "dtype") return type(entry);
    if (key == "bf16" || key == "fp16") {
      if (yes) keep(entry, "precision", "mixed-" + key);
      return true;
    }
    if (key == "use_rotary_position_embeddings") {
      if (yes) keep(entry, "positions", "rotary");
      return true;
    }
    if (lists(hf_table("norms_of_queries"), key)) {
      const bool wide =
          is_of("cohere") || is_of("cohere2") || is_of("stablelm") || is_of("minimax_m2");
      if (yes && !is_of("llama4_text"))  // whose norm has no parameters
        keep(entry, "qk_norm", wide ? "width" : "head");
      return true;
    }
    if (key == "expansion_ratio") {
      keep(entry, "ffn_hidden_size",
           fmt::format("{:.0f}", std::atof(text.c_str()) * number_of("hidden_size")));
      return true;
    }
    if (key == "intermediate_size" && is_of("qwen")) {  // of both of its matrices
      keep(entry, "ffn_hidden_size", fmt::format("{:.0f}", std::atof(text.c_str()) / 2));
      return true;
    }
    if (key == "num_nextn_predict_layers") {
      if (is_positive(entry.value))
        notes_.push_back(fmt::format(
            "{}: {} {} is left out, as transformers leaves out the layers that predict further "
            "tokens; mtp_layers: {} adds them",
            document_.source->name, key, printable(text), printable(text)));
      return true;
    }
    // The last is checked with the hidden size at the end.
    return meant(entry) || key == "word_embed_proj_dim";
  }

  /// Keeps what is a word for one of our choices.
  bool meant(const Value::Entry& entry) {
    const std::string& key = entry.key.text;
    const Value* meanings = hf_table("meanings").find(key);
    if (meanings == nullptr) return false;
    // Megatron states learned ones beside the rotary ones, too.
    if (key == "position_embedding_type" && is("use_rotary_position_embeddings", "true"))
      return true;
    for (const Value& m : meanings->items) {
      if (!lists(*m.find("words"), entry.value.text)) continue;
      keep(entry, m.find("key")->text.c_str(), m.find("value")->text);
      return true;
    }
    diagnostics_.add_error(
        entry.value, fmt::format("'{}: {}' is not modelled", key, printable(entry.value.text)));
    return true;
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
    } else if (precision == std::string_view("fp32") && entry.key.text != "params_dtype") {
      notes_.push_back(
          fmt::format("{}: {} float32 says how its weights are stored; mixed-bf16 is predicted "
                      "(model.precision: fp32 for the other)",
                      document_.source->name, entry.key.text));
    } else {
      keep(entry, "precision", precision);
    }
    return true;
  }

  /// Returns whether another key of the file says the same better.
  bool superseded(std::string_view key) const {
    if (key == "max_seq_len" || key == "model_max_length")
      return given("max_position_embeddings") != nullptr || given("seq_length") != nullptr;
    if (lists(hf_table("longest"), key)) return given("seq_length") != nullptr;
    if (key == "vocab_size") return given("padded_vocab_size") != nullptr;
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
    // GPT-2 names n_ctx and n_positions; what differs is reported when the section is read.
    const bool again = std::ranges::any_of(kept_, [&](const Value::Entry& other) {
      return find_key("model", other.key.text) == row && other.value.text == entry.value.text;
    });
    if (!again) kept_.push_back(entry);
  }

  // --- keys together

  /// Adds a key that the file does not give, in the place of its type.
  void add_default(const char* key, std::string_view text) {
    const KeyRow* row = find_key("model", key);
    const bool there = std::ranges::any_of(
        kept_, [&](const Value::Entry& other) { return find_key("model", other.key.text) == row; });
    if (there) return;
    Value::Entry entry = origin_.value_or(Value::Entry{document_, document_});
    for (Value* value : {&entry.key, &entry.value}) {
      value->kind = Value::Kind::scalar;
      value->entries.clear();
    }
    entry.key.text = key;
    entry.value.text = text;
    kept_.push_back(std::move(entry));
  }

  void check_projection() {
    const double hidden = number_of("hidden_size"), projected = number_of("word_embed_proj_dim");
    if (projected > 0 && projected != hidden) {
      diagnostics_.add_error(given("word_embed_proj_dim")->key,
                             "a word_embed_proj_dim other than hidden_size is not modelled");
    }
  }

  /// Transformers has defaults for what experts and latent attention are, those of one size.
  void check_needs() {
    if (!type_ || type_->needs == nullptr) return;
    if (const auto unsaid = unsaid_needs(document_, *type_->needs); !unsaid.empty())
      diagnostics_.add_error(
          origin_->value, fmt::format("it does not say {}, without which a '{}' would be another "
                                      "model",
                                      listed(unsaid), type_->name));
  }

  void drop(const char* key) {
    const KeyRow* row = find_key("model", key);
    std::erase_if(kept_,
                  [&](const Value::Entry& e) { return find_key("model", e.key.text) == row; });
  }

  /// Settles which heads share keys and values, and what Falcon's two generations make of a layer.
  void settle_heads() {
    const bool newer = is("new_decoder_architecture", "true");
    const bool usually_one = is_of("falcon") || is_of("gpt_bigcode");
    const bool one = is("multi_query", "true") || is("attn_type", "multiquery_attention") ||
                     (usually_one && !is("multi_query", "false"));
    if (one && !newer) {
      drop("num_query_groups");
      add_default("num_query_groups", "1");
    } else if (is("multi_query_attention", "false") || is("group_query_attention", "false") ||
               (usually_one && !newer)) {
      drop("num_query_groups");
    } else if (is("group_query_attention", "true") && number_of("num_query_groups") == 0) {
      diagnostics_.add_error(given("group_query_attention")->key,
                             "'group_query_attention: true' needs 'num_query_groups', too");
    }
    if (is("alibi", "true")) add_default("positions", "alibi");
    if (is_of("mpt") && !is("alibi", "true") && !is("rope", "true"))
      add_default("positions", "learned");
    if (is_of("falcon")) {
      const bool parallel = newer || !is("parallel_attn", "false");
      add_default("parallel_residual", parallel ? "true" : "false");
      add_default("norms", parallel && !newer ? "1" : "2");
    }
    // The published 180B has an LM head of its own (179,522,565,120 parameters), its config.json
    // does not say so.
    if (is_of("falcon") && number_of("hidden_size") == 14848)
      add_default("tie_embeddings", "false");
    if (is_of("stablelm") && is("use_parallel_residual", "true")) add_default("norms", "1");
    // The published 15B has an LM head of its own, the smaller ones do not; their files are alike.
    if (is_of("starcoder2") && number_of("hidden_size") == 6144)
      add_default("tie_embeddings", "false");
  }

  void settle_biases() {
    Biases usual = Biases::none;
    if (type_) {
      const bool llama = said_of(*type_->facts, "family") == "llama";
      usual = form_of(llama ? Family::llama : Family::gpt).biases;
      if (const std::string_view biases = said_of(*type_->facts, "biases"); !biases.empty())
        usual = static_cast<Biases>(std::ranges::find(kBiasesNames, biases) - kBiasesNames);
    } else {
      usual = Biases::all;
    }
    LayerForm form;
    form.biases = usual;
    bool qkv = form.has_qkv_biases(), output = form.has_projection_bias();
    bool mlp = form.has_mlp_biases(), said = false;
    const auto say = [&](std::string_view which, bool yes) {
      said = true;
      if (which == "qkv" || which == "attention" || which == "all") qkv = yes;
      if (which == "attention" || which == "all") output = yes;
      if (which == "mlp" || which == "all") mlp = yes;
    };
    for (const bool all : {true, false}) {  // what all have first, what some have then
      for (const auto& row : hf_table("biases").entries) {
        const std::string& key = row.key.text;
        const std::string_view which = row.value.text;
        const Value::Entry* entry = given(key);
        const bool is_all = which.ends_with("all");
        if (entry == nullptr || is_all != all || (key == "no_bias" && is_of("qwen"))) continue;
        const bool yes = (entry->value.text == "true") != which.starts_with('!');
        say(is_all ? "all" : !which.empty() ? which : type_ ? type_->bias : "attention", yes);
        if (is_all && is_of("mpt") && yes) add_default("norm", "layer");
      }
    }
    if (is("attention_out_bias", "false")) output = false;
    if (!said) return;
    const Biases biases = mlp && qkv      ? Biases::all
                          : mlp           ? Biases::mlp
                          : qkv && output ? Biases::attention
                          : qkv           ? Biases::qkv
                                          : Biases::none;
    add_default("biases", kBiasesNames[static_cast<std::size_t>(biases)]);
  }

  void settle_dropout() {
    bool said = false, some = false;
    for (const Value& key : hf_table("dropouts").items) {
      const Value::Entry* entry = given(key.text);
      said = said || entry != nullptr;
      some = some || (entry != nullptr && is_positive(entry->value));
    }
    if (said) add_default("dropout", some ? "true" : "false");
  }

  /// Returns how many of the layers that are listed by name attend to everything.
  std::optional<int> listed_full_layers() {
    const Value::Entry* types = given("layer_types");
    if (types == nullptr || types->value.kind != Value::Kind::list) return std::nullopt;
    int full = 0;
    std::vector<std::string> refused;
    for (const Value& type : types->value.items) {
      // A token of a chunk attends to all before it in the chunk.
      const bool chunked = type.text == "chunked_attention";
      if (type.text == "full_attention" || chunked) ++full;
      if (chunked && full == 1)
        notes_.push_back(
            fmt::format("{}: attention within chunks is taken as full", document_.source->name));
      if (type.text == "full_attention" || type.text == "sliding_attention" || chunked) continue;
      if (std::ranges::find(refused, type.text) == refused.end())
        diagnostics_.add_error(
            type,
            fmt::format("layers of '{}' are not modelled ({} of {} are such)", printable(type.text),
                        std::ranges::count(types->value.items, type.text, &Value::text),
                        types->value.items.size()));
      refused.push_back(type.text);
    }
    const auto listed = types->value.items.size();
    const double layers = number_of("num_layers");
    if (layers > 0 && static_cast<double>(listed) != layers)
      diagnostics_.add_error(
          types->key,
          fmt::format("'layer_types' lists {} layers, but the model has {:.0f}", listed, layers));
    return full;
  }

  void settle_window() {
    const int layers = static_cast<int>(std::clamp(number_of("num_layers"), 0.0, 1e6));
    const std::optional<int> full = listed_full_layers();
    const Value::Entry* window = given("sliding_window");
    // Qwen's layers from max_window_layers on have a window, where there is one at all.
    const int without = full ? *full
                        : given("use_sliding_window")
                            ? static_cast<int>(std::clamp(number_of("max_window_layers"), 0.0, 1e6))
                            : 0;
    const bool unless_said = type_ && type_->name.starts_with("qwen");
    const bool off = is("use_sliding_window", "false") ||
                     (unless_said && given("use_sliding_window") == nullptr) ||
                     (layers > 0 && without >= layers);
    const bool few = full ? 3 * without > 2 * layers : without > 0;
    no_window_ = off || few || (document_.find("sliding_window") != nullptr && window == nullptr);
    if (few && !off && window != nullptr && is_positive(window->value))
      notes_.push_back(fmt::format(
          "{}: the sliding window of {} of its {} layers is left out: all attend to everything",
          document_.source->name, layers - without, layers));
    if (window == nullptr || no_window_ || !is_positive(window->value)) return;
    keep(*window);
    const Value::Entry* pattern = given("sliding_window_pattern");
    if (full) {
      no_pattern_ = *full == 0;
      if (*full > 0)
        add_default("full_attention_every", std::to_string(std::max(2, layers / *full)));
    } else if (pattern != nullptr) {  // a number, or text such as LLLG
      const auto number = std::atof(pattern->value.text.c_str());
      add_default("full_attention_every",
                  number > 0 ? pattern->value.text : std::to_string(pattern->value.text.size()));
    }
  }

  /// Adds the facts of its type; what has none is a llama if it has all that makes one.
  void settle_family() {
    const auto has = [&](std::string_view key, std::string_view text) {
      return std::ranges::any_of(
          kept_, [&](const Value::Entry& e) { return e.key.text == key && e.value.text == text; });
    };
    if (!extra_parameters_.empty()) add_default("extra_parameters", extra_parameters_);
    if (!type_) {
      const bool gated = has("gated_mlp", "true");
      if (gated && number_of("ffn_hidden_size") == 0)
        diagnostics_.add_error(document_, "a gated MLP ('swiglu') needs 'ffn_hidden_size', too");
      if (gated && has("norm", "rms") && has("positions", "rotary")) add_default("family", "llama");
      return;
    }
    if (by_keys_ && !unknown_.empty()) {
      diagnostics_.add_error(
          origin_->value,
          fmt::format("the model_type '{}' is not known, and not all of its keys are: {}",
                      printable(origin_->value.text), listed(unknown_)));
    }
    for (const auto& [key, value] : type_->facts->entries) {
      const bool of_window = key.text == "full_attention_every";
      if (!of_window || (!no_window_ && !no_pattern_)) add_default(key.text.c_str(), value.text);
    }
    std::vector<std::string> defaults;
    for (const auto& [key, value] :
         type_->defaults != nullptr ? type_->defaults->entries : std::vector<Value::Entry>{}) {
      const auto before = kept_.size();
      if (key.text != "sliding_window" || !no_window_) add_default(key.text.c_str(), value.text);
      if (kept_.size() > before) defaults.push_back(fmt::format("{}: {}", key.text, value.text));
    }
    if (!defaults.empty())
      notes_.push_back(fmt::format("{}: not said, so as {} has it: {}", document_.source->name,
                                   type_->name, fmt::join(defaults, ", ")));
    // Without a window there is no pattern of it.
    if (std::ranges::none_of(kept_,
                             [](const Value::Entry& e) { return e.key.text == "sliding_window"; }))
      drop("full_attention_every");
  }

  /// Settles which layers have experts, and how wide the shared ones are.
  void settle_experts() {
    if (!has_experts_) return;
    const auto layers = static_cast<int>(std::clamp(number_of("num_layers"), 0.0, 1e6));
    const auto rule = expert_layers(layers_with_experts(document_, layers));
    drop("first_dense_layers");
    if (rule) {
      add_default("first_dense_layers", std::to_string(rule->first_dense));
      add_default("expert_layer_every", std::to_string(rule->every));
    } else if (layers > 0) {
      for (const Value& key : hf_table("layers_of_experts").items)
        if (const Value::Entry* entry = given(key.text)) {
          diagnostics_.add_error(
              entry->key,
              fmt::format("'{}' gives experts to layers that follow no rule of ours: all behind "
                          "first_dense_layers, or every n-th of them",
                          key.text));
          break;
        }
    }
    const auto text = [](double number) { return fmt::format("{:.0f}", number); };
    if (is_of("llama4_text")) {  // Llama4TextMoe: one shared expert, as wide as the others
      const double width = number_of("ffn_hidden_size");
      drop("ffn_hidden_size");
      const double dense = number_of("intermediate_size_mlp");
      add_default("ffn_hidden_size", text(dense > 0 ? dense : width));
      add_default("expert_ffn_hidden_size", text(width));
      add_default("shared_expert_ffn_hidden_size", text(width));
    }
    const double shared =
        first_of(document_, {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"});
    const double own = number_of("expert_ffn_hidden_size");
    if (shared > 0)
      add_default("shared_expert_ffn_hidden_size",
                  text(shared * (own > 0 ? own : number_of("ffn_hidden_size"))));
  }

  /// Makes a map of ours of what DeepSeek's and Megatron's keys say of latent attention.
  void settle_latents() {
    const bool said = is("multi_latent_attention", "true");
    if (is("multi_latent_attention", "false") || (!said && !is_positive_key("kv_lora_rank")))
      return;
    for (const char* key : {"head_dim", "num_query_groups", "qk_norm"}) drop(key);
    // As Megatron-LM has them where its arguments do not say them (MLATransformerConfig).
    struct Row {
      const char* key;
      std::initializer_list<const char*> theirs;
      double usual;
    };
    Value map;
    map.kind = Value::Kind::map;
    for (const Row& row : {Row{"q_rank", {"q_lora_rank"}, 0}, Row{"kv_rank", {"kv_lora_rank"}, 32},
                           Row{"rope_dim", {"qk_rope_head_dim", "qk_pos_emb_head_dim"}, 64},
                           Row{"nope_dim", {"qk_nope_head_dim", "qk_head_dim"}, 128},
                           Row{"value_dim", {"v_head_dim"}, 128}}) {
      double size = first_of(document_, row.theirs);
      if (size == 0 && said) size = row.usual;
      if (size == 0) continue;
      Value::Entry entry = origin_.value_or(Value::Entry{document_, document_});
      for (Value* value : {&entry.key, &entry.value}) {
        value->kind = Value::Kind::scalar;
        value->entries.clear();
      }
      entry.key.text = row.key;
      entry.value.text = fmt::format("{:.0f}", size);
      map.entries.push_back(std::move(entry));
    }
    add_default("latent_attention", "");
    Value& value = kept_.back().value;
    value.kind = Value::Kind::map;
    value.entries = std::move(map.entries);
  }

  bool is_positive_key(std::string_view key) const {
    const Value::Entry* entry = given(key);
    return entry != nullptr && is_positive(entry->value);
  }

  Value& document_;
  Diagnostics& diagnostics_;
  std::vector<std::string>& notes_;
  std::optional<ForeignType> type_;
  std::optional<Value::Entry> origin_;  ///< where the file says its type
  bool published_ = false, by_keys_ = false, no_window_ = false, no_pattern_ = false;
  bool has_experts_ = false;
  std::string missing_, extra_parameters_;
  std::vector<Value::Entry> kept_;
  std::vector<std::string> meaningless_, unknown_;
};

}  // namespace

void adopt_foreign_model(Value& document, Diagnostics& diagnostics,
                         std::vector<std::string>& notes) {
  Adoption(document, diagnostics, notes).run();
}

std::string note_on_length(const Value& model) {
  for (const Value::Entry& entry : model.entries) {
    const bool foreign = entry.key.source != nullptr && entry.key.source->name.ends_with(".json");
    if (!foreign || !lists(hf_table("longest"), entry.key.text)) continue;
    return fmt::format(
        "{}: seq_length {} is the file's {}, the longest the model can take; set model.seq_length "
        "to what you train with, as in {{base: FILE, seq_length: 4096}}",
        entry.key.source->name, printable(entry.value.text), entry.key.text);
  }
  return "";
}

}  // namespace penstock
