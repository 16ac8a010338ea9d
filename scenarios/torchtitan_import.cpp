// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/document.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/job_division.hpp"
#include "scenarios/optimizer_state.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/torchtitan_flavors.hpp"
#include "scenarios/torchtitan_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace penstock {
namespace {

/// Returns the model of `given`, or of the flavor, from the registry or as torchtitan's newer flags
/// name it.
NamedModel titan_model(ImportNotes& notes, const std::string& given, const std::string& origin) {
  std::string name, flavor;
  for (const char* key : {"module", "model.name"})
    if (notes.mentions(key)) name = notes.word(key, "model");
  for (const char* key : {"config", "model.flavor"})
    if (notes.mentions(key)) flavor = notes.word(key, "model");
  if (notes.mentions("config"))
    notes.unmodelled("config",
                     "only the model that it names is read: what else it says is missing");
  if (const auto other = said_of(import_table("megatron", "other_programs"), name); !other.empty())
    throw InputError(origin, fmt::format("'{}' is no decoder of one stack of layers: {}",
                                         printable(name), other));
  if (!given.empty()) return model_of_name(given);
  if (const auto known = find_titan_flavor(name, flavor)) return *known;
  notes.fault(
      "model.flavor",
      fmt::format("{}; give the model: --model config.json (of Hugging Face), or --model NAME of "
                  "`penstock list models` (flavors known here: {})",
                  name.empty() && flavor.empty()
                      ? "it does not say which model it trains (model.name and model.flavor)"
                      : fmt::format("the sizes of the flavor '{} {}' are not known here",
                                    printable(name), printable(flavor)),
                  titan_flavor_names()));
  return {};  // the errors of the other options are found all the same
}

/// Makes a scenario of torchtitan's options, by their present names and by earlier ones.
class Titan {
 public:
  Titan(ImportNotes& notes, const JobCluster& cluster, NamedModel model)
      : notes_(notes), cluster_(cluster), model_(std::move(model)) {}

  /// Call it when the degrees are known.
  std::string model() {
    const auto length = notes_.number("training.seq_len", "model.seq_length");
    usually(!length, "training.seq_len", "model.seq_length: 2048 (training.seq_len's default)");
    if (!model_.missing.empty()) notes_.leave_out(model_.missing, Leaves::more);
    const std::string type = precision();
    return fmt::format("model:\n{}  seq_length: {}\n  precision: {}\n{}", model_.keys,
                       length.value_or(2048), type, bytes(type == "fp32"));
  }

  /// Returns the key of what a parameter takes where it is not what the stack says.
  std::string bytes(bool single) {
    const bool in_16 = stored_in_16();  // and so are gradients and both moments
    const std::string named = notes_.word("optimizer.name", "");
    const bool muon = lower_case(named).find("muon") != std::string::npos;
    const double adam = in_16 ? 4 : 8;
    // torch.optim.SGD has no momentum unless it is told one, for which torchtitan has no option.
    const double moments = moment_bytes(notes_, {"optimizer.name", named, adam, 0},
                                        muon ? model_of_keys(model_.keys) : TransformerSpec());
    if (in_16)
      return fmt::format("  bytes_per_parameter: {{weights: 2, gradients: 2, optimizer: {:.4g}}}\n",
                         moments);
    if (moments == adam) return "";
    return fmt::format("  bytes_per_parameter: {{optimizer: {:.4g}}}\n",
                       (single ? 0 : 4) + moments);
  }

  Division division() {
    d_.stages = degree("pipeline_parallel_degree", "pipeline.stages");
    d_.tensor = degree("tensor_parallel_degree", "pipeline.tensor");
    d_.sequence_parallel = true;  // it always is
    d_.context = degree("context_parallel_degree", "pipeline.context");
    // Its usual method gathers keys and values, the other sends them round.
    std::string rotates;
    for (const char* key : {"parallelism.context_parallel_rotate_method",
                            "experimental.context_parallel_rotate_method"})
      if (notes_.mentions(key))
        rotates = notes_.choice(key, "pipeline.context_exchange", {"allgather", "alltoall"});
    d_.context_exchange = rotates == "alltoall" ? "ring" : "all-gather";
    const std::int64_t experts = degree("expert_parallel_degree", "");
    notes_.unless_one("parallelism.expert_parallel_degree", experts);
    asynchronous_tensor();
    const std::string converters = notes_.word("model.converters", "");
    const bool converted =
        converters.find("float8") != converters.npos || converters.find("mx") != converters.npos;
    // Earlier versions had a key of its own.
    is_fp8_ = is_true(notes_.word("float8.enable_float8_linear", "")) || converted;
    if (is_fp8_) narrow_types(converters);
    for (const char* name : {"model.converters", "float8.enable_float8_linear"})
      if (is_fp8_)
        notes_.has(name, "model.precision");
      else
        notes_.unless_one(name, 1);
    width();
    schedule();
    batch();
    recomputation();
    return d_;
  }

  /// Call it after division().
  bool is_fp8() const { return is_fp8_; }

 private:
  /// Sets the types of products: torchao's float8 scales tensors or rows by what they hold at the
  /// time, and converts the LM head, too, unless `filter_fqns` names it.
  void narrow_types(const std::string& converters) {
    std::string recipe, filters;
    bool gathers = false;
    for (const char* part : {"float8.", "quantize.linear.float8.", "mx.", "quantize.linear.mx."}) {
      const std::string section = part;
      recipe += notes_.word(section + "recipe_name", "model.precision");
      filters += notes_.word(section + "filter_fqns", "model.precision.head");
      gathers =
          is_true(notes_.word(section + "enable_fsdp_float8_all_gather", "model.precision")) ||
          gathers;
      notes_.has(section + "precompute_float8_dynamic_scale_for_fsdp",
                 "nothing: it takes no time here");
    }
    const bool mx = converters.find("mx") != converters.npos;
    narrow_ = mx ? "mxfp8" : recipe.find("rowwise") != recipe.npos ? "fp8-rowwise" : "fp8-current";
    std::string more;
    if (filters.find("output") == filters.npos) more += ", head: " + narrow_;
    if (gathers) more += ", linear_weights: narrow";
    if (!more.empty()) narrow_ = fmt::format("{{base: {}{}}}", narrow_, more);
  }

  std::int64_t degree(const std::string& name, const char* meaning) {
    const std::string key = "parallelism." + name;
    return notes_.number({key, "experimental." + name, "training." + name}, meaning).value_or(1);
  }

  /// Says a default that is taken; what a configuration in Python may say is asked for.
  void usually(bool unsaid, const char* key, const char* what) {
    if (!unsaid) return;
    if (notes_.mentions("config"))
      notes_.ask(key);
    else
      notes_.assume(what);
  }

  bool stored_in_16() {
    const char* const key = "training.dtype";
    const std::string type = notes_.choice(key, "", {"float32", "bfloat16", "float16"});
    const bool in_16 = type.find("float16") != std::string::npos;
    if (in_16) notes_.has(key, "model.bytes_per_parameter");
    return in_16;
  }

  /// FSDP computes in the type it is told, and so does autocast on whole models; with a pipeline or
  /// tensor parallelism alone nothing casts (maybe_enable_amp in torchtitan/distributed/utils.py;
  /// context parallelism counts as FSDP).
  std::string precision() {
    const std::string type = notes_.choice("training.mixed_precision_param", "model.precision",
                                           {"bfloat16", "float32", "float16"});
    for (const auto& [key, usual] : {std::pair{"training.mixed_precision_reduce", "float32"},
                                     std::pair{"parallelism.disable_loss_parallel", "false"},
                                     std::pair{"optimizer.early_step_in_backward", "false"}}) {
      const std::string said = notes_.word(key, "");
      notes_.unless_one(key, said.empty() || said == usual || said == "False" ? 1 : 2);
    }
    if (d_.tensor == 1) notes_.unless_one("parallelism.disable_loss_parallel", 1);
    const bool divided = d_.stages > 1 || d_.tensor > 1;
    if (!sharded_ && d_.context == 1 && divided && !stored_in_16()) {
      notes_.assume(
          "model.precision: fp32 (without FSDP torchtitan trains pipelines and tensor parallelism "
          "in "
          "full precision, whatever mixed_precision_param says)");
      return "fp32";
    }
    if (is_fp8_ && type != "float32" && type != "float16") return narrow_;
    return type == "float32" ? "fp32" : type == "float16" ? "mixed-fp16" : "mixed-bf16";
  }

  void asynchronous_tensor() {
    for (const char* key :
         {"parallelism.enable_async_tensor_parallel", "experimental.enable_async_tensor_parallel"})
      if (is_true(notes_.word(key, d_.tensor > 1 ? "pipeline.tensor_overlap: true"
                                                 : "nothing, without tensor parallelism")))
        d_.tensor_overlap = true;
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
      if ((nodes || cluster_.gpus()) && gpus % others != 0)
        refuse_gpus(fmt::format("{} GPUs are no multiple of {}", gpus, others));
      shards = std::max<std::int64_t>(1, gpus / others);
    } else if (const std::int64_t all_gpus = notes_.product_of({others, shards}, "GPUs");
               shards > 0 && each && nodes && *each * *nodes != all_gpus) {
      refuse_gpus(fmt::format("{} GPUs are not {}", *each * *nodes, all_gpus));
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
    // Context ranks have the same weights: they divide them, too.
    sharded_ = shards * d_.context > 1;
    if (sharded_) say_sharded(replicas, shards);
  }

  /// Makes it an error that the degrees are not those of the GPUs, as torchtitan does
  /// (ParallelDims._validate in torchtitan/distributed/parallel_dims.py).
  void refuse_gpus(const std::string& why) {
    notes_.fault("", fmt::format("{}, the product of the degrees (pipeline {} x tensor {} x "
                                 "context {} and replicas), which torchtitan refuses",
                                 why, d_.stages, d_.tensor, d_.context));
  }

  /// FSDP, or HSDP where there are replicas of the shards.
  void say_sharded(std::int64_t replicas, std::int64_t shards) {
    d_.shard = "weights";
    if (replicas > 1) d_.shard_group = shards * d_.context;
    const std::string reshard =
        notes_.choice("parallelism.fsdp_reshard_after_forward", "pipeline.reshard_after_forward",
                      {"default", "always", "never"});
    if (reshard == "always" || reshard == "never") d_.reshard_after_forward = reshard;
    bool said = false;
    for (const char* key :
         {"parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"})
      said = said || notes_.mentions(key);
    if (!said)
      notes_.assume(
          "pipeline.shard: weights (data_parallel_shard_degree is not given: FSDP over all GPUs)");
  }

  std::vector<std::int64_t> split() const {
    return titan_split(model_.layers, d_.stages * d_.chunks, first_less_, last_less_);
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
    if (model_.keys.empty()) return;  // whose layers nothing says
    d_.schedule = known->ours;
    d_.chunks = known->chunks;
    if (per_stage && !by_table) d_.chunks = chunks_of(*per_stage, *known);
    d_.split = split();
  }

  /// Makes a name an error as torch's get_schedule_class does, which takes names in any case.
  void refuse_schedule(const std::string& name) {
    std::vector<std::string> names;
    for (const TitanSchedule& s : kTitanSchedules) names.emplace_back(s.theirs);
    const std::string meant = nearest(name, names);
    notes_.fault("parallelism.pipeline_parallel_schedule",
                 fmt::format("parallelism.pipeline_parallel_schedule must be one of {}, got '{}'{}",
                             fmt::join(names, ", "), printable(name),
                             meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }

  /// Virtual stages of a device for so many layers each, the embedding and the output counted.
  /// A number that torchtitan refuses is an error (pipeline_llm of
  /// torchtitan/distributed/pipeline_parallel.py).
  std::int64_t chunks_of(std::int64_t layers_per_stage, const TitanSchedule& schedule) {
    const std::int64_t all = model_.layers + first_less_ + last_less_;
    const std::int64_t stages = (all + layers_per_stage - 1) / layers_per_stage;
    const std::int64_t chunks = stages / d_.stages;
    const bool one = schedule.chunks == 1;
    const bool two = schedule.theirs == std::string_view("ZBVZeroBubble") ||
                     schedule.theirs == std::string_view("DualPipeV");
    const char* const wanted = one ? "exactly 1" : two ? "exactly 2" : "at least 2";
    const bool fits = one ? chunks == 1 : two ? chunks == 2 : chunks >= 2;
    if (stages % d_.stages == 0 && fits) return chunks;
    notes_.fault(
        "parallelism.pipeline_parallel_layers_per_stage",
        fmt::format("parallelism.pipeline_parallel_layers_per_stage: {} makes {} virtual stages of "
                    "{} layers, the embedding and the output counted, but {} takes {} on each of "
                    "the {} pipeline ranks",
                    layers_per_stage, stages, all, schedule.theirs, wanted, d_.stages));
    return schedule.chunks;
  }

  void batch() {
    const auto given =
        notes_.number({"training.local_batch_size", "training.batch_size"},
                      "samples that a replica takes at a time (pipeline.global_batch_size)");
    const std::int64_t local = given.value_or(8);
    usually(!given, "training.local_batch_size", "training.local_batch_size: 8 (its default)");
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
    const std::string mode = said ? notes_.choice(mode_key, "pipeline.recompute",
                                                  {"none", "selective", "full", "memory_budget"})
                                  : "selective";
    std::string option = notes_.word(option_key, "pipeline.recompute");
    if (option.empty()) option = "2";  // its default
    if (mode == "full" || (mode == "selective" && option == "1")) d_.recompute = "full";
    if (mode != "selective") notes_.unless_one(option_key, 1);
    if (mode == "full" || mode == "none" || d_.recompute == "full") return;
    const std::int64_t every = std::atoll(option.c_str());
    if (mode == "selective" && option != "op" && option != "layer" && every < 1)
      notes_.fault(option_key, fmt::format("{} must be 'op' or an integer from 1, got '{}'",
                                           option_key, printable(option)));
    if (mode == "selective" && every > 1) return recompute_every(every, said);
    if (mode == "selective" && option == "op") {
      d_.recompute = "selective";
      d_.recompute_modules = "every_second_product";
      if (!said)
        notes_.assume(fmt::format("pipeline.recompute: selective ({}'s default)", mode_key));
      return;
    }
    const bool by_option = mode == "selective" && notes_.mentions(option_key);
    notes_.leave_out("recomputation of single ops", Leaves::less);
    notes_.unmodelled(by_option ? option_key : mode_key,
                      "what it makes again is not modelled: none are here, so memory is larger and "
                      "the backward shorter than there (recompute: full is the other bound)");
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
  NamedModel model_;
  std::int64_t first_less_ = 1, last_less_ = 1;
  bool sharded_ = false, is_fp8_ = false;
  std::string narrow_;  ///< of products, where converters make them so
  Division d_;
};

}  // namespace

std::string scenario_of_torchtitan(const std::string& text, const std::string& origin,
                                   const std::string& cluster, const ScriptSurroundings& defined,
                                   const std::string& model_name) {
  const JobCluster where(cluster);
  std::vector<ScriptOption> options = titan_options(text, origin, defined);
  std::vector<std::string> of_fp8;
  for (const ScriptOption& option : options)
    for (const char* part : {"float8.", "quantize.", "mx."})
      if (option.name.starts_with(part)) of_fp8.push_back(option.name);
  ImportNotes notes(std::move(options), "", known_options("torchtitan"));
  notes.expect_numbers();
  Titan titan(notes, where, titan_model(notes, model_name, origin));
  Division d = titan.division();
  if (!titan.is_fp8())  // what a converter would do says nothing without one
    for (const std::string& option : of_fp8) notes.ignore(option);
  std::string model = titan.model();
  const std::string cluster_part = where.text(
      notes, gpus_of(d, notes), notes.number("nproc_per_node", "cluster.devices_per_node"));
  const auto is_on = [&](const char* name) {
    return notes.has(name, "stack") && notes.word(name, "stack") != "false";
  };
  const std::string parts = notes.word("compile.components", "stack");  // the loss alone, or both
  const bool whole = parts.empty() || parts.find("model") != parts.npos;
  const bool compiled = (is_on("compile.enable") && whole) || is_on("training.compile");
  d.stack = compiled ? "torchtitan" : "torchtitan-eager";
  notes.assume(
      fmt::format("stack: {} (one number of it is fitted, most are assumed; stack: none "
                  "is the neutral one)",
                  d.stack));
  model += notes.missing("  ");
  return job_head(origin, "torchtitan-config", notes) + model + division_text(d, cluster_part);
}

}  // namespace penstock
