#include "scenarios/config_import.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "models/shape_keys.hpp"
#include "scenarios/document.hpp"
#include "scenarios/documents.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/torchtitan_flavors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace penstock {
namespace {

constexpr const char* kNoTensorOverlap =
    "communication hidden inside of ops is not modelled: each waits for its all-gathers and "
    "reduce-scatters";
constexpr std::int64_t kGpusPerNode = 8;

/// What both say of how a model is divided.
struct Division {
  std::int64_t stages = 1, width = 1, tensor = 1, context = 1, chunks = 1;
  std::int64_t microbatch_size = 1, batch = 1, accumulation_steps = 1;
  bool sequence_parallel = false, distributed_optimizer = false;
  std::string schedule = "1f1b", recompute = "none", stack{};
  std::int64_t recomputed_layers = 0;  ///< of a stage, where not all are
  std::vector<std::int64_t> split{};   ///< layers per virtual stage, where it is said
  bool balanced = false;
};

std::int64_t gpus_of(const Division& d, ImportNotes& notes) {
  return notes.product_of({d.stages, d.width, d.tensor, d.context}, "GPUs");
}

std::string text_of(const Division& d, const std::string& cluster) {
  std::string out =
      fmt::format("cluster: {}\n{}schedule: {}\npipeline:\n  stages: {}\n", cluster,
                  d.stack.empty() ? "" : fmt::format("stack: {}\n", d.stack), d.schedule, d.stages);
  if (d.chunks > 1) out += fmt::format("  chunks: {}\n", d.chunks);
  out += fmt::format("  width: {}\n", d.width);
  if (d.tensor > 1) out += fmt::format("  tensor: {}\n", d.tensor);
  if (d.context > 1) out += fmt::format("  context: {}\n", d.context);
  if (d.tensor > 1 && d.sequence_parallel) out += "  sequence_parallel: true\n";
  if (d.width > 1 && d.distributed_optimizer) out += "  distributed_optimizer: true\n";
  out += fmt::format("  microbatch_size: {}\n  global_batch_size: {}\n  recompute: {}\n",
                     d.microbatch_size, d.batch, d.recompute);
  if (d.recomputed_layers > 0)
    out += fmt::format("  recompute_method: block\n  recompute_layers: {}\n", d.recomputed_layers);
  if (d.accumulation_steps > 1)
    out += fmt::format("  accumulation_steps: {}\n", d.accumulation_steps);
  if (!d.split.empty()) return out + fmt::format("  split: [{}]\n", fmt::join(d.split, ", "));
  return d.balanced && d.stages > 1 ? out + "  split: balanced\n" : out;
}

std::string head(const std::string& origin, const char* command, ImportNotes& notes) {
  return fmt::format("# {} by `penstock import {}`\n{}", as_comment(origin), command,
                     notes.head(origin));
}

bool is_true(std::string text) {
  text = lower_case(std::move(text));
  return text == "true" || text == "yes" || text == "on" || text == "1";
}

// ---- nanotron

constexpr std::string_view kNanotronIgnored[] = {
    "model.model_config.max_position_embeddings",
    "parallelism.expert_tensor_parallel_size",
    "tokens.train_steps",
    "tokens.val_check_interval",
    "tokens.limit_val_batches",
    "tokens.limit_test_batches",
    "model.model_config.bos_token_id",
    "model.model_config.eos_token_id",
    "model.model_config.pad_token_id",
    "model.model_config.hidden_act",
    "model.model_config.initializer_range",
    "model.model_config.is_llama_config",
    "model.model_config.is_qwen2_config",
    "model.model_config.interpolation_factor",
    "model.model_config.rms_norm_eps",
    "model.model_config.rope_interleaved",
    "model.model_config.rope_scaling",
    "model.model_config.rope_theta",
    "model.model_config.rope_seq_len_interpolation_factor",
    "model.model_config.transformers_version",
    "model.model_config.use_cache",
    "model.model_config.z_loss_coefficient",
    "model.model_config.z_loss_enabled",
    "model.model_config.no_rope_layer",
    "model.model_config._attn_implementation",
    "model.model_config._fused_rms_norm",
    "model.model_config._fused_rotary_emb",
    "model.model_config._is_using_mup",
    "model.model_config._use_doc_masking",
    "model.model_config._use_qkv_packed",
    "model.model_config.flex_attention_mask"};
constexpr std::string_view kNanotronIgnoredBeginnings[] = {"checkpoints",
                                                           "data_stages",
                                                           "general",
                                                           "logging",
                                                           "lighteval",
                                                           "metrics_logging",
                                                           "profiler",
                                                           "tokenizer",
                                                           "optimizer.optimizer_factory",
                                                           "optimizer.learning_rate",
                                                           "optimizer.clip_grad",
                                                           "optimizer.weight_decay",
                                                           "s3_upload",
                                                           "model.init_method",
                                                           "model.ddp_bucket_cap_mb",
                                                           "model.make_vocab_size_divisible_by",
                                                           "model.model_config._",
                                                           "model.model_config.init",
                                                           "model.model_config.rope"};
constexpr UnmodelledOption kNanotronUnmodelled[] = {
    {"parallelism.tp_linear_async_communication", kNoTensorOverlap},
    {"parallelism.tp_recompute_allgather", "the repeated all-gather is not modelled"},
    {"parallelism.expert_parallel_size", kNoExperts, kWithoutExperts, Leaves::more, "1"},
    {"parallelism.moe", kNoExperts, kWithoutExperts, Leaves::more},
    {"model.model_config.moe", kNoExperts, kWithoutExperts, Leaves::more},
    {"model.model_config.num_experts", kNoExperts, kWithoutExperts, Leaves::more},
    {"model.model_config.pretraining_tp",
     "products in so many slices, as Hugging Face's Llama computes them, are not modelled"}};
constexpr KnownOptions kNanotronKnown{kNanotronIgnored, kNanotronIgnoredBeginnings,
                                      kNanotronUnmodelled};

/// Leaves of a document, by the way to them: `parallelism.pp`.
void flatten(const Value& value, const std::string& name, std::vector<ScriptOption>& out) {
  if (value.kind == Value::Kind::map) {
    for (const Value::Entry& entry : value.entries)
      flatten(entry.value, name.empty() ? entry.key.text : name + "." + entry.key.text, out);
  } else if (value.kind == Value::Kind::list) {
    for (std::size_t i = 0; i < value.items.size(); ++i)
      flatten(value.items[i], fmt::format("{}[{}]", name, i), out);
  } else {
    out.push_back({name, {value.kind == Value::Kind::null ? "null" : value.text}, value.line});
  }
}

/// Throws InputError where its layers are no Llama's, which nanotron's configurations are unless a
/// switch says otherwise.
void refuse_other_models(ImportNotes& notes, const std::string& origin) {
  for (const auto& [kind, what] : {std::pair{"mamba", "a state-space model, which is not modelled"},
                                   {"starcoder2",
                                    "a StarCoder2; give its config.json of Hugging "
                                    "Face as model: and the degrees as pipeline:"}}) {
    const std::string key = fmt::format("model.model_config.is_{}_config", kind);
    if (is_true(notes.word(key, "")))
      throw InputError(origin, fmt::format("{}: it is {}", key, what));
  }
  if (notes.mentions("model.model_config.d_model") || notes.mentions("model.model_config.ssm_cfg"))
    throw InputError(
        origin,
        "model.model_config has d_model or ssm_cfg: it is a state-space model, which is "
        "not modelled");
}

std::string nanotron_model(ImportNotes& notes, const std::string& origin) {
  refuse_other_models(notes, origin);
  std::string out = "model:\n  family: llama\n";
  std::vector<std::string> unsaid;
  const auto size = [&](const std::string& theirs, const std::string& ours, bool needed) {
    const auto value = notes.number(theirs, "model." + ours);
    if (value) out += fmt::format("  {}: {}\n", ours, *value);
    if (!value && needed) unsaid.push_back(theirs);
  };
  const std::string config = "model.model_config.";
  size(config + "num_hidden_layers", "num_layers", true);
  size(config + "hidden_size", "hidden_size", true);
  size(config + "intermediate_size", "ffn_hidden_size", true);
  size(config + "num_attention_heads", "num_attention_heads", true);
  size(config + "num_key_value_heads", "num_query_groups", false);
  size(config + "head_dim", "head_dim", false);
  size(config + "vocab_size", "vocab_size", true);
  size(config + "sliding_window_size", "sliding_window", false);
  size("tokens.sequence_length", "seq_length", true);
  if (!unsaid.empty())
    throw InputError(origin,
                     fmt::format("it does not say {}, without which it would be another job; put "
                                 "{} into the file",
                                 fmt::join(unsaid, ", "), unsaid.size() > 1 ? "them" : "it"));
  if (is_true(notes.word(config + "attention_bias", "model.biases"))) out += "  biases: qkv\n";
  if (is_true(notes.word(config + "_use_qk_norm", "model.qk_norm"))) out += "  qk_norm: head\n";
  const bool tied = is_true(notes.word(config + "tie_word_embeddings", "model.tie_embeddings"));
  const std::string type = notes.word("model.dtype", "model.precision");
  notes.has("optimizer.accumulate_grad_in_fp32", "model.precision: gradients in fp32");
  return out + fmt::format("  tie_embeddings: {}\n  flash_attention: true\n  precision: {}\n", tied,
                           type == "float32"   ? "fp32"
                           : type == "float16" ? "mixed-fp16"
                                               : "mixed-bf16");
}

Division nanotron_division(ImportNotes& notes) {
  Division d;
  d.stages = notes.number("parallelism.pp", "pipeline.stages").value_or(1);
  d.width = notes.number("parallelism.dp", "pipeline.width").value_or(1);
  d.tensor = notes.number("parallelism.tp", "pipeline.tensor").value_or(1);
  if (notes.word("parallelism.pp_engine", "schedule") == "afab") d.schedule = "gpipe";
  const std::string mode = notes.word("parallelism.tp_mode", "pipeline.sequence_parallel");
  d.sequence_parallel = mode == "REDUCE_SCATTER" || mode == "reduce_scatter";
  d.context = notes.number("parallelism.context_parallel_size", "pipeline.context").value_or(1);
  const char* const experts = "parallelism.expert_parallel_size";
  notes.unless_one(experts, notes.number(experts, "").value_or(1));
  const char* const slices = "model.model_config.pretraining_tp";
  notes.unless_one(slices, notes.number(slices, "").value_or(1));
  for (const char* overlap :
       {"parallelism.tp_linear_async_communication", "parallelism.tp_recompute_allgather"}) {
    const bool on = is_true(notes.word(overlap, "")) && d.tensor > 1;
    notes.unless_one(overlap, on ? 2 : 1);
  }
  if (is_true(notes.word("parallelism.recompute_layer", "pipeline.recompute")))
    d.recompute = "full";
  const std::string zero = notes.word("optimizer.zero_stage", "pipeline.distributed_optimizer");
  d.distributed_optimizer = zero == "1";
  if (zero == "2" || zero == "3") {
    notes.unmodelled("optimizer.zero_stage",
                     "gradients and weights are not sharded here: as with zero_stage: 1");
    if (d.width > 1) notes.leave_out("ZeRO's sharding of gradients and weights", Leaves::less);
  }
  d.distributed_optimizer |= zero == "2" || zero == "3";
  d.microbatch_size =
      notes.number("tokens.micro_batch_size", "pipeline.microbatch_size").value_or(1);
  const auto accumulated =
      notes.number("tokens.batch_accumulation_per_replica", "pipeline.global_batch_size");
  d.batch = notes.product_of({d.microbatch_size, d.width, accumulated.value_or(1)}, "samples");
  d.balanced = true;  // it divides by cost, the head included
  d.stack = "nanotron";
  notes.assume(
      "stack: nanotron (its launches, traffic, memory and overlap; stack: none is the neutral "
      "one)");
  return d;
}

// ---- torchtitan

constexpr std::string_view kTitanIgnored[] = {"training.steps",
                                              "training.max_norm",
                                              "training.seed",
                                              "training.dataset",
                                              "training.dataset_path",
                                              "training.deterministic",
                                              "training.gc_freq",
                                              "training.data_parallel_type",
                                              "model.tokenizer_path",
                                              "model.hf_assets_path",
                                              "parallelism.enable_compiled_autograd",
                                              "local_ranks_filter",
                                              "log_dir",
                                              "master_addr",
                                              "master_port",
                                              "max_restarts",
                                              "node_rank",
                                              "redirects",
                                              "role",
                                              "standalone",
                                              "tee"};
constexpr std::string_view kTitanIgnoredBeginnings[] = {"rdzv_",
                                                        "job.",
                                                        "profiling.",
                                                        "metrics.",
                                                        "optimizer.",
                                                        "lr_scheduler.",
                                                        "checkpoint.",
                                                        "comm.",
                                                        "compile.",
                                                        "debug.",
                                                        "validation.",
                                                        "memory_estimation.",
                                                        "experimental.custom",
                                                        "activation_checkpoint.per_op",
                                                        "activation_checkpoint.early_stop"};
constexpr const char* kNoSplit =
    "the cut is not followed: layers are split as torchtitan does without it (pipeline.split: "
    "[...])";
constexpr UnmodelledOption kTitanUnmodelled[] = {
    {"model.converters", "fp8 is not modelled: bf16 is predicted"},
    {"config", "what it names is not read here: what it says is missing"},
    {"module", "what it names is not read here: what it says is missing"},
    {"optimizer.early_step_in_backward",
     "each gradient is freed as soon as it is used there: memory of gradients is too large here"},
    {"training.dtype",
     "weights, gradients and optimizer state are kept in it there; here in fp32 beside weights of "
     "the compute type: memory is too large here"},
    {"training.mixed_precision_reduce",
     "gradients are reduced in fp32 here: more bytes than there"},
    {"parallelism.disable_loss_parallel",
     "the loss is not divided among tensor ranks there: the last stage's logits are larger and its "
     "loss slower than here"},
    {"parallelism.pipeline_parallel_schedule_csv",
     "the table is not read here: give it as schedule: FILE.csv"},
    {"parallelism.pipeline_parallel_split_points", kNoSplit},
    {"parallelism.module_fqns_per_model_part", kNoSplit},
    {"experimental.pipeline_parallel_split_points", kNoSplit},
    {"parallelism.enable_async_tensor_parallel", kNoTensorOverlap},
    {"experimental.enable_async_tensor_parallel", kNoTensorOverlap},
    {"parallelism.context_parallel_rotate", "context parallelism is predicted as a ring"},
    {"experimental.context_parallel_rotate", "context parallelism is predicted as a ring"},
    {"parallelism.expert", kNoExperts},
    {"parallelism.fsdp_reshard_after_forward",
     "sharded weights, and when they are gathered, are not modelled"},
    {"training.enable_cpu_offload",
     "offloading is not modelled: memory is too large here, copies to the host are missing"},
    {"float8.", "fp8 is not modelled: bf16 is predicted"},
    {"quantize.", "fp8 is not modelled: bf16 is predicted"},
    {"mx.", "fp8 is not modelled: bf16 is predicted"},
    {"fault_tolerance.", "replicas that come and go are not modelled"}};
constexpr KnownOptions kTitanKnown{kTitanIgnored, kTitanIgnoredBeginnings, kTitanUnmodelled};

std::string trimmed(std::string_view text) {
  const auto from = text.find_first_not_of(" \t\r");
  const auto to = text.find_last_not_of(" \t\r");
  return from == std::string_view::npos ? "" : std::string(text.substr(from, to - from + 1));
}

/// Up to a comment; quotes are taken off.
std::string toml_value(std::string_view text) {
  const std::string value = trimmed(text);
  if (value.empty() || (value[0] != '"' && value[0] != '\''))
    return trimmed(value.substr(0, value.find('#')));
  return value.substr(1, value.find(value[0], 1) - 1);
}

/// Of a line of TOML: brackets and braces that it opens, less those that it closes, outside of
/// texts and comments.
int brackets_opened(std::string_view line) {
  int opened = 0;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '#') {
      break;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else {
      opened += (c == '[' || c == '{' ? 1 : 0) - (c == ']' || c == '}' ? 1 : 0);
    }
  }
  return opened;
}

/// Of TOML what these files use: `[section]` and `key = value`, a list also over several lines (a
/// whole library for that takes seconds to compile).
std::vector<ScriptOption> toml_options(std::string_view text) {
  std::vector<ScriptOption> options;
  std::string section;
  int open = 0;
  for (int line = 1; !text.empty(); ++line) {
    const std::string one = trimmed(text.substr(0, text.find('\n')));
    text.remove_prefix(
        std::min(text.size(), text.find('\n') == text.npos ? text.size() : text.find('\n') + 1));
    const auto equals = one.find('=');
    if (open > 0) {
      open += brackets_opened(one);
      options.back().values.back() += one;
    } else if (one.starts_with('[')) {
      section = one.substr(1, one.find(']') - 1) + ".";
    } else if (!one.starts_with('#') && equals != one.npos) {
      options.push_back({section + trimmed(std::string_view(one).substr(0, equals)),
                         {toml_value(std::string_view(one).substr(equals + 1))},
                         line});
      open = brackets_opened(std::string_view(one).substr(equals + 1));
    }
  }
  return options;
}

bool of_titan(const ScriptOption& option) {
  return option.name.starts_with("parallelism.") || option.name.starts_with("training.") ||
         option.name.starts_with("activation_checkpoint.") ||
         option.name.starts_with("experimental.pipeline");
}

/// Is it an option by which a launch is one of torchtitan's?
bool is_titan_flag(const std::string& name) {
  return name.find('.') != name.npos || name == "config-file";
}

/// What a script's --job.config_file says, which its flags go over.
std::vector<ScriptOption> options_of_file(const std::vector<ScriptOption>& flags,
                                          const std::string& origin) {
  const auto named = std::ranges::find_if(flags, [](const ScriptOption& o) {
    return (o.name == "job.config_file" || o.name == "config_file") && !o.values.empty();
  });
  if (named == flags.end()) return {};
  const std::string& name = named->values.front();
  std::filesystem::path path = std::filesystem::path(origin).parent_path() / name;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    path = path.parent_path() / std::filesystem::path(name).filename();
    const std::filesystem::path beside =
        std::filesystem::path(origin).parent_path() / path.filename();
    if (std::filesystem::is_regular_file(beside, ignored)) path = beside;
  }
  if (!std::filesystem::is_regular_file(path, ignored))
    throw InputError(origin, fmt::format("the file of --job.config_file, '{}', is not beside it: "
                                         "put it there, or import that file instead",
                                         printable(name)));
  Documents documents;
  return toml_options(documents.text(path.string()));
}

/// Appends what --define says of how many GPUs a launch takes, where no flag says it; NGPU is the
/// number of a node in torchtitan's run_train.sh.
void add_defined_gpus(const ScriptSurroundings& defined, std::vector<ScriptOption>& options) {
  for (const auto& [name, option] :
       {std::pair{"nnodes", "nnodes"}, std::pair{"nproc_per_node", "nproc_per_node"},
        std::pair{"NGPU", "nproc_per_node"}}) {
    const auto value = defined.find(name);
    if (value == defined.end() ||
        std::ranges::find(options, option, &ScriptOption::name) != options.end())
      continue;
    ScriptOption& added = options.emplace_back();
    added.name = option;
    added.values = {value->second};
    added.shown = fmt::format("--define {}", name);
  }
}

/// A file of TOML, or flags in a script.
std::vector<ScriptOption> titan_options(const std::string& text, const std::string& origin,
                                        const ScriptSurroundings& defined) {
  std::vector<ScriptOption> options = toml_options(text);
  std::erase_if(options,
                [](const ScriptOption& o) { return o.name.find_first_of("-$ ") != o.name.npos; });
  const bool is_toml = std::ranges::any_of(options, of_titan);
  std::vector<ScriptOption> flags =
      is_toml ? std::vector<ScriptOption>{}
              : script_launch(text, origin, defined, is_titan_flag).options;
  for (ScriptOption& flag : flags) std::ranges::replace(flag.name, '-', '_');
  if (!is_toml) options = options_of_file(flags, origin);
  for (ScriptOption& flag : flags) options.push_back(std::move(flag));
  if (std::ranges::none_of(options, of_titan))
    throw InputError(origin,
                     "has none of torchtitan's options, such as [parallelism] "
                     "pipeline_parallel_degree or --training.local_batch_size");
  add_defined_gpus(defined, options);
  return options;
}

/// What a job trains: keys of a model, a line each, and how many layers these make.
struct TitanModel {
  std::string keys;
  std::int64_t layers = 1;
  std::string missing;
};

TitanModel model_of_name(const std::string& name) {
  if (!name.ends_with(".json"))
    return {fmt::format("  base: {}\n", name), load_model(name).num_layers, ""};
  const NearestModel nearest = nearest_model(name);
  TitanModel model{"", nearest.model.num_layers, nearest.missing};
  for (const auto& [key, value] : shape_keys(nearest.model))
    if (key != "seq_length" && key != "precision")
      model.keys += fmt::format("  {}: {}\n", key, value);
  return model;
}

/// That of `given`, or of the flavor, from the registry or as torchtitan's newer flags name it.
TitanModel titan_model(ImportNotes& notes, const std::string& given, const std::string& origin) {
  std::string name, flavor;
  for (const char* key : {"module", "model.name"})
    if (notes.mentions(key)) name = notes.word(key, "model");
  for (const char* key : {"config", "model.flavor"})
    if (notes.mentions(key)) flavor = notes.word(key, "model");
  if (notes.mentions("config"))
    notes.unmodelled("config",
                     "only the model that it names is read: what else it says is missing");
  if (!given.empty()) return model_of_name(given);
  const TitanFlavor* known = find_titan_flavor(name, flavor);
  if (known == nullptr)
    throw InputError(
        origin,
        fmt::format("{}; give the model: --model config.json (of Hugging Face), or --model NAME of "
                    "`penstock list models` (flavors known here: {})",
                    name.empty() && flavor.empty()
                        ? "it does not say which model it trains (model.name and model.flavor)"
                        : fmt::format("the sizes of the flavor '{} {}' are not known here",
                                      printable(name), printable(flavor)),
                    titan_flavor_names()));
  TitanModel model{fmt::format("  name: {} {}\n{}", known->name, known->flavor,
                               known->keys.starts_with("base") ? "" : "  family: llama\n"),
                   1, std::string(known->missing)};
  std::string_view keys = known->keys;
  while (!keys.empty()) {
    const auto end = std::min(keys.find(", "), keys.size());
    model.keys += fmt::format("  {}\n", keys.substr(0, end));
    keys.remove_prefix(std::min(keys.size(), end + 2));
  }
  model.layers = load_model(fmt::format("{{{}, seq_length: 1}}", known->keys)).num_layers;
  return model;
}

struct TitanSchedule {
  const char *theirs, *ours;
  std::int64_t chunks;
};
constexpr TitanSchedule kTitanSchedules[] = {{"1F1B", "1f1b", 1},
                                             {"GPipe", "gpipe", 1},
                                             {"Interleaved1F1B", "interleaved-1f1b-torch", 2},
                                             {"LoopedBFS", "looped-bfs", 2},
                                             {"InterleavedZeroBubble", "interleaved-zb", 2},
                                             {"ZBVZeroBubble", "zb-v", 2},
                                             {"DualPipeV", "dualpipev", 2}};

/// Of the present name and of earlier ones.
class Titan {
 public:
  Titan(ImportNotes& notes, const JobCluster& cluster, TitanModel model, std::string origin)
      : notes_(notes), cluster_(cluster), model_(std::move(model)), origin_(std::move(origin)) {}

  /// Call it when the degrees are known.
  std::string model() {
    const auto length = notes_.number("training.seq_len", "model.seq_length");
    if (!length) notes_.assume("model.seq_length: 2048 (training.seq_len's default)");
    if (!model_.missing.empty()) notes_.leave_out(model_.missing, Leaves::more);
    return fmt::format("model:\n{}  seq_length: {}\n  precision: {}\n", model_.keys,
                       length.value_or(2048), precision());
  }

  Division division() {
    d_.stages = degree("pipeline_parallel_degree", "pipeline.stages");
    d_.tensor = degree("tensor_parallel_degree", "pipeline.tensor");
    d_.sequence_parallel = true;  // it always is
    d_.context = degree("context_parallel_degree", "pipeline.context");
    const std::int64_t experts = degree("expert_parallel_degree", "");
    notes_.unless_one("parallelism.expert_parallel_degree", experts);
    asynchronous_tensor();
    const std::string converters = notes_.word("model.converters", "");
    const bool converted =
        converters.find("float8") != converters.npos || converters.find("mx") != converters.npos;
    notes_.unless_one("model.converters", converted ? 2 : 1);
    // Earlier versions had a key of its own.
    is_fp8_ = converted || is_true(notes_.word("float8.enable_float8_linear", ""));
    if (is_fp8_)
      notes_.assume("bf16's speed: devices have no curve of fp8, so its speed-up is missing here");
    notes_.unless_one("float8.enable_float8_linear",
                      is_true(notes_.word("float8.enable_float8_linear", "")) ? 2 : 1);
    width();
    schedule();
    batch();
    recomputation();
    return d_;
  }

  /// Call it after division().
  bool is_fp8() const { return is_fp8_; }

 private:
  std::int64_t degree(const std::string& name, const char* meaning) {
    const std::string key = "parallelism." + name;
    return notes_.number({key, "experimental." + name, "training." + name}, meaning).value_or(1);
  }

  /// FSDP computes in the type it is told, and so does autocast on whole models; with a pipeline or
  /// tensor parallelism alone nothing casts (maybe_enable_amp in torchtitan/distributed/utils.py;
  /// context parallelism counts as FSDP).
  std::string precision() {
    const std::string type = notes_.word("training.mixed_precision_param", "model.precision");
    const bool stored_in_16 =
        notes_.word("training.dtype", "").find("float16") != std::string::npos;
    for (const auto& [key, usual] : {std::pair{"training.dtype", "float32"},
                                     std::pair{"training.mixed_precision_reduce", "float32"},
                                     std::pair{"parallelism.disable_loss_parallel", "false"},
                                     std::pair{"optimizer.early_step_in_backward", "false"}}) {
      const std::string said = notes_.word(key, "");
      notes_.unless_one(key, said.empty() || said == usual || said == "False" ? 1 : 2);
    }
    const bool divided = d_.stages > 1 || d_.tensor > 1;
    if (!sharded_ && d_.context == 1 && divided && !stored_in_16) {
      notes_.assume(
          "model.precision: fp32 (without FSDP torchtitan trains pipelines and tensor parallelism "
          "in "
          "full precision, whatever mixed_precision_param says)");
      return "fp32";
    }
    return type == "float32" ? "fp32" : type == "float16" ? "mixed-fp16" : "mixed-bf16";
  }

  void asynchronous_tensor() {
    for (const char* key :
         {"parallelism.enable_async_tensor_parallel", "experimental.enable_async_tensor_parallel"})
      notes_.unless_one(key, is_true(notes_.word(key, "")) && d_.tensor > 1 ? 2 : 1);
  }

  void width() {
    const std::int64_t replicas = degree("data_parallel_replicate_degree", "pipeline.width");
    std::int64_t shards = 0;
    bool all = false;
    for (const char* key :
         {"parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"}) {
      const std::string text = notes_.word(key, "pipeline.width");
      all = all || text == "-1";
      if (!text.empty() && text != "-1") shards = notes_.number(key, "pipeline.width").value_or(1);
    }
    const std::int64_t others =
        notes_.product_of({d_.stages, d_.tensor, d_.context, replicas}, "GPUs");
    const auto each = notes_.number("nproc_per_node", "pipeline.width");
    const auto nodes = notes_.number("nnodes", "pipeline.width");
    if (shards == 0 && (each || nodes || cluster_.gpus())) {
      const std::int64_t gpus = each && nodes     ? notes_.product_of({*each, *nodes}, "GPUs")
                                : cluster_.gpus() ? *cluster_.gpus()
                                : nodes ? notes_.product_of({kGpusPerNode, *nodes}, "GPUs")
                                        : *each;
      if (!nodes && cluster_.gpus()) notes_.not_asked({"nnodes", "nproc_per_node"});
      shards = std::max<std::int64_t>(1, gpus / others);
    } else if (shards == 0) {
      shards = std::max<std::int64_t>(1, kGpusPerNode / others);
      // With more than one node there is FSDP, which changes the number type, too.
      if (shards == 1 && all && d_.context == 1)
        return notes_.ask("nnodes",
                          "--cluster '{base: NAME, nodes: N}' (data_parallel_shard_degree: -1 "
                          "takes all GPUs, so their number decides whether there is FSDP and "
                          "whether the job is fp32)");
      notes_.assume(
          fmt::format("pipeline.width: {} (data_parallel_shard_degree takes all GPUs, whose number "
                      "is not given: those of one node, or as many as one replica needs)",
                      replicas * shards));
    }
    d_.width = notes_.product_of({replicas, shards}, "GPUs");
    d_.distributed_optimizer = sharded_ = shards > 1;
    if (shards > 1) say_sharded(replicas, shards);
  }

  /// FSDP, or HSDP where there are replicas of the shards. Under a pipeline it keeps gathered
  /// weights and adds gradients up whole (reshard_after_forward "default"), which is what is
  /// modelled.
  void say_sharded(std::int64_t replicas, std::int64_t shards) {
    const bool whole = d_.stages > 1;
    const std::string why =
        whole ? fmt::format(
                    "FSDP keeps the optimizer's state on 1/{} of the GPUs each, gathered "
                    "weights and whole gradients (pipeline.distributed_optimizer); its "
                    "all-gathers before the first forward are missing",
                    shards)
              : fmt::format(
                    "FSDP keeps 1/{} of weights and gradients on each GPU, which is not "
                    "modelled: they are whole here (memory is too large) and their "
                    "all-gathers are missing; only the optimizer is sharded "
                    "(pipeline.distributed_optimizer)",
                    shards);
    if (!whole) notes_.leave_out("FSDP's sharding", Leaves::less);
    bool said = false;
    for (const char* key :
         {"parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"}) {
      said = said || notes_.mentions(key);
      notes_.unmodelled(key, why);
    }
    if (!said) notes_.assume("data_parallel_shard_degree: all GPUs; " + why);
    if (replicas > 1)
      notes_.unmodelled(
          "parallelism.data_parallel_replicate_degree",
          fmt::format("HSDP shards the optimizer among {} GPUs, here among all {} replicas: its "
                      "memory is too small here; gradients are reduced in one step, not in two",
                      shards, replicas * shards));
  }

  /// Its rule counts the embedding and the output as a layer each, unless told otherwise, and gives
  /// what remains to the first stages (generate_llm_fqn_per_model_part of
  /// torchtitan/distributed/pipeline_parallel.py).
  std::vector<std::int64_t> split() const {
    const std::int64_t stages = d_.stages * d_.chunks;
    const std::int64_t all = model_.layers + first_less_ + last_less_;
    if (all / stages < std::max(first_less_, last_less_)) return {};
    std::vector<std::int64_t> layers;
    for (std::int64_t i = 0; i < stages; ++i)
      layers.push_back(all / stages + (i < all % stages ? 1 : 0));
    layers.front() -= first_less_;
    layers.back() -= last_less_;
    return layers;
  }

  /// Layers that a stage has less than others: 0 is a number, too.
  std::int64_t less(const char* key) {
    if (notes_.word(key, "pipeline.split") == "0") return 0;
    return notes_.number(key, "pipeline.split").value_or(1);
  }

  void schedule() {
    const std::string name = notes_.word(notes_.mentions("experimental.pipeline_parallel_schedule")
                                             ? "experimental.pipeline_parallel_schedule"
                                             : "parallelism.pipeline_parallel_schedule",
                                         "schedule");
    const auto per_stage =
        notes_.number("parallelism.pipeline_parallel_layers_per_stage", "pipeline.chunks");
    first_less_ = less("parallelism.pipeline_parallel_first_stage_less_layers");
    last_less_ = less("parallelism.pipeline_parallel_last_stage_less_layers");
    if (d_.stages == 1) return;
    const auto* known = std::ranges::find(kTitanSchedules, lower_case(name),
                                          [](const auto& s) { return lower_case(s.theirs); });
    if (known == std::end(kTitanSchedules)) known = kTitanSchedules;
    const bool by_table = notes_.mentions("parallelism.pipeline_parallel_schedule_csv");
    if (!name.empty() && lower_case(name) != lower_case(known->theirs) && !by_table)
      refuse_schedule(name);
    d_.schedule = known->ours;
    d_.chunks = known->chunks;
    if (per_stage && !by_table) d_.chunks = chunks_of(*per_stage, *known);
    d_.split = split();
  }

  /// Throws InputError as torch's get_schedule_class does, which takes names in any case.
  [[noreturn]] void refuse_schedule(const std::string& name) const {
    std::vector<std::string> names;
    for (const TitanSchedule& s : kTitanSchedules) names.emplace_back(s.theirs);
    const std::string meant = nearest(name, names);
    throw InputError(
        origin_, fmt::format("parallelism.pipeline_parallel_schedule must be one of {}, got '{}'{}",
                             fmt::join(names, ", "), printable(name),
                             meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }

  /// Virtual stages of a device for so many layers each, the embedding and the output counted.
  /// Throws InputError where torchtitan refuses the number (pipeline_llm of
  /// torchtitan/distributed/pipeline_parallel.py).
  std::int64_t chunks_of(std::int64_t layers_per_stage, const TitanSchedule& schedule) const {
    const std::int64_t all = model_.layers + first_less_ + last_less_;
    const std::int64_t stages = (all + layers_per_stage - 1) / layers_per_stage;
    const std::int64_t chunks = stages / d_.stages;
    const bool one = schedule.chunks == 1;
    const bool two = schedule.theirs == std::string_view("ZBVZeroBubble") ||
                     schedule.theirs == std::string_view("DualPipeV");
    const char* const wanted = one ? "exactly 1" : two ? "exactly 2" : "at least 2";
    const bool fits = one ? chunks == 1 : two ? chunks == 2 : chunks >= 2;
    if (stages % d_.stages == 0 && fits) return chunks;
    throw InputError(
        origin_,
        fmt::format("parallelism.pipeline_parallel_layers_per_stage: {} makes {} virtual stages of "
                    "{} layers, the embedding and the output counted, but {} takes {} on each of "
                    "the {} pipeline ranks",
                    layers_per_stage, stages, all, schedule.theirs, wanted, d_.stages));
  }

  void batch() {
    const auto given =
        notes_.number({"training.local_batch_size", "training.batch_size"},
                      "samples that a replica takes at a time (pipeline.global_batch_size)");
    const std::int64_t local = given.value_or(8);
    if (!given) notes_.assume("training.local_batch_size: 8 (its default)");
    const char* const microbatch = "parallelism.pipeline_parallel_microbatch_size";
    const std::int64_t size = notes_.number(microbatch, "pipeline.microbatch_size").value_or(1);
    notes_.unless_one(microbatch, 1);  // without a pipeline it says nothing
    if (d_.stages > 1) notes_.number(microbatch, "pipeline.microbatch_size");
    d_.microbatch_size = d_.stages > 1 ? size : local;
    d_.batch = notes_.product_of({local, d_.width}, "samples");
    const char* const global = "training.global_batch_size";
    const std::string text = notes_.word(global, "pipeline.global_batch_size");
    if (text.empty() || text == "-1") return;
    const auto samples = notes_.number(global, "pipeline.global_batch_size");
    if (!samples) return;
    if (*samples % d_.batch != 0)
      return notes_.unmodelled(
          global, fmt::format("it is no multiple of local_batch_size x replicas, {} x {}, which "
                              "torchtitan refuses: {} are predicted",
                              local, d_.width, d_.batch));
    const std::int64_t steps = *samples / d_.batch;
    d_.batch = *samples;
    if (d_.stages == 1) return;  // nothing drains between the steps
    d_.accumulation_steps = steps;
    if (steps > 1)
      notes_.assume(
          fmt::format("pipeline.accumulation_steps: {} (of {} samples each; the pipeline drains "
                      "between them; a larger local_batch_size would have fewer)",
                      steps, d_.batch / steps));
  }

  void recomputation() {
    const char* const mode_key = "activation_checkpoint.mode";
    const char* const option_key = "activation_checkpoint.selective_ac_option";
    const bool said = notes_.mentions(mode_key);
    const std::string mode = said ? notes_.word(mode_key, "pipeline.recompute") : "selective";
    std::string option = notes_.word(option_key, "pipeline.recompute");
    if (option.empty()) option = "2";  // its default
    if (mode == "full" || (mode == "selective" && option == "1")) d_.recompute = "full";
    if (mode != "selective") notes_.unless_one(option_key, 1);
    if (mode == "full" || mode == "none" || d_.recompute == "full") return;
    const std::int64_t every = std::atoll(option.c_str());
    if (mode == "selective" && every > 1) return recompute_every(every, said);
    const std::string why =
        (mode != "selective"
             ? "what it makes again is not modelled"
             : "the cheap ops and every second matrix product are made again there, "
               "which is not modelled") +
        std::string(
            ": none are here, so memory is larger and the backward shorter than there "
            "(recompute: full is the other bound)");
    notes_.leave_out("recomputation of single ops", Leaves::less);
    const bool by_option = mode == "selective" && notes_.mentions(option_key);
    if (said || by_option) notes_.unmodelled(by_option ? option_key : mode_key, why);
    if (!said) notes_.assume(fmt::format("{}: selective (its default): {}", mode_key, why));
  }

  /// Every n-th layer is made again, which is as much as so many of a stage's first ones.
  void recompute_every(std::int64_t every, bool said) {
    const std::int64_t of_stage = model_.layers / (d_.stages * d_.chunks);
    if (of_stage / every > 0) {
      d_.recompute = "full";
      d_.recomputed_layers = of_stage / every;
    }
    if (!said)
      notes_.assume(fmt::format(
          "pipeline.recompute: {} of the {} layers of a stage (activation_checkpoint's default: "
          "selective, one layer in {})",
          of_stage / every, of_stage, every));
  }

  ImportNotes& notes_;
  const JobCluster& cluster_;
  TitanModel model_;
  std::string origin_;
  std::int64_t first_less_ = 1, last_less_ = 1;
  bool sharded_ = false, is_fp8_ = false;
  Division d_;
};

}  // namespace

std::string scenario_of_nanotron(const std::string& text, const std::string& origin,
                                 const std::string& cluster) {
  std::vector<ScriptOption> options;
  const Value document = parse_document(text, origin);
  flatten(document, "", options);
  if (document.find("parallelism") == nullptr && document.find("tokens") == nullptr)
    throw InputError(origin, "is no configuration of nanotron: neither 'parallelism' nor 'tokens'");
  const JobCluster where(cluster);
  ImportNotes notes(std::move(options), "", kNanotronKnown);
  std::string model = nanotron_model(notes, origin);
  const Division d = nanotron_division(notes);
  const std::string cluster_part = where.text(notes, gpus_of(d, notes), kGpusPerNode);
  model += notes.missing("  ");
  return head(origin, "nanotron-config", notes) + model + text_of(d, cluster_part);
}

std::string scenario_of_torchtitan(const std::string& text, const std::string& origin,
                                   const std::string& cluster, const ScriptSurroundings& defined,
                                   const std::string& model_name) {
  const JobCluster where(cluster);
  std::vector<ScriptOption> options = titan_options(text, origin, defined);
  std::vector<std::string> of_fp8;
  for (const ScriptOption& option : options)
    for (const char* part : {"float8.", "quantize.", "mx."})
      if (option.name.starts_with(part)) of_fp8.push_back(option.name);
  ImportNotes notes(std::move(options), "", kTitanKnown);
  Titan titan(notes, where, titan_model(notes, model_name, origin), origin);
  Division d = titan.division();
  if (!titan.is_fp8())  // what a converter would do says nothing without one
    for (const std::string& option : of_fp8) notes.ignore(option);
  std::string model = titan.model();
  const std::string cluster_part = where.text(notes, gpus_of(d, notes), kGpusPerNode);
  const auto is_on = [&](const char* name) {
    return notes.has(name, "stack") && notes.word(name, "stack") != "false";
  };
  const bool compiled = is_on("compile.enable") || is_on("training.compile");
  d.stack = compiled ? "torchtitan" : "torchtitan-eager";
  notes.assume(
      fmt::format("stack: {} (one number of it is fitted, most are assumed; stack: none "
                  "is the neutral one)",
                  d.stack));
  model += notes.missing("  ");
  return head(origin, "torchtitan-config", notes) + model + text_of(d, cluster_part);
}

}  // namespace penstock
