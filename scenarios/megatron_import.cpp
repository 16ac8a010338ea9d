// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_import.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/numbers.hpp"
#include "models/layout_string.hpp"
#include "scenarios/flag_files.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/megatron_model.hpp"
#include "scenarios/megatron_programs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

namespace penstock {
namespace {

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
    const bool bert = trains_bert(programs_, *this);
    MegatronModel model = model_of_flags(*this, {given_model_, stack_, deepspeed_, bert});
    std::string model_part = std::move(model.text);
    shape_ = std::move(model.shape);
    layers_ = model.layers;
    const std::string other_parts = rest() + routing();
    model_part += missing("  ");
    const std::string head = ImportNotes::head(origin_);
    if (!errors_.empty()) throw InputError(std::move(errors_));
    return fmt::format("# {} by `penstock import megatron-args`\n{}{}{}", as_comment(origin_), head,
                       model_part, other_parts);
  }

 private:
  /// Adds an error: what Megatron-LM itself would not start, or DeepSpeed.
  void refuse_job(const std::string& why, const char* who = "Megatron-LM") {
    errors_.push_back({{origin_, 0, 0}, fmt::format("{}, which {} refuses", why, who), "", 1, 0});
  }

  /// Returns the replicas that DeepSpeed's sizes say together: train_batch_size / (microbatch x
  /// accumulation steps). Those that contradict each other are an error as in DeepSpeed
  /// (deepspeed/runtime/config.py, _batch_assertion).
  std::optional<std::int64_t> replicas_of_batch(std::int64_t micro,
                                                std::optional<std::int64_t> told) {
    const auto batch = number("train-batch-size", mentions("global-batch-size")
                                                      ? "compared with microbatch and replicas"
                                                      : "pipeline.global_batch_size");
    const auto steps = number("gradient-accumulation-steps", kSteps);
    if (!batch || (!steps && !told)) return std::nullopt;
    const std::int64_t each = product_of({micro, steps.value_or(1)}, "samples");
    const std::string factors =
        steps ? fmt::format("{} x {}, the microbatch x gradient_accumulation_steps", micro, *steps)
              : fmt::format("{}, the microbatch", micro);
    const bool wrong = told && steps
                           ? *batch != product_of({each, *told}, "samples")
                           : *batch % product_of({each, told.value_or(1)}, "samples") != 0;
    if (wrong)
      refuse_job(fmt::format("train_batch_size {} is {} {}{}", *batch,
                             told && steps ? "not" : "no multiple of", factors,
                             told ? fmt::format(" x {} replicas", *told) : ""),
                 "DeepSpeed");
    return steps ? std::optional(std::max<std::int64_t>(1, *batch / each)) : std::nullopt;
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
    const auto batch =
        number(mentions("global-batch-size") ? "global-batch-size" : "train-batch-size",
               "pipeline.global_batch_size");
    const auto steps = number("gradient-accumulation-steps", kSteps);
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
  std::string reduction_of(std::int64_t sharers, std::int64_t stages, bool divided_optimizer) {
    const char* const backward =
        sharers > 1 ? "pipeline.reduction.overlap: backward" : "nothing, with a single replica";
    bool given = has("overlap-grad-reduce", backward);
    // DeepSpeed's pipeline reduces when a batch has ended (deepspeed/runtime/pipe/engine.py).
    if (has("overlap-comm", stages > 1 ? "nothing, with pipeline stages" : backward))
      given = given || stages == 1;
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
    const bool flexible = deep || how == "flex" || !backend.empty();
    if (flexible) out += "  expert_exchange: once-per-node\n";
    const auto sms = number({"moe-flex-dispatcher-num-sms",
                             backend == "hybridep" ? "moe-hybridep-num-sms" : "moe-deepep-num-sms"},
                            flexible ? "pipeline.expert_sms" : "nothing: tokens go by NCCL");
    if (flexible && sms) out += fmt::format("  expert_sms: {}\n", *sms);
    if (has("overlap-moe-expert-parallel-comm",
            overlaps ? "pipeline.expert_overlap: true" : "nothing, without virtual stages") &&
        overlaps)
      out += "  expert_overlap: true\n";
    return out;
  }

  /// Returns how many neighbours exchange heads, before a ring of groups of so many; nothing where
  /// the two sizes are not those of `context` ranks.
  std::optional<std::int64_t> ulysses_of(std::int64_t context) {
    const auto sizes =
        words("hierarchical-context-parallel-sizes", "pipeline.ulysses and pipeline.context");
    if (sizes.size() != 2) return std::nullopt;
    const auto heads = parse_number<std::int64_t>(sizes[0]),
               ring = parse_number<std::int64_t>(sizes[1]);
    const bool divides = heads && ring && *heads > 0 && context % *heads == 0;
    return divides && context / *heads == *ring ? heads : std::nullopt;
  }

  /// Returns the software: its name, and what flags change in it.
  std::string stack() {
    std::string changes;
    const bool in_place = mentions("cross-entropy-loss-fusion") &&
                          word("cross-entropy-fusion-impl", "stack.cross_entropy") == "te";
    const std::string how = in_place ? "in-place" : "fused";
    if (has("cross-entropy-loss-fusion", "stack.cross_entropy: " + how))
      changes += ", cross_entropy: " + how;
    else
      ignore("cross-entropy-fusion-impl");  // without which it says nothing
    const std::string graphs = word("cuda-graph-impl", "stack.cuda_graphs");
    bool launched = !graphs.empty() && graphs != "none";
    for (const char* flag : {"enable-cuda-graph", "external-cuda-graph"})
      launched = has(flag, "stack.cuda_graphs: true") || launched;
    if (launched) changes += ", cuda_graphs: true";
    return changes.empty() ? stack_ : fmt::format("{{base: {}{}}}", stack_, changes);
  }

  std::string rest() {
    const std::int64_t tensor =
        number({"tensor-model-parallel-size", "model-parallel-size"}, "pipeline.tensor")
            .value_or(1);
    std::int64_t stages = number("pipeline-model-parallel-size", "pipeline.stages").value_or(1);
    if (has("no-pipeline-parallel", "pipeline.stages: 1")) stages = 1;
    // Megatron-DeepSpeed's ranks exchange heads (DeepSpeed-Ulysses) and have no ring.
    const std::int64_t heads =
        deepspeed_ ? number("ds-sequence-parallel-size", "pipeline.ulysses").value_or(1) : 1;
    const std::int64_t context =
        heads > 1 ? heads : number("context-parallel-size", "pipeline.context").value_or(1);
    // One for all layers, or one for each.
    const std::vector<std::string> rings = words("cp-comm-type", "");
    const bool alike =
        std::ranges::adjacent_find(rings, std::ranges::not_equal_to{}) == rings.end();
    const std::string ring = alike && !rings.empty() ? rings.front() : "";
    const bool known = ring.starts_with("all") || ring == "a2a";
    const auto both = ring == "a2a+p2p" ? ulysses_of(context) : std::nullopt;
    const std::int64_t ulysses = heads > 1 ? heads : both.value_or(1);
    unless_one("cp-comm-type", context == 1 || ring == "p2p" || known || both ? 1 : 2);
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
    const std::optional<std::int64_t> told_width = width_of(product_of({position, stages}, "GPUs"));
    const auto of_batch = replicas_of_batch(micro, told_width);
    if (!told_width && of_batch)
      assume(
          fmt::format("pipeline.width: {} (train_batch_size / (microbatch x "
                      "gradient_accumulation_steps))",
                      *of_batch));
    else if (!told_width)
      assume(
          fmt::format("pipeline.width: {} (no --nnodes, --nproc-per-node or --world-size, and no "
                      "--cluster with "
                      "nodes: it is the number of GPUs / (stages x tensor x context))",
                      least));
    const std::int64_t width = told_width ? *told_width : of_batch.value_or(least);
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
      leave_out("sharded gradients and weights", Leaves::less);
      zero = 1;
    }
    const bool dividing = tensor > 1 && !sequence;
    std::string out = fmt::format(
        "cluster: {}\nstack: {}\n",
        cluster_.text(*this, product_of({tensor, context, stages, width}, "GPUs"), per_node_),
        stack());
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
    if (context > ulysses) out += fmt::format("  context: {}\n", context / ulysses);
    if (ulysses > 1) out += fmt::format("  ulysses: {}\n", ulysses);
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
    return out + reduction_of(sharers, stages, zero == 1 || zero == 2);
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
  std::optional<std::int64_t> width_of(std::int64_t model_gpus) {
    auto nodes = number({"nnodes", "num-nodes", "nodes", "num-machines"}, "cluster.nodes");
    auto each = number({"nproc-per-node", "num-gpus", "gpus-per-node", "ntasks-per-node"},
                       "cluster.devices_per_node");
    const std::string per_node = word("nproc-per-node", "cluster.devices_per_node");
    if (!each && (per_node == "gpu" || per_node == "auto")) {
      has("nproc-per-node", "cluster.devices_per_node: 8, all of a node");
      each = 8;
    }
    if (deepspeed_) has("hostfile", "cluster: its hosts and slots");
    if (deepspeed_) take_hosts(word("include", "cluster"), nodes, each);
    auto world = processes(nodes, each);
    if (!world && !(nodes && each)) world = number("gpus", "cluster");  // of Slurm's whole job
    const bool counted = world || nodes;
    if (!counted && cluster_.gpus()) not_asked({"nnodes", "num-nodes", "nodes", "world-size"});
    if (!counted && !each && !cluster_.gpus()) return std::nullopt;
    const std::int64_t gpus = world     ? *world
                              : counted ? product_of({*nodes, each.value_or(8)}, "GPUs")
                                        : cluster_.gpus().value_or(each.value_or(8));
    if (each || (world && nodes))
      per_node_ = each ? *each : std::max<std::int64_t>(1, gpus / *nodes);
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
    constexpr auto kModules = std::span(kLayerPartNames).first(kMegatronParts);
    std::vector<std::string> modules = words(flag, "pipeline.recompute");
    if (mentions("moe-layer-recompute") && shape_.experts) modules.emplace_back("moe");
    std::vector<std::string> known, others;
    for (const std::string& module : modules) {
      const bool is_known = std::ranges::find(kModules, module) != kModules.end();
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
                                   fmt::join(kModules, ", ")));
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

  static constexpr const char* kSteps = "microbatches of a replica in an update";

  std::string origin_;
  std::vector<std::string> programs_;
  JobCluster cluster_;
  std::string given_model_;
  bool deepspeed_;
  std::string stack_;
  std::vector<Diagnostic> errors_;
  TransformerSpec shape_;
  std::int64_t layers_ = 0;
  std::optional<std::int64_t> per_node_;
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
  read_hostfile(job);
  return Import(std::move(job)).scenario();
}

}  // namespace penstock
