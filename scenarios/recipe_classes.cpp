// SPDX-License-Identifier: Apache-2.0
#include "scenarios/recipe_classes.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"
#include "scenarios/flag_values.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <vector>

namespace penstock {
namespace {

/// Returns the model that a class names with its size ("Llama31ModelProvider8B"), as it is shipped.
std::string shipped_as(std::string letters) {
  for (const char* word : {"modelprovider", "provider", "config", "model"})
    if (const std::size_t at = letters.find(word); at != letters.npos)
      letters.erase(at, std::string_view(word).size());
  if (const auto named = said_of(import_table("nemo", "shipped_classes"), letters); !named.empty())
    return std::string(named);
  for (const std::string& shipped : shipped_names("models"))
    if (letters_and_digits(shipped) == letters) return shipped;
  return "";
}

/// Returns whether a name counts active parameters: "30ba3b".
bool counts_active(const std::string& letters) {
  const auto digit = [&](std::size_t i) {
    return i < letters.size() && std::isdigit(static_cast<unsigned char>(letters[i])) != 0;
  };
  for (std::size_t at = letters.find("ba"); at != letters.npos; at = letters.find("ba", at + 1))
    if (at > 0 && digit(at - 1) && digit(at + 2)) return true;
  return false;
}

}  // namespace

RecipeClass recipe_class(const std::string& target) {
  RecipeClass out;
  const std::size_t dot = target.rfind('.');
  out.name = target.substr(dot + 1);
  if (out.name == "model" && dot != target.npos) {  // nemo.collections.llm.recipes.llama3_8b.model
    const std::string module = target.substr(0, dot);
    out.name = module.substr(module.rfind('.') + 1);
  }
  const std::string letters = letters_and_digits(out.name);
  const auto has = [&](const Value& word) { return letters.find(word.text) != letters.npos; };
  for (const auto& [word, why] : import_table("nemo", "other_classes").entries)
    if (has(word)) {
      out.family = RecipeClass::Family::other;
      out.why = why.text;
      return out;
    }
  out.shipped = shipped_as(letters);
  const bool gpt = letters.find("gpt") != letters.npos && letters.find("gptoss") == letters.npos;
  const auto any = [&](const char* table) {
    return std::ranges::any_of(import_table("nemo", table).items, has);
  };
  if (letters.find("bert") != letters.npos)
    out.family = RecipeClass::Family::bert;
  else if (gpt)
    out.family = RecipeClass::Family::gpt;
  else if (any("llama_classes"))
    out.family = RecipeClass::Family::llama;
  out.experts = any("expert_classes") || counts_active(letters);
  out.latents = any("latent_classes");
  return out;
}

namespace {

/// Returns a key that a section, or the map `config` in it, says.
const Value* said_in(const Value& model, std::string_view key) {
  for (const Value* map : {&model, entry(&model, "config")})
    if (const Value* value = entry(map, key); value != nullptr && !is_null(*value)) return value;
  return nullptr;
}

/// Adds the sizes of a dense model that is shipped where the file, which has others of its own,
/// does not say them.
void add_sizes_of(const RecipeClass& recipe, const Value& model, const Value& target,
                  MegatronJob& job, OptionReader& out) {
  const TransformerSpec spec = load_model(recipe.shipped);
  if (spec.experts || spec.latent || spec.sliding_window || spec.family != Family::llama)
    throw InputError(job.origin,
                     fmt::format("it has sizes of its own beside those of its class, {}, which "
                                 "only Python says: give them all, or --model config.json|NAME",
                                 printable(recipe.name)));
  const auto add = [&](const char* key, std::int64_t size) {
    if (said_in(model, key) == nullptr)
      out.add_option(key, std::to_string(size), target, fmt::format("{}: {}", recipe.name, key));
  };
  add("num-layers", spec.num_layers);
  add("hidden-size", spec.hidden_size);
  add("ffn-hidden-size", spec.ffn_hidden_size);
  add("num-attention-heads", spec.num_attention_heads);
  add("num-query-groups", spec.num_query_groups);
  if (spec.head_dim) add("kv-channels", *spec.head_dim);
  add("vocab-size", spec.vocab_size);
  out.add_option("group-query-attention", "", target, recipe.name);
  const LayerForm form = spec.form();
  if (form.qk_norm == QueryKeyNorm::head) out.add_option("qk-layernorm", "", target, recipe.name);
  if (form.biases == Biases::qkv) out.add_option("add-qkv-bias", "", target, recipe.name);
  job.notes.push_back(
      fmt::format("sizes that it does not say: those of {} (which is shipped, for "
                  "{})",
                  recipe.shipped, recipe.name));
}

}  // namespace

void read_recipe_class(const Value& model, const Value& target, MegatronJob& job,
                       OptionReader& out) {
  const RecipeClass recipe = recipe_class(target.text);
  const std::string name = printable(recipe.name);
  const char* const instead = "give --model config.json|NAME";
  if (!recipe.why.empty())
    throw InputError(job.origin,
                     fmt::format("'{}' trains no decoder-only GPT: {}. Such a model is not read "
                                 "from flags; give its costs (`penstock init` shows the keys of a "
                                 "model by costs)",
                                 name, recipe.why));
  if (recipe.family == RecipeClass::Family::bert) job.programs.emplace_back("pretrain_bert");
  if (!job.model.empty() || recipe.family == RecipeClass::Family::bert) return;
  constexpr const char* kSizes[] = {"num-layers",          "hidden-size",         "ffn-hidden-size",
                                    "num-attention-heads", "num-query-groups",    "kv-channels",
                                    "num-moe-experts",     "moe-ffn-hidden-size", "moe-router-topk",
                                    "vocab-size"};
  const auto own = std::ranges::count_if(
      kSizes, [&](const char* size) { return said_in(model, size) != nullptr; });
  const Value* vocabulary = said_in(model, "vocab-size");
  const bool of_experts = recipe.experts && own == 1 && vocabulary != nullptr;
  if ((own == 0 || of_experts) && !recipe.shipped.empty()) {
    job.model = recipe.shipped;
    job.notes.push_back(fmt::format("model: {} (which is shipped, for {}{})", job.model, name,
                                    of_experts ? fmt::format("; the file's vocab_size {} does not "
                                                             "count",
                                                             as_comment(vocabulary->text))
                                               : ""));
    return;
  }
  if (recipe.family == RecipeClass::Family::gpt) return;
  if (recipe.family == RecipeClass::Family::unknown)
    throw InputError(job.origin, fmt::format("the class '{}' is not known here, and only Python "
                                             "says what its layers are: {}",
                                             name, instead));
  std::vector<std::string> unsaid;
  const auto need = [&](bool has, const char* key) {
    if (has && said_in(model, key) == nullptr) unsaid.emplace_back(key);
  };
  need(recipe.experts, "num-moe-experts");
  need(recipe.experts, "moe-router-topk");
  need(recipe.experts, "moe-ffn-hidden-size");
  need(recipe.latents, "multi-latent-attention");
  need(recipe.latents, "kv-lora-rank");
  for (std::string& key : unsaid) std::ranges::replace(key, '-', '_');
  if (!unsaid.empty())
    throw InputError(
        job.origin,
        fmt::format("it does not say {}, which only Python says of the class '{}'; put "
                    "{} into the file, or {}",
                    fmt::join(unsaid, ", "), name, unsaid.size() > 1 ? "them" : "it", instead));
  const bool all_said = std::ranges::all_of(std::span(kSizes).first(4), [&](const char* size) {
    return said_in(model, size) != nullptr;
  });
  if (!recipe.shipped.empty() && !all_said) add_sizes_of(recipe, model, target, job, out);
  const auto add = [&](const char* flag) { out.add_option(flag, "", target, name); };
  if (!out.has_option("swiglu")) add("swiglu");
  const bool tied = !recipe.shipped.empty() && load_model(recipe.shipped).tie_embeddings;
  if (!tied && said_in(model, "share-embeddings-and-output-weights") == nullptr)
    add("untie-embeddings-and-output-weights");
}

}  // namespace penstock
