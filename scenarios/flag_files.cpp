// SPDX-License-Identifier: Apache-2.0
#include "scenarios/flag_files.hpp"

#include "base/error.hpp"
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"
#include "scenarios/document.hpp"
#include "scenarios/documents.hpp"
#include "scenarios/flag_values.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/recipe_classes.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Returns Megatron's option that another tool's key is (scenarios/import), or the key itself.
std::string megatron_name(const std::string& others, const std::string& key) {
  const std::string_view named =
      others.empty() ? std::string_view() : said_of(import_table(others, "names"), key);
  return named.empty() ? key : std::string(named);
}

/// Reads the keys of a section of Megatron-LM's own names, those of maps within it as well.
class FlagSection {
 public:
  /// `others`: whose names some keys have (scenarios/import); none: all are Megatron's.
  explicit FlagSection(OptionReader& out, std::string others = {})
      : out_(out), others_(std::move(others)) {}

  void read(const Value& section, const std::string& prefix = "") {
    for (const Value::Entry& e : section.entries) {
      if (e.value.kind == Value::Kind::map)
        read(e.value, dashed(e.key.text) == "tokenizer" ? "tokenizer-" : "");
      else
        read_key(e, prefix);
    }
  }

 private:
  void read_key(const Value::Entry& e, const std::string& prefix) {
    const std::string key =
        (dashed(e.key.text).starts_with(prefix) ? "" : prefix) + dashed(e.key.text);
    const std::string text = lower_case(e.value.text);
    const std::string shown = fmt::format("{}: {}", e.key.text, e.value.text);
    const auto add = [&](const char* name, const std::string& value = "") {
      out_.add_option(name, value, e.value, shown);
    };
    if (key.ends_with("target-")) return;  // _target_, a class in Python
    if (key == "ffn-hidden-size" && text.starts_with("${multiply:4")) return;  // as by default
    if (key == "activation" || key == "activation-func") {
      if (text.find("glu") != text.npos) add("swiglu");
    } else if (key == "gated-linear-unit") {
      if (says_yes(&e.value)) add("swiglu");
    } else if (key == "add-bias-linear" || key == "bias") {
      add(text == "false" ? "disable-bias-linear" : "add-bias-linear");
    } else if (key == "share-embeddings-and-output-weights") {
      if (!says_yes(&e.value) && e.value.kind != Value::Kind::null)
        add("untie-embeddings-and-output-weights");
    } else if (key == "precision" || key == "mixed-precision") {
      if (text.find("bf16") != text.npos)
        add("bf16");
      else if (text.find("16") != text.npos)
        add("fp16");
      // Megatron-Bridge's recipes (src/megatron/bridge/training/mixed_precision.py).
      if (text.find("nvfp4") != text.npos) add("fp4-format", "e2m1");
      if (text.find("fp8") != text.npos)
        add("fp8-format", text.find("mxfp8") != text.npos ? "e4m3" : "hybrid");
      for (const auto& [part, recipe] :
           {std::pair{"mxfp8", "mxfp8"}, std::pair{"current_scaling", "tensorwise"},
            std::pair{"subchannel_scaling", "blockwise"}, std::pair{"delayed_scaling", "delayed"}})
        if (text.find(part) != text.npos) add("fp8-recipe", recipe);
    } else if (key == "grad-reduce-in-fp32") {
      if (!says_yes(&e.value) && !text.empty()) add("grad-reduce-in-bf16");
    } else if (key == "num-query-groups") {
      out_.add_option("num-query-groups", e.value, e.key.text);
      if (e.value.kind != Value::Kind::null) add("group-query-attention");
    } else if (key == "name" && (text.find("distributed_fused_adam") != text.npos ||
                                 text.find("distributed_optim") != text.npos)) {
      add("use-distributed-optimizer");
    } else if (key == "grad-sync-dtype") {
      if (text.find("bf16") != text.npos || text.find("bfloat16") != text.npos)
        add("grad-reduce-in-bf16");
    } else if (others_.empty() || !lists(import_table(others_, "silent"), key)) {
      out_.add_option(megatron_name(others_, key), e.value,
                      prefix.empty() ? e.key.text : "tokenizer." + e.key.text);
    }
  }

  OptionReader& out_;
  std::string others_;
};

// ---- Megatron-LM's own

/// Reads keys with their dashes, as on a command line, or without.
void read_flags(const Value& map, OptionReader& out) {
  for (const Value::Entry& e : map.entries) {
    if (e.value.kind == Value::Kind::map)
      read_flags(e.value, out);
    else
      out.add_option(dashed(e.key.text), e.value, e.key.text);
  }
}

// ---- Primus

/// Returns a file beside `path`, or in a folder of models near it.
std::optional<std::string> file_near(const std::string& origin, const std::string& name) {
  const fs::path beside = fs::path(origin).parent_path();
  std::error_code ignored;
  for (const fs::path& folder : {beside, beside / "models", beside / "models/megatron"})
    if (fs::is_regular_file(folder / name, ignored)) return (folder / name).string();
  return std::nullopt;
}

/// What a file of a model extends comes first, as its own keys go over that.
void read_model_file(const std::string& path, OptionReader& out, std::set<std::string>& open) {
  if (!open.insert(path).second) return;
  const Value file = load_document(path);
  Value own = file;
  std::erase_if(own.entries, [&](const Value::Entry& e) {
    if (e.key.text != "extends" && e.key.text != "includes") return false;
    for (const Value& item : e.value.items)
      if (const auto named = file_near(path, item.text)) read_model_file(*named, out, open);
    return true;
  });
  FlagSection(out).read(own);
}

/// A model by a Primus file's name is shipped, or lies beside the job.
void read_model_named(const Value& name, MegatronJob& job, OptionReader& out) {
  if (const auto file = file_near(job.origin, name.text)) {
    std::set<std::string> open;
    return read_model_file(*file, out, open);
  }
  const std::string wanted = letters_and_digits(fs::path(name.text).stem().string());
  for (const std::string& shipped : shipped_names("models")) {
    if (letters_and_digits(shipped) != wanted) continue;
    job.model = shipped;
    job.notes.push_back(fmt::format("model: {} (which is shipped; '{}' is not beside the job)",
                                    shipped, printable(name.text)));
    return;
  }
  throw InputError(job.origin,
                   fmt::format("its model, '{}', is neither beside it nor shipped: put the file "
                               "there, or give --model config.json|NAME",
                               printable(name.text)));
}

/// Replaces ${NAME:DEFAULT} and ${NAME}, in Primus of the environment, by what --define gives, or
/// by the default.
void fill_in(Value& value, const ScriptSurroundings& defined) {
  for (Value::Entry& e : value.entries) fill_in(e.value, defined);
  for (Value& item : value.items) fill_in(item, defined);
  std::string& text = value.text;
  for (std::size_t at = text.find("${"); at != text.npos; at = text.find("${", at + 1)) {
    const std::size_t end = text.find('}', at);
    if (end == text.npos) return;
    const std::string inside = text.substr(at + 2, end - at - 2);
    const std::size_t colon = std::min(inside.find(':'), inside.size());
    std::string otherwise = inside.substr(std::min(colon + 1, inside.size()));
    if (otherwise.starts_with('-')) otherwise.erase(0, 1);
    const auto given = defined.find(inside.substr(0, colon));
    if (given == defined.end() && colon == inside.size()) continue;
    text.replace(at, end + 1 - at, given == defined.end() ? otherwise : given->second);
  }
}

void read_primus(Value modules, MegatronJob& job, OptionReader& out) {
  fill_in(modules, job.defined);
  const Value* trainer = nullptr;
  for (const Value::Entry& e : modules.entries)
    if (entry(&e.value, "framework") != nullptr) trainer = &e.value;
  const Value* framework = entry(trainer, "framework");
  if (framework == nullptr || lower_case(framework->text) != "megatron")
    throw InputError(
        job.origin,
        fmt::format("its framework is '{}'; modules of 'megatron' are read here{}",
                    framework == nullptr ? "not given" : printable(framework->text),
                    framework != nullptr && lower_case(framework->text) == "torchtitan"
                        ? ", torchtitan's own TOML by `penstock import torchtitan-config`"
                        : ""));
  const Value* model = entry(trainer, "model");
  if (model != nullptr && job.model.empty()) read_model_named(*model, job, out);
  if (const Value* overrides = entry(trainer, "overrides")) FlagSection(out).read(*overrides);
  // primus/configs/modules/megatron/pre_trainer.yaml and models/megatron/language_model.yaml
  out.has_option("bf16") || out.has_option("fp16")
      ? void()
      : out.add_option("bf16", "", modules, "bf16 (Primus' default)");
}

// ---- NeMo, Megatron-Bridge

/// Throws InputError where NeMo's model is no single stack of layers.
void refuse_other_nemo(const Value& model, const std::string& origin) {
  for (const auto& [key, why] : import_table("nemo", "other_models").entries)
    if (const Value* found = entry(&model, key.text); found != nullptr && !is_null(*found))
      throw InputError(origin,
                       fmt::format("'model.{}' trains no decoder-only GPT: {}. Such a model "
                                   "is not read from flags; give its costs (`penstock init` "
                                   "shows the keys of a model by costs)",
                                   printable(key.text), why.text));
  for (const Value::Entry& e : model.entries)
    if (e.value.kind == Value::Kind::map && dashed(e.key.text) == "config")
      refuse_other_nemo(e.value, origin);
}

/// What a file says of a gated MLP's other choices it has from its model's class, which it may not
/// repeat: those are Llama's here. Recipes of Megatron-Bridge train in bf16.
void add_recipes_defaults(const Value& document, MegatronJob& job, OptionReader& out) {
  const auto add = [&](const char* name, const char* value, const char* key) {
    out.add_option(name, value, document, name);
    job.notes.push_back(fmt::format("{} (the recipe's, as the file does not say it)", key));
  };
  if (out.has_option("swiglu")) {
    if (!out.has_option("normalization")) add("normalization", "RMSNorm", "model.norm: rms");
    if (!out.has_option("position-embedding-type"))
      add("position-embedding-type", "rope", "model.positions: rotary");
    if (!out.has_option("add-bias-linear") && !out.has_option("disable-bias-linear"))
      add("disable-bias-linear", "", "model.biases: none");
  }
  if (entry(&document, "trainer") == nullptr && entry(&document, "mixed-precision") == nullptr &&
      !out.has_option("bf16") && !out.has_option("fp16"))
    add("bf16", "", "model.precision: mixed-bf16");
}

/// Reads what NeMo 1's distributed_fused_adam keeps of a parameter beside weights in bf16
/// (megatron_amp_O2): moments in optim.dtype and, where that is fp32, the 16 bits that bf16 weights
/// lack of fp32 ones (nlp/models/language_modeling/megatron_base_model.py, setup_optimization).
/// Returns false for other optimizers and types, which it does not read.
bool read_apex_adam(const Value& document, OptionReader& out) {
  const Value* model = entry(&document, "model");
  const Value* optim = entry(model, "optim");
  const Value* name = entry(optim, "name");
  const Value* precision = entry(entry(&document, "trainer"), "precision");
  const bool is_bf16 = precision == nullptr || lower_case(precision->text).starts_with("bf16");
  if (name == nullptr || name->text != "distributed_fused_adam" || !is_bf16 ||
      !says_yes(entry(model, "megatron-amp-o2")))
    return false;
  const Value* dtype = entry(optim, "dtype");
  const bool narrow = dtype != nullptr && lower_case(dtype->text).find("bf") != std::string::npos;
  const Value* stored = entry(optim, "store-params");
  const char* const moments = narrow ? "bf16" : "fp32";
  const char* const master = stored != nullptr && says_yes(stored) ? "fp32"
                             : narrow                              ? "none"
                                                                   : "bf16";
  const Value& from = dtype != nullptr ? *dtype : *name;
  const std::string shown = "optim.dtype";
  out.add_option("use-precision-aware-optimizer", "", from, "distributed_fused_adam");
  out.add_option("main-params-dtype", master, from, "optim, weights beside those in bf16:");
  for (const char* moment : {"exp-avg-dtype", "exp-avg-sq-dtype"})
    out.add_option(moment, moments, from, shown);
  if (narrow && entry(optim, "grad-sync-dtype") == nullptr)
    out.add_option("grad-reduce-in-bf16", "", from, shown);
  return true;
}

/// Erases keys of NeMo's that mean nothing beside others: what fp8 is like where there is none, and
/// the optimizer's type where it was read apart.
void erase_without_meaning(Value& section, bool optimizer_is_read) {
  const bool narrow = says_yes(entry(&section, "fp8"));
  std::erase_if(section.entries, [&](const Value::Entry& e) {
    const std::string key = dashed(e.key.text);
    return !narrow && (key == "fp8-hybrid" || key == "fp8-e4m3");
  });
  for (Value::Entry& e : section.entries)
    if (optimizer_is_read && dashed(e.key.text) == "optim")
      std::erase_if(e.value.entries, [](const Value::Entry& o) {
        return dashed(o.key.text) == "dtype" || dashed(o.key.text) == "store-params";
      });
}

/// Notes which sizes sections say otherwise; the last counts.
void note_said_twice(MegatronJob& job) {
  std::map<std::string, const ScriptOption*> said;
  for (const ScriptOption& option : job.options) {
    if (option.values.size() != 1 || option.values[0] == "null") continue;
    const bool counts = option.name.ends_with("-size") || option.name == "seq-length" ||
                        option.name.starts_with("num-layers");
    const auto [before, is_first] = said.try_emplace(option.name, &option);
    if (counts && !is_first && before->second->values != option.values)
      job.notes.push_back(fmt::format("{} {} ({}; {} in another section does not count)",
                                      option.name, as_comment(option.values[0]),
                                      as_comment(option.shown),
                                      as_comment(before->second->values[0])));
    before->second = &option;
  }
}

/// The sections that say what is trained and how it is divided; the others say nothing of that.
void read_nemo(const Value& document, MegatronJob& job, OptionReader& out) {
  const Value* model = entry(&document, "model");
  if (model != nullptr) refuse_other_nemo(*model, job.origin);
  if (const Value* target = entry(model, "target-"))  // a class in Python
    for (const char* kind : {".t5.", ".bert.", ".vlm.", ".mamba.", ".multimodal."})
      if (lower_case(target->text).find(kind) != std::string::npos)
        job.programs.push_back(lower_case(target->text));
  const Value* tokenizer = entry(model, "tokenizer");
  const Value* type = entry(tokenizer, "type");
  if (entry(model, "bert-binary-head") != nullptr ||
      (type != nullptr && lower_case(type->text).starts_with("bert")))
    job.programs.emplace_back("pretrain_bert");
  if (const Value* peft = entry(&document, "peft");
      peft != nullptr && !is_null(*peft) && lower_case(peft->text) != "none")
    out.add_option("peft", "", *peft, "peft");
  FlagSection section(out, "nemo");
  const bool by_trainer = entry(&document, "trainer") != nullptr;
  const bool optimizer_is_read = by_trainer && read_apex_adam(document, out);
  for (const char* name : {"trainer", "model", "train", "data", "optim", "optimizer", "ddp", "dist",
                           "mixed-precision", "tokenizer", "dataset", "comm-overlap"}) {
    const Value* part = entry(&document, name);
    if (part == nullptr) continue;
    Value kept = *part;
    std::erase_if(kept.entries, [](const Value::Entry& e) {
      return e.value.kind == Value::Kind::map &&
             lists(import_table("nemo", "silent_maps"), dashed(e.key.text));
    });
    if (by_trainer) erase_without_meaning(kept, optimizer_is_read);
    if (kept.kind == Value::Kind::map) {
      section.read(kept, std::string_view(name) == "tokenizer" ? "tokenizer-" : "");
    } else {
      Value alone;
      alone.kind = Value::Kind::map;
      Value key = kept;
      key.kind = Value::Kind::scalar;
      key.text = name;
      alone.entries.push_back({key, kept});
      section.read(alone);
    }
  }
  for (const Value* optimizer : {entry(&document, "optim"), entry(model, "optim")})
    if (const Value* name = entry(optimizer, "name");
        name != nullptr && lower_case(name->text).find("distributed") == std::string::npos)
      out.add_option("optimizer", *name, "optim.name");
  note_said_twice(job);
  const Value* of_config = entry(entry(model, "config"), "target-");
  const Value* of_model = entry(model, "target-");
  for (const Value* target : {of_model, of_config})
    if (target != nullptr &&
        (target == of_config || of_config == nullptr || !recipe_class(target->text).why.empty()))
      read_recipe_class(*model, *target, job, out);
}

// ---- DeepSpeed, GPT-NeoX

/// Reads what both have of DeepSpeed's own configuration.
void read_deepspeed(const Value& config, OptionReader& out) {
  const auto add = [&](const char* name, const Value* value, const std::string& shown) {
    if (value != nullptr) out.add_option(name, *value, shown);
  };
  const auto add_switch = [&](const char* name, const Value* value, const char* shown) {
    if (says_yes(value)) out.add_option(name, "", *value, shown);
  };
  const Value* zero = entry(&config, "zero-optimization");
  add("zero-stage", entry(zero, "stage"), "zero_optimization.stage");
  for (const char* offload : {"offload-optimizer", "offload-param"})
    if (const Value* device = entry(entry(zero, offload), "device");
        device != nullptr && lower_case(device->text) != "none")
      out.add_option("cpu-optimizer", "", *device, fmt::format("zero_optimization.{}", offload));
  add_switch("cpu-optimizer", entry(zero, "cpu-offload"), "zero_optimization.cpu_offload");
  add_switch("overlap-comm", entry(zero, "overlap-comm"), "zero_optimization.overlap_comm");
  for (const char* type : {"fp16", "bf16"})
    add_switch(type, entry(entry(&config, type), "enabled"), type);
  if (const Value* sum = entry(entry(&config, "data-types"), "grad-accum-dtype"))
    out.add_option("grad-accum-dtype", *sum, "data_types.grad_accum_dtype");
  add("gradient-accumulation-steps", entry(&config, "gradient-accumulation-steps"),
      "gradient_accumulation_steps");
  if (!out.has_option("zero-stage")) out.add_option("zero-stage", "0", config, "zero_optimization");
}

bool is_neox(const Value& document) {
  return entry(&document, "num-layers") != nullptr &&
         (entry(&document, "pipe-parallel-size") != nullptr ||
          entry(&document, "model-parallel-size") != nullptr ||
          entry(&document, "train-micro-batch-size-per-gpu") != nullptr);
}

/// A gated MLP of GPT-NeoX: its three matrices have together what `intermediate` says of two, in
/// multiples (megatron/model/transformer.py, ParallelMLP).
std::int64_t gated_width(double intermediate, double multiple) {
  const double both = std::ceil(std::floor(intermediate * 2 / 3) / multiple) * multiple;
  return static_cast<std::int64_t>(std::min(both / 2, 1e12));
}

double number_in(const Value& document, std::string_view name, double otherwise) {
  const Value* value = entry(&document, name);
  const double number = value == nullptr ? 0 : std::atof(value->text.c_str());
  return number > 0 ? number : otherwise;
}

/// Throws InputError where GPT-NeoX's attention_config names other layers than full attention.
void refuse_other_attention(const Value& config, const std::string& origin) {
  for (const Value& item : config.items) refuse_other_attention(item, origin);
  const std::string type = lower_case(config.text);
  const bool is_count = type.find_first_not_of("0123456789") == type.npos || type == "all";
  if (config.kind == Value::Kind::scalar && !is_count && type != "global" && type != "flash")
    throw InputError(
        origin, fmt::format("'attention_config' has layers of '{}'; only those of 'global' and "
                            "'flash' are read. Give the model's costs (`penstock init` shows "
                            "the keys of a model by costs)",
                            printable(config.text)));
}

void read_neox(const Value& document, const std::string& origin, OptionReader& out) {
  out.add_option("deepspeed", "", document, "GPT-NeoX runs on DeepSpeed");
  const std::string activation = entry(&document, "activation") == nullptr
                                     ? ""
                                     : lower_case(entry(&document, "activation")->text);
  const Value* type = entry(&document, "mlp-type");
  const bool llama = type != nullptr && lower_case(type->text) == "llama";
  const bool gated = llama || activation.find("glu") != activation.npos;
  const double usual = 4 * number_in(document, "hidden-size", 0);
  const Value* width = entry(&document, "intermediate-size");
  if (gated) out.add_option("swiglu", "", document, "activation: " + activation);
  const Value* biases = entry(&document, "use-bias-in-attn-linear");
  if (llama || (biases != nullptr && !says_yes(biases)))
    out.add_option("disable-bias-linear", "", biases != nullptr ? *biases : document,
                   biases != nullptr ? "use_bias_in_attn_linear: false" : "mlp_type: llama");
  if (gated && usual > 0 && !llama) {
    const std::int64_t each = gated_width(number_in(document, "intermediate-size", usual),
                                          number_in(document, "mlp-multiple-of", 1));
    out.add_option("ffn-hidden-size", std::to_string(each), width != nullptr ? *width : document,
                   "intermediate_size, of which a gated MLP has a third for each matrix");
  } else if (width != nullptr) {
    out.add_option("ffn-hidden-size", *width, "intermediate_size");
  }
  for (const Value::Entry& e : document.entries) {
    const std::string key = dashed(e.key.text);
    if (lists(import_table("gpt-neox", "read_apart"), key)) continue;
    if (e.value.kind == Value::Kind::map) continue;
    out.add_option(megatron_name("gpt-neox", key), e.value, e.key.text);
  }
  read_deepspeed(document, out);
  const Value* half = entry(&document, "fp16");
  const Value* half_type = entry(half, "type");
  const Value* precision = entry(&document, "precision");
  const bool brain = (half_type != nullptr && lower_case(half_type->text) == "bfloat16") ||
                     (precision != nullptr && lower_case(precision->text) == "bfloat16");
  if (brain) out.add_option("bf16", "", *(half != nullptr ? half : precision), "bfloat16");
  const Value* attention = entry(&document, "attention-config");
  if (attention != nullptr) refuse_other_attention(*attention, origin);
  if (attention != nullptr && to_yaml(*attention).find("flash") != std::string::npos)
    out.add_option("use-flash-attn", "", *attention, "attention_config");
  if (const Value* optimizer = entry(entry(&document, "optimizer"), "type"))
    out.add_option("optimizer", *optimizer, "optimizer.type");
}

bool is_deepspeed(const Value& document) {
  return entry(&document, "zero-optimization") != nullptr ||
         entry(&document, "train-micro-batch-size-per-gpu") != nullptr ||
         entry(&document, "train-batch-size") != nullptr;
}

/// Throws InputError where a file is another trainer's, by a key that it alone has: what else it
/// says may have Megatron-LM's names, but not their meaning.
void refuse_other_trainers(const Value& document, const std::string& origin) {
  constexpr std::pair<std::string_view, const char*> kOthers[] = {
      {"base-model", "Axolotl"},
      {"model-name-or-path", "a trainer of Hugging Face's models (TRL, LLaMA-Factory)"}};
  const char* whose =
      entry(entry(&document, "model"), "component-") != nullptr ? "torchtune" : nullptr;
  for (const auto& [key, trainer] : kOthers)
    if (entry(&document, key) != nullptr) whose = trainer;
  if (whose != nullptr)
    throw InputError(origin,
                     fmt::format("is a configuration of {}, which is not read: write a scenario "
                                 "(`penstock init`) with its config.json as model: {{base: "
                                 "config.json, seq_length: N}} and its degrees as pipeline:. "
                                 "Training adapters alone (LoRA) is not modelled: all weights are "
                                 "trained there, which takes at most that time and memory",
                                 whose));
}

}  // namespace

bool has_keys_of_job(const std::string& text, const std::string& origin) {
  const Value document = parse_document(text, origin);
  return is_neox(document) || is_deepspeed(document) || entry(&document, "modules") != nullptr ||
         entry(&document, "model-args") != nullptr || entry(&document, "trainer") != nullptr;
}

bool is_flag_file(std::string_view text, const std::string& origin) {
  for (const char* end : {".yaml", ".yml", ".json"})
    if (origin.ends_with(end)) return true;
  while (!text.empty()) {  // of standard input the first line that says something
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty() || line[0] == '#' || line.starts_with("---")) continue;
    const std::size_t end = line.find_first_not_of(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"");
    return line[0] == '{' ||
           (end != line.npos && end > 0 && line[end] == ':' &&
            (end + 1 == line.size() || line[end + 1] == ' ' || line[end + 1] == '\r'));
  }
  return false;
}

void read_flag_file(const std::string& text, MegatronJob& job) {
  const Value document = parse_document(text, job.origin);
  OptionReader out(job);
  job.is_script = false;
  refuse_other_trainers(document, job.origin);
  const Value* arguments = entry(&document, "model-args");
  if (arguments != nullptr) {
    read_flags(*arguments, out);
  } else if (const Value* modules = entry(&document, "modules")) {
    read_primus(*modules, job, out);
  } else if (is_neox(document)) {
    read_neox(document, job.origin, out);
  } else if (entry(&document, "trainer") != nullptr ||
             (entry(&document, "model") != nullptr && entry(&document, "train") != nullptr)) {
    read_nemo(document, job, out);
    add_recipes_defaults(document, job, out);
  } else if (is_deepspeed(document)) {
    throw InputError(
        job.origin,
        "is DeepSpeed's part of a job: the model and its degrees are in the script that "
        "starts it. Import that, with this file beside it: penstock import "
        "megatron-args train.sh");
  } else {
    FlagSection(out).read(document);
  }
}

namespace {

/// Returns the value of an option of a file's name, and where that file lies beside the script, or
/// "".
struct NamedFile {
  std::string name, path;
};

std::optional<NamedFile> file_of(const MegatronJob& job, std::string_view option) {
  const auto named = std::ranges::find_if(
      job.options, [&](const ScriptOption& o) { return o.name == option && !o.values.empty(); });
  if (named == job.options.end()) return std::nullopt;
  NamedFile out{named->values.front(), ""};
  std::error_code ignored;
  const fs::path beside = fs::path(job.origin).parent_path();
  for (const fs::path& file : {beside / out.name, beside / fs::path(out.name).filename()})
    if (out.path.empty() && fs::is_regular_file(file, ignored)) out.path = file.string();
  return out;
}

/// Returns the last value of an option, which counts; "" where it has none.
std::string last_value(const MegatronJob& job, std::string_view name, std::size_t end) {
  for (std::size_t i = std::min(end, job.options.size()); i-- > 0;)
    if (job.options[i].name == name && !job.options[i].values.empty())
      return job.options[i].values.front();
  return "";
}

/// Lets options of a file, which begin at `own`, count before what the script says otherwise, and
/// notes which these are.
void prefer_file(MegatronJob& job, std::size_t own, const std::string& file) {
  const auto overrule = [&](const std::string& theirs, const std::string& ours) {
    job.notes.push_back(
        fmt::format("{} (of {}; the script's {} does not count)", theirs, as_comment(file), ours));
  };
  for (std::size_t i = own; i < job.options.size(); ++i) {
    const ScriptOption& option = job.options[i];
    const std::string said = option.values.empty() ? "" : option.values.front();
    const std::string before = last_value(job, option.name, own);
    if (!before.empty() && before != said)
      overrule(fmt::format("{} {}", option.name, as_comment(said)),
               fmt::format("--{} {}", option.name, as_comment(before)));
  }
  for (const auto& [type, other] : {std::pair{"fp16", "bf16"}, std::pair{"bf16", "fp16"}}) {
    const auto named = [](const char* name) {
      return [name](const ScriptOption& o) { return o.name == name; };
    };
    const auto of_file = job.options.begin() + static_cast<std::ptrdiff_t>(own);
    if (std::none_of(of_file, job.options.end(), named(type)) ||
        std::none_of(job.options.begin(), of_file, named(other)))
      continue;
    overrule(type, fmt::format("--{}", other));
    const auto kept = std::remove_if(job.options.begin(), of_file, named(other));
    own -= static_cast<std::size_t>(of_file - kept);
    job.options.erase(kept, of_file);
  }
}

}  // namespace

void read_yaml_cfg(MegatronJob& job) {
  const auto file = file_of(job, "yaml-cfg");
  if (!file) return;
  if (file->path.empty())
    throw InputError(job.origin, fmt::format("the file of --yaml-cfg, '{}', is not beside it: put "
                                             "it there, or import it alone",
                                             printable(file->name)));
  OptionReader out(job);
  const std::size_t own = job.options.size();
  FlagSection(out).read(load_document(file->path));
  prefer_file(job, own, file->name);
}

void read_hostfile(MegatronJob& job) {
  const auto file = file_of(job, "hostfile");
  if (!file) return;
  OptionReader out(job);
  for (const char* said : {"include", "num-nodes", "num-gpus", "world-size", "global-num-gpus"})
    if (out.has_option(said)) return;
  if (file->path.empty()) {
    job.notes.push_back(
        fmt::format("the hosts of '{}' are missing: it is not beside it", as_comment(file->name)));
    return;
  }
  Documents documents;
  std::istringstream lines(documents.text(file->path));
  std::string line;
  std::int64_t hosts = 0, gpus = 0;
  for (int at = 1; std::getline(lines, line); ++at) {  // "worker-1 slots=8"
    line.resize(std::min(line.find('#'), line.size()));
    const std::string_view host = trimmed(line);
    if (host.empty()) continue;
    const std::size_t slots = host.find("slots=");
    const auto count = slots == host.npos
                           ? std::nullopt
                           : parse_number<std::int64_t>(std::string(host.substr(slots + 6)));
    if (!count || *count < 1 || *count > 1'000)
      throw InputError(
          fmt::format("{}:{}", file->path, at),
          fmt::format("must be HOST slots=GPUS, got '{}'", printable(std::string(host))));
    ++hosts;
    gpus += *count;
  }
  if (hosts == 0) throw InputError(file->path, "names no host");
  const Value from;
  const std::string shown = fmt::format("--hostfile {}:", file->name);
  out.add_option("nnodes", std::to_string(hosts), from, shown + " hosts");
  out.add_option("world-size", std::to_string(gpus), from, shown + " slots");
}

void read_deepspeed_config(MegatronJob& job) {
  const auto file = file_of(job, "deepspeed-config");
  if (!file) return;
  const auto& [name, path] = *file;
  const auto written = job.written.find(fs::path(name).lexically_normal().string());
  const bool is_written = written != job.written.end();
  if (path.empty() && !is_written) {
    job.notes.push_back(
        fmt::format("what '{}' says is missing: it is not beside the script", printable(name)));
    return;
  }
  const Value config = is_written ? parse_document(written->second, name) : load_document(path);
  OptionReader out(job);
  for (const auto& [theirs, ours] :
       {std::pair{"train-micro-batch-size-per-gpu", "micro-batch-size"},
        std::pair{"train-batch-size", "global-batch-size"}}) {
    const Value* value = entry(&config, theirs);
    if (value == nullptr || is_null(*value) || lower_case(value->text) == "auto") continue;
    if (const std::string given = last_value(job, ours, job.options.size());
        !given.empty() && given != value->text)
      job.notes.push_back(fmt::format("{} {} (the script's; {} has {} {})", ours, as_comment(given),
                                      as_comment(name), theirs, as_comment(value->text)));
    if (theirs == std::string_view("train-batch-size") || !out.has_option(ours))
      out.add_option(ours == std::string_view("micro-batch-size") ? ours : theirs, *value,
                     fmt::format("{} (of {})",
                                 ours == std::string_view("micro-batch-size")
                                     ? "train_micro_batch_size_per_gpu"
                                     : "train_batch_size",
                                 name));
  }
  const std::size_t own = job.options.size();
  read_deepspeed(config, out);
  if (entry(&config, "zero-optimization") == nullptr &&
      !last_value(job, "zero-stage", own).empty() && last_value(job, "zero-stage", own) != "0")
    out.add_option("zero-stage", "0", config, "no zero_optimization");
  prefer_file(job, own, name);
}

}  // namespace penstock
