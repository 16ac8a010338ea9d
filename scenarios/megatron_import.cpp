#include "scenarios/megatron_import.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "models/layout_string.hpp"
#include "scenarios/document.hpp"
#include "scenarios/import_notes.hpp"
#include "scenarios/job_cluster.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/shell_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

namespace penstock {
namespace {

/// Flags that change nothing of what is predicted: whole names.
constexpr std::string_view kIgnoredFlags[] = {"max-position-embeddings",
                                              "position-embedding-type",
                                              "normalization",
                                              "norm-epsilon",
                                              "layernorm-epsilon",
                                              "disable-bias-linear",
                                              "add-qkv-bias",
                                              "use-rotary-position-embeddings",
                                              "no-position-embedding",
                                              "rotary-base",
                                              "rotary-percent",
                                              "attention-dropout",
                                              "hidden-dropout",
                                              "init-method-std",
                                              "weight-decay",
                                              "adam-beta1",
                                              "adam-beta2",
                                              "adam-eps",
                                              "clip-grad",
                                              "lr",
                                              "min-lr",
                                              "lr-decay-style",
                                              "lr-decay-iters",
                                              "lr-decay-samples",
                                              "lr-warmup-fraction",
                                              "lr-warmup-iters",
                                              "lr-warmup-samples",
                                              "train-iters",
                                              "train-samples",
                                              "optimizer",
                                              "seed",
                                              "data-path",
                                              "data-cache-path",
                                              "split",
                                              "train-data-path",
                                              "valid-data-path",
                                              "test-data-path",
                                              "num-workers",
                                              "dataloader-type",
                                              "data-impl",
                                              "mock-data",
                                              "vocab-file",
                                              "merge-file",
                                              "save",
                                              "load",
                                              "save-interval",
                                              "exit-interval",
                                              "exit-duration-in-mins",
                                              "exit-on-missing-checkpoint",
                                              "exit-signal-handler",
                                              "auto-detect-ckpt-format",
                                              "ckpt-format",
                                              "use-dist-ckpt",
                                              "async-save",
                                              "dist-ckpt-format",
                                              "finetune",
                                              "override-opt-param-scheduler",
                                              "use-checkpoint-args",
                                              "distributed-backend",
                                              "distributed-timeout-minutes",
                                              "master-addr",
                                              "master-port",
                                              "node-rank",
                                              "rdzv-id",
                                              "rdzv-backend",
                                              "rdzv-endpoint",
                                              "max-restarts",
                                              "tee",
                                              "redirects",
                                              "module",
                                              "local-ranks-filter",
                                              "role",
                                              "start-method",
                                              "use-mcore-models",
                                              "use-legacy-models",
                                              "transformer-impl",
                                              "attention-backend",
                                              "initial-loss-scale",
                                              "loss-scale",
                                              "loss-scale-window",
                                              "hysteresis",
                                              "attention-softmax-in-fp32",
                                              "accumulate-allreduce-grads-in-fp32",
                                              "apply-layernorm-1p",
                                              "apply-query-key-layer-scaling",
                                              "make-vocab-size-divisible-by",
                                              "manual-gc",
                                              "manual-gc-interval",
                                              "empty-unused-memory-level",
                                              "bias-swiglu-fusion",
                                              "bias-gelu-fusion",
                                              "reset-position-ids",
                                              "reset-attention-mask",
                                              "eod-mask-loss",
                                              "create-attention-mask-in-dataloader",
                                              "check-for-nan-in-loss-and-grad",
                                              "check-weight-hash-across-dp-replicas-interval",
                                              "overlap-p2p-communication",
                                              "sequence-length-warmup",
                                              "rampup-batch-size",
                                              "decrease-batch-size-if-needed",
                                              "use-tokenizer-model-from-checkpoint-args",
                                              "tokenizer-model",
                                              "enable-one-logger",
                                              "no-one-logger",
                                              "one-logger-project",
                                              "job-name",
                                              "output",
                                              "error",
                                              "time",
                                              "partition",
                                              "account",
                                              "mem",
                                              "cpus-per-task",
                                              "exclusive",
                                              "constraint",
                                              "no-scatter-gather-tensors-in-pipeline",
                                              "use-cpu-initialization",
                                              "no-query-key-layer-scaling",
                                              "nccl-communicator-config-path",
                                              "use-pytorch-profiler",
                                              "profile",
                                              "profile-step-start",
                                              "profile-step-end",
                                              "profile-ranks",
                                              "rotary-interleaved",
                                              "rotary-seq-len-interpolation-factor",
                                              "use-rope-scaling",
                                              "rope-scaling-factor",
                                              "qk-layernorm",
                                              "xavier-uniform-init",
                                              "test-mode"};
constexpr std::string_view kIgnoredBeginnings[] = {
    "log-",       "tensorboard-", "wandb-", "eval-",      "no-load-", "no-save-",
    "timing-",    "lr-",          "save-",  "load-",      "ckpt-",    "dist-ckpt-",
    "tokenizer-", "one-logger-",  "rerun-", "straggler-", "data-",    "hf-"};

constexpr UnmodelledOption kUnmodelledFlags[] = {
    {"num-experts", "mixture of experts is not modelled"},
    {"expert-", "expert parallelism is not modelled"},
    {"moe-", "mixture of experts is not modelled"},
    {"cp-comm-type", "context parallelism is predicted as a ring (p2p)"},
    {"hierarchical-context-parallel-sizes", "context parallelism is predicted as one ring"},
    {"multi-latent-attention", "multi-latent attention is not modelled"},
    {"kv-lora-rank", "multi-latent attention is not modelled"},
    {"q-lora-rank", "multi-latent attention is not modelled"},
    {"qk-head-dim", "multi-latent attention is not modelled"},
    {"v-head-dim", "multi-latent attention is not modelled"},
    {"mtp-num-layers", "multi-token prediction is not modelled"},
    {"fp8-", "8-bit numbers are not modelled: times are those of 16 bits"},
    {"fp4-", "4-bit numbers are not modelled: times are those of 16 bits"},
    {"tp-comm-overlap",
     "hiding tensor exchanges under products is not modelled: times are pessimistic"},
    {"use-megatron-fsdp", "sharded weights are not modelled"},
    {"use-custom-fsdp", "sharded weights are not modelled"},
    {"use-torch-fsdp2", "sharded weights are not modelled"},
    {"data-parallel-sharding-strategy", "sharded weights are not modelled"},
    {"zero-stage", "only ZeRO-1 is modelled (distributed_optimizer)"},
    {"cpu-offloading", "offloading is not modelled"},
    {"optimizer-cpu-offload", "offloading is not modelled"},
    {"optimizer-offload", "offloading is not modelled"},
    {"fine-grained-activation-offloading", "offloading is not modelled"},
    {"recompute-modules", "recomputation of single modules is not modelled"},
    {"distribute-saved-activations", "not modelled: memory is pessimistic"},
    {"overlap-moe", "mixture of experts is not modelled"},
    {"overlap-param-gather", "the all-gather of updated weights is not hidden here"},
    {"delay-wgrad-compute", "not modelled; the zb-h1 schedule delays weight gradients, too"},
    {"external-cuda-graph", "CUDA graphs are not modelled: launches may bind"},
    {"enable-cuda-graph", "CUDA graphs are not modelled: launches may bind"},
    {"cuda-graph", "CUDA graphs are not modelled: launches may bind"},
    {"use-precision-aware-optimizer", "not modelled: give model.bytes_per_parameter"},
    {"main-grads-dtype", "not modelled: give model.bytes_per_parameter.gradients"},
    {"main-params-dtype", "not modelled: give model.bytes_per_parameter.optimizer"},
    {"exp-avg", "not modelled: give model.bytes_per_parameter.optimizer"},
    {"kv-channels",
     "heads of a size other than hidden_size / num_attention_heads are not modelled"},
    {"window-size", "windows of attention are not modelled: attention is counted in full"},
    {"encoder-", "encoder-decoder models are not modelled"},
    {"decoder-num-layers", "encoder-decoder models are not modelled"},
    {"standalone-embedding-stage",
     "not modelled: give a pipeline.split whose first stage has 0 layers"},
    {"align-grad-reduce", "not modelled"},
    {"hybrid-", "models of several kinds of layers are not modelled"},
    {"mamba-", "state-space layers are not modelled"}};

constexpr KnownOptions kKnownFlags{kIgnoredFlags, kIgnoredBeginnings, kUnmodelledFlags};

class Import : ImportNotes {
 public:
  Import(std::vector<ScriptOption> options, const std::string& origin, const std::string& cluster)
      : ImportNotes(std::move(options), "--", kKnownFlags), origin_(origin), cluster_(cluster) {}

  std::string scenario() {
    const std::string model_part = model();  // first: it counts the layers
    const std::string other_parts = rest();
    return fmt::format("# {} by `penstock import megatron-args`\n{}{}{}", as_comment(origin_),
                       ImportNotes::head(origin_), model_part, other_parts);
  }

 private:
  std::int64_t needed(const std::string& name, const char* key, std::int64_t otherwise) {
    const auto value = number(name, key);
    if (value) return *value;
    assume(fmt::format("{}: {} (no --{} with a number)", key, otherwise, name));
    return otherwise;
  }

  std::string model() {
    layers_ = needed("num-layers", "model.num_layers", 32);
    const std::int64_t hidden = needed("hidden-size", "model.hidden_size", 4096);
    const std::int64_t heads = needed("num-attention-heads", "model.num_attention_heads", 32);
    const std::int64_t length = needed("seq-length", "model.seq_length", 4096);
    const bool gated = has("swiglu", "model.family: llama");
    const auto given = number("ffn-hidden-size", "model.ffn_hidden_size");
    const std::int64_t dense = given.value_or(gated ? hidden * 4 * 2 / 3 / 64 * 64 : 4 * hidden);
    const std::int64_t ffn = mentions("num-experts") ? of_visited_experts(dense) : dense;
    const bool grouped = has("group-query-attention", "model.num_query_groups");
    const auto groups = number("num-query-groups", "model.num_query_groups");
    const bool untied = has("untie-embeddings-and-output-weights", "model.tie_embeddings: false");
    const bool fp16 = has("fp16", "model.precision: mixed-fp16");
    const bool bf16 = has("bf16", "model.precision: mixed-bf16");
    bool flash = has("use-flash-attn", "model.flash_attention: true");
    // Transformer Engine, which is the default, has it.
    const std::string implementation = word("transformer-impl", "model.flash_attention");
    if (!flash && implementation == "transformer_engine") flash = true;
    if (!flash && implementation != "local" && !mentions("use-legacy-models")) {
      flash = true;
      assume("model.flash_attention: true (Transformer Engine's; no --transformer-impl local)");
    }
    std::string out = fmt::format(
        "model:\n  family: {}\n  num_layers: {}\n  hidden_size: {}\n  ffn_hidden_size: {}\n"
        "  num_attention_heads: {}\n",
        gated ? "llama" : "gpt", layers_, hidden, ffn, heads);
    if (grouped) out += fmt::format("  num_query_groups: {}\n", groups.value_or(1));
    out += fmt::format("  seq_length: {}\n  vocab_size: {}\n  tie_embeddings: {}\n", length,
                       vocabulary(), !untied);
    out += fmt::format("  flash_attention: {}\n", flash);
    if (mentions("num-experts")) out += fmt::format("  missing: {}\n", kWithoutExperts);
    return out + fmt::format("  precision: {}\n", bf16   ? "mixed-bf16"
                                                  : fp16 ? "mixed-fp16"
                                                         : "fp32");
  }

  /// What a token's experts compute, as one dense layer.
  std::int64_t of_visited_experts(std::int64_t dense) {
    const char* const key = "model.ffn_hidden_size";
    const std::int64_t visited = number("moe-router-topk", key).value_or(2);
    const std::int64_t each = number("moe-ffn-hidden-size", key).value_or(dense);
    const std::int64_t shared = number("moe-shared-expert-intermediate-size", key).value_or(0);
    assume(
        fmt::format("{}: {} (of the experts that a token visits: their compute; the weights of the "
                    "others, routing and all-to-all are missing)",
                    key, visited * each + shared));
    return visited * each + shared;
  }

  std::int64_t vocabulary() {
    const auto given = number("vocab-size", "model.vocab_size");
    const auto padded = number("padded-vocab-size", "model.vocab_size");
    const std::string tokenizer = word("tokenizer-type", "model.vocab_size");
    const std::string file = word("tokenizer-model", "model.vocab_size");
    if (padded) return *padded;
    if (given) return *given;
    const auto names = [&](std::string_view part) {
      std::string all = tokenizer + " " + file;
      std::ranges::transform(all, all.begin(), [](unsigned char c) { return std::tolower(c); });
      return all.find(part) != std::string::npos;
    };
    const bool third = names("llama-3") || names("llama3") || names("tiktoken");
    const std::int64_t size = third                                      ? 128'256
                              : names("llama") || names("sentencepiece") ? 32'000
                                                                         : 50'257;
    assume(fmt::format("model.vocab_size: {} (no --vocab-size; by the tokenizer)", size));
    return size;
  }

  std::string rest() {
    const std::int64_t tensor =
        number({"tensor-model-parallel-size", "model-parallel-size"}, "pipeline.tensor")
            .value_or(1);
    const std::int64_t stages =
        number("pipeline-model-parallel-size", "pipeline.stages").value_or(1);
    const std::int64_t context = number("context-parallel-size", "pipeline.context").value_or(1);
    const std::string ring = word("cp-comm-type", "");
    unless_one("cp-comm-type", context == 1 || ring == "p2p" ? 1 : 2);
    const std::int64_t chunks = chunks_of(stages);
    const std::int64_t micro = needed("micro-batch-size", "pipeline.microbatch_size", 1);
    const std::optional<std::int64_t> told_width = width_of(tensor * context * stages);
    const std::int64_t width = told_width.value_or(1);
    const std::int64_t sharers = width * context;
    const auto batch = number("global-batch-size", "pipeline.global_batch_size");
    const bool sequence =
        has("sequence-parallel", tensor > 1 ? "pipeline.sequence_parallel: true"
                                            : "nothing, without tensor parallelism");
    const bool shared = has("use-distributed-optimizer", "pipeline.distributed_optimizer: true");
    const bool dividing = tensor > 1 && !sequence;
    std::string out =
        fmt::format("cluster: {}\nstack: megatron\n",
                    cluster_.text(*this, tensor * context * stages * width, per_node_));
    assume(
        "stack: megatron (its launches, traffic, memory and overlap; leave it out for a neutral "
        "one)");
    const bool interleaved = chunks > 1;
    out += fmt::format("schedule: {}\n", interleaved ? "interleaved-1f1b" : "1f1b");
    // Without chunks Megatron-LM sends and receives together and waits for both.
    out += fmt::format("transfers: {}\n", stages > 1 && !interleaved ? "coupled" : "overlapped");
    if (interleaved)
      unmodelled("no-overlap-p2p-communication",
                 "messages between interleaved stages overlap computation here: too fast");
    else
      has("no-overlap-p2p-communication", "transfers: coupled");
    out += fmt::format("pipeline:\n  stages: {}\n", stages);
    if (interleaved) out += fmt::format("  chunks: {}\n", chunks);
    if (const auto group =
            number("microbatch-group-size-per-virtual-pipeline-stage", "pipeline.group");
        group && interleaved)
      out += fmt::format("  group: {}\n", *group);
    out += fmt::format("  width: {}\n", width);
    if (tensor > 1) out += fmt::format("  tensor: {}\n", tensor);
    if (context > 1) out += fmt::format("  context: {}\n", context);
    if (sequence && tensor > 1) out += "  sequence_parallel: true\n";
    if (dividing && has("scatter-gather-tensors-in-pipeline", "pipeline.transfers_divided: true"))
      out += "  transfers_divided: true\n";
    if (shared) out += "  distributed_optimizer: true\n";
    out += fmt::format("  microbatch_size: {}\n", micro);
    if (batch)
      out += fmt::format("  global_batch_size: {}\n", *batch);
    else
      assume("pipeline.microbatches: 1 (no --global-batch-size: one microbatch per update)");
    out += recomputation() + split(stages * chunks, chunks);
    if (has("use-tp-pp-dp-mapping", "pipeline.rank_order: pipeline-first"))
      out += "  rank_order: pipeline-first\n";
    const bool overlaps = sharers > 1 && !interleaved;
    const char* const overlap = overlaps       ? "pipeline.reduction.overlap: backward"
                                : sharers == 1 ? "nothing, with a single replica"
                                               : "not modelled with chunks: reduced at the end";
    if (has("overlap-grad-reduce", overlap) && overlaps)
      out += "  reduction: {overlap: backward}\n";
    return out;
  }

  std::int64_t chunks_of(std::int64_t stages) {
    const auto chunks = number("num-virtual-stages-per-pipeline-rank", "pipeline.chunks");
    const auto layers = number("num-layers-per-virtual-pipeline-stage", "pipeline.chunks");
    if (chunks) return *chunks;
    if (layers && layers_ % (*layers * stages) == 0) return layers_ / (*layers * stages);
    if (layers)
      assume(fmt::format("pipeline.chunks: 1 ({} layers are no multiple of {} x {} stages)",
                         layers_, *layers, stages));
    return 1;
  }

  /// None where nothing says how many GPUs there are.
  std::optional<std::int64_t> width_of(std::int64_t model_gpus) {
    const auto nodes = number({"nnodes", "nodes"}, "cluster.nodes");
    const auto each =
        number({"nproc-per-node", "gpus-per-node", "ntasks-per-node"}, "cluster.devices_per_node");
    const auto world = number("world-size", "cluster");
    const bool counted = world || nodes;
    if (!counted && cluster_.gpus()) not_asked({"nnodes", "nodes", "world-size"});
    if (!counted && !each && !cluster_.gpus()) {
      assume(
          "pipeline.width: 1 (no --nnodes, --nproc-per-node or --world-size, and no --cluster with "
          "nodes: it is the number of GPUs / (stages x tensor x context))");
      return std::nullopt;
    }
    const std::int64_t gpus = world     ? *world
                              : counted ? *nodes * each.value_or(8)
                                        : cluster_.gpus().value_or(each.value_or(8));
    per_node_ = each.value_or(8);
    const std::int64_t width = gpus / model_gpus;
    if (width * model_gpus != gpus || width == 0)
      assume(fmt::format("pipeline.width: {} ({} GPUs are no multiple of {})",
                         std::max<std::int64_t>(1, width), gpus, model_gpus));
    return std::max<std::int64_t>(1, width);
  }

  std::string recomputation() {
    const bool selective = has("recompute-activations", "pipeline.recompute: selective");
    const bool old = has("checkpoint-activations", "pipeline.recompute: full");
    const std::string granularity = word("recompute-granularity", "pipeline.recompute");
    const std::string method = word("recompute-method", "pipeline.recompute");
    const auto layers = number("recompute-num-layers", "pipeline.recompute");
    if (old || granularity == "full") {
      const bool block = method == "block";
      if (!layers || (!block && *layers == 1)) return "  recompute: full\n";
      return fmt::format("  recompute: full\n  recompute_method: {}\n  recompute_layers: {}\n",
                         block ? "block" : "uniform", *layers);
    }
    return selective || granularity == "selective" ? "  recompute: selective\n" : "";
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
    try {
      for (const StageLayers& stage : parse_layout(text, "layout")) {
        layers.push_back(stage.layers);
        all += stage.layers;
      }
    } catch (const InputError& error) {
      return not_followed({flag}, as_comment(error.diagnostics().front().message), stages);
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
  JobCluster cluster_;
  std::int64_t layers_ = 0, per_node_ = 8;
};

}  // namespace

std::string scenario_of_megatron(std::string_view text, const std::string& origin,
                                 const std::string& cluster, const ShellVariables& defined) {
  auto options = script_options(text, defined);
  const auto known = [](const ScriptOption& o) {
    return o.name == "num-layers" || o.name == "hidden-size" || o.name == "micro-batch-size" ||
           o.name == "pipeline-model-parallel-size" || o.name == "tensor-model-parallel-size";
  };
  if (std::ranges::none_of(options, known))
    throw InputError(
        origin, "has none of Megatron-LM's flags, such as --num-layers and --micro-batch-size");
  return Import(std::move(options), origin, cluster).scenario();
}

}  // namespace penstock
