// SPDX-License-Identifier: Apache-2.0
#include "scenarios/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

/// What a tensor degree must divide: how many, and of what.
using Divided = std::vector<std::pair<std::int64_t, const char*>>;

Divided divided_by_tensor(const TransformerSpec& model, bool sequence) {
  Divided parts{{model.num_attention_heads, "attention heads"}};
  if (model.num_query_groups != model.num_attention_heads)
    parts.emplace_back(model.num_query_groups, "key/value heads");
  if (!model.experts || model.expert_layers(0, model.num_layers) < model.num_layers)
    parts.emplace_back(model.ffn_hidden_size, "columns of the MLP (ffn_hidden_size)");
  if (model.experts && model.experts->shared_width > 0)
    parts.emplace_back(model.experts->shared_width, "columns of the shared experts");
  if (sequence) parts.emplace_back(model.seq_length, "tokens of a sequence (sequence_parallel)");
  return parts;
}

/// The legal degrees next to one that is not: those that divide the greatest common divisor.
std::string nearest_degrees(const Divided& parts, std::int64_t degree) {
  std::int64_t common = 0;
  for (const auto& part : parts) common = std::gcd(common, part.first);
  if (degree > common) return fmt::format("the largest that does is {}", common);
  std::int64_t below = degree, above = degree;
  while (common % below != 0) --below;
  while (common % above != 0) ++above;
  return fmt::format("the nearest that do are {} and {}", below, above);
}

void check_division(const PipelineKeys& pipeline, const TransformerSpec& model, int degree,
                    bool sequence) {
  if (model.experts && degree > 1 && !sequence)
    pipeline.tensor.refuse(
        "experts take tokens that tensor ranks have divided: a 'tensor' of 2 or more needs "
        "sequence_parallel: true");
  const Divided parts = divided_by_tensor(model, sequence);
  std::vector<std::string> undivided;
  for (const auto& [count, what] : parts) {
    if (count % degree != 0) undivided.push_back(fmt::format("{} {}", count, what));
  }
  if (undivided.empty()) return;
  pipeline.tensor.refuse(fmt::format("a tensor degree of {} does not divide the model's {}; {}",
                                     degree, fmt::join(undivided, " and "),
                                     nearest_degrees(parts, degree)));
}

/// Megatron cuts a sequence into 2c pieces, of which each rank has one of the first half and one of
/// the second, so that causal attention is as much work for all.
void check_context(const PipelineKeys& pipeline, const TransformerSpec& model, const Mesh& mesh,
                   bool sequence) {
  const int context = mesh.replica_sharers();
  if (context == 1) return;
  const std::int64_t ranks = sequence ? mesh.size(Axis::tensor) : 1;
  if (model.seq_length % (2 * ranks * context) == 0) return;
  const std::int64_t most = model.seq_length / (2 * ranks);
  const int ulysses = mesh.size(Axis::ulysses);
  const std::int64_t both = 2 * ranks * ulysses;
  std::int64_t below = std::min<std::int64_t>(mesh.size(Axis::context), most / ulysses);
  while (below > 1 && model.seq_length % (both * below) != 0) --below;
  const bool one_does = below >= 1 && model.seq_length % (both * below) == 0;
  const auto& key =
      mesh.size(Axis::context) > 1 || ulysses == 1 ? pipeline.context : pipeline.ulysses;
  key.refuse(fmt::format(
      "a context degree of {}{} does not cut a sequence of {} tokens into two equal pieces per "
      "rank{}; {}",
      context, ulysses > 1 ? " (context x ulysses)" : "", model.seq_length,
      ranks > 1 ? fmt::format(" that {} tensor ranks can divide", ranks) : "",
      one_does || ulysses == 1
          ? fmt::format("the next lower {}one that does is {}", ulysses > 1 ? "'context' " : "",
                        std::max<std::int64_t>(below, 1))
          : "no 'context' beside this 'ulysses' does"));
}

void check_context_exchange(const PipelineKeys& pipeline, const TransformerSpec& model,
                            const Mesh& mesh) {
  const int ulysses = mesh.size(Axis::ulysses);
  const auto how = pipeline.context_exchange.value_or(ContextExchange::ring);
  if (ulysses > 1 && how != ContextExchange::ring)
    pipeline.context_exchange.refuse(
        "beside ulysses, whose ranks exchange heads, keys and values go round: ring, or leave it "
        "out");
  const int context = how == ContextExchange::all_to_all ? mesh.size(Axis::context) : 1;
  if (context == 1 && ulysses == 1) return;
  const std::int64_t ranks = std::int64_t{context} * ulysses * mesh.size(Axis::tensor);
  const std::int64_t heads = std::min(model.num_attention_heads, model.num_query_groups);
  if (heads % ranks == 0) return;
  if (ulysses > 1)
    pipeline.ulysses.refuse(fmt::format(
        "each of {} ranks (tensor x ulysses) has whole heads, of which there are {}; use less, and "
        "context for the rest",
        ranks, heads));
  else
    pipeline.context_exchange.refuse(fmt::format(
        "all-to-all gives each of {} ranks (tensor x context) whole heads, of which there "
        "are {}; use ring or all-gather",
        ranks, heads));
}

/// Costs that are given or measured say nothing of a part of a stage.
void refuse_given_costs(const Specification& spec, const Parallelism& job) {
  const bool given = spec.given_costs();
  if (!given && spec.layer_profile() == nullptr) return;
  const auto refuse = [&](const std::string& key) {
    const char* why = given ? "needs a model by shape; this one gives its costs per device"
                            : "needs costs by formula; measured ones are those of whole stages "
                              "(leave out the model's 'measured')";
    spec.pipeline.section.refuse(key, fmt::format("'{}' {}", key, why));
  };
  for (const Axis axis : kInnerAxes)
    if (job.mesh.size(axis) > 1) refuse(std::string(traits(axis).name));
  for (const char* key : {"expert", "expert_tensor", "expert_exchange", "expert_sms",
                          "expert_overlap", "narrow_dispatch"})
    if (spec.pipeline.section.has(key)) refuse(key);
  if (job.transfers_divided) refuse("transfers_divided");
  if (job.sharding.sharded()) refuse(spec.pipeline.shard.there ? "shard" : "distributed_optimizer");
}

/// What divides among tensor ranks needs some.
void check_alone(const Specification& spec) {
  const PipelineKeys& keys = spec.pipeline;
  const bool alone = keys.tensor.value_or(1) == 1 && !keys.tensor.broken;
  const bool whole = !keys.sequence_parallel.value_or(false) && !keys.sequence_parallel.broken;
  if (keys.tensor_overlap.value_or(false) && (alone || whole)) {
    keys.tensor_overlap.refuse(
        "'tensor_overlap' hides what sequence parallelism exchanges: it needs sequence_parallel "
        "and a 'tensor' of 2 or more");
  }
  if (keys.tensor.value_or(1) > 1 || keys.tensor.broken) return;
  if (keys.sequence_parallel.value_or(false)) {
    keys.sequence_parallel.refuse(
        "'sequence_parallel' divides what tensor parallelism leaves whole: it needs a 'tensor' "
        "of 2 or more");
  }
  if (keys.transfers_divided.value_or(false) && spec.transformer() && !spec.layer_profile()) {
    keys.transfers_divided.refuse(
        "'transfers_divided' divides messages among tensor ranks: it needs a 'tensor' of 2 or "
        "more");
  }
}

Sharded asked_sharding(const PipelineKeys& keys) {
  if (keys.shard.value) return *keys.shard.value;
  return keys.distributed_optimizer.value_or(false) ? Sharded::optimizer : Sharded::none;
}

/// What only those can say who divide something.
void check_sharding_keys(const Specification& spec, Sharded what) {
  const PipelineKeys& keys = spec.pipeline;
  if (what == Sharded::none && keys.shard_group.there)
    keys.shard_group.refuse("'shard_group' is of those who divide something: it needs 'shard'");
  if (spec.reduction.gather.there && (what == Sharded::none || what == Sharded::weights))
    spec.diagnostics.note(
        what == Sharded::none
            ? "reduction.gather changes nothing: it is of a divided optimizer (shard: optimizer)"
            : "reduction.gather changes nothing: with shard: weights it is reshard_after_forward "
              "that says when weights are gathered");
  if (what != Sharded::weights && keys.reshard_after_forward.there)
    keys.reshard_after_forward.refuse("'reshard_after_forward' needs shard: weights");
  if (what != Sharded::weights && keys.unshard_lookahead.there)
    keys.unshard_lookahead.refuse("'unshard_lookahead' needs shard: weights");
}

void check_sharding(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  const Schedule* schedule = job.schedule;
  const bool by_shard = keys.shard.there;
  const auto refuse = [&](const std::string& why) {
    if (by_shard)
      keys.shard.refuse(why);
    else
      keys.distributed_optimizer.refuse(why);
  };
  if (schedule != nullptr && schedule->asynchronous) {
    refuse(fmt::format("'{}' has parameter servers, which keep the optimizer's state",
                       schedule->name));
  }
  if (!job.mesh.width.alike())
    refuse(fmt::format("'{}' needs as many replicas of every stage",
                       by_shard ? "shard" : "distributed_optimizer"));
  const bool within_update = job.sharding.what > Sharded::optimizer;
  if (within_update && schedule != nullptr && !schedule->asynchronous && !schedule->flushes())
    refuse(
        fmt::format("'{}' has several versions of its weights under way: it can divide the "
                    "optimizer's states alone (shard: optimizer)",
                    schedule->name));
  if (within_update && job.lowering.detached_reductions)
    refuse("gradients that are divided cannot wait for the next batch; use overlap: backward");
  const Sharding& shared = job.sharding;
  if (schedule != nullptr && schedule->layout == Layout::mirrored && !shared.gathers_in_reduction())
    refuse(
        fmt::format("'{}' has each stage on two devices: it can divide the optimizer's states "
                    "alone, among all replicas, and gather the weights after the step",
                    schedule->name));
  const auto algorithm = spec.reduction.algorithm.value_or(ReductionAlgorithm::ring);
  if (algorithm != ReductionAlgorithm::ring && algorithm != ReductionAlgorithm::hierarchical &&
      algorithm != kFormula && !shared.gathers_in_reduction())
    spec.diagnostics.note(
        "reduction.algorithm is of all-reduces: what is divided is reduced and gathered by rings");
  const int sharers = job.mesh.sharers();
  if (job.sharding.group > 0 && sharers % job.sharding.group != 0)
    keys.shard_group.refuse(
        fmt::format("{} GPUs have the same weights: 'shard_group' must divide "
                    "them, got {}",
                    sharers, job.sharding.group));
}

/// The legal degrees next to one that does not divide: "4 or 8".
std::string nearest_divisors(std::int64_t of, std::int64_t degree) {
  if (degree >= of) return fmt::format("{}", of);
  std::int64_t below = degree, above = degree;
  while (of % below != 0) --below;
  while (of % above != 0) ++above;
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

void check_expert_degrees(const PipelineKeys& keys, const TransformerSpec& model,
                          const Mesh& mesh) {
  const Experts& experts = *model.experts;
  if (experts.count % mesh.expert != 0)
    keys.expert.refuse(fmt::format("{} experts cannot be divided among {} GPUs; use {}",
                                   experts.count, mesh.expert,
                                   nearest_divisors(experts.count, mesh.expert)));
  if (mesh.expert_tensor != 1 && mesh.expert_tensor != mesh.size(Axis::tensor))
    keys.expert_tensor.refuse(fmt::format(
        "either the tensor ranks divide experts, too, or nobody does: use 1 or {}, got {}",
        mesh.size(Axis::tensor), mesh.expert_tensor));
  else if (experts.width % mesh.expert_tensor != 0)
    keys.expert_tensor.refuse(
        fmt::format("{} does not divide the {} columns of an expert (expert_ffn_hidden_size)",
                    mesh.expert_tensor, experts.width));
  for (const int width : mesh.width.values()) {
    const std::int64_t gpus = std::int64_t{width} * mesh.replica_gpus();
    const std::int64_t parts = std::int64_t{mesh.expert} * mesh.expert_tensor;
    if (gpus % parts == 0) continue;
    keys.expert.refuse(fmt::format(
        "expert {} x expert_tensor {} do not divide the {} GPUs of a position (width x context x "
        "tensor)",
        mesh.expert, mesh.expert_tensor, gpus));
    return;
  }
}

/// Passes run together where no other device waits for one of them: on a single stage, and in
/// orders with as many forwards ahead as interleaved 1F1B has.
void check_expert_overlap(const Specification& spec, const Parallelism& job) {
  const auto& key = spec.pipeline.expert_overlap;
  if (!key.value_or(false) || job.schedule == nullptr) return;
  const bool alone = job.shape.depth == 1 && job.schedule->flushes() && !job.schedule->asynchronous;
  const Numbers& offload = spec.pipeline.offload;
  if (!alone && !job.schedule->name.starts_with("interleaved-1f1b"))
    key.refuse(fmt::format(
        "a backward and the next forward of '{}' wait for one another on other devices, "
        "or none follows the other; it needs interleaved-1f1b or a single stage",
        job.schedule->name));
  else if (job.lowering.transfers == Transfers::coupled)
    key.refuse("passes that run together need transfers that do not hold a device; 'coupled' do");
  else if (offload.there || job.sharding.what == Sharded::weights)
    key.refuse(
        "passes that run together have neither sharded weights nor activations on the host "
        "(offload)");
}

/// Refuses jobs whose GPUs cannot divide experts as the keys say.
void check_experts(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  const TransformerSpec* model = spec.transformer();
  if (spec.given_costs()) return;  // refused there
  if (model == nullptr || !model->experts) {
    if (keys.expert_exchange.there || keys.expert_sms.there || keys.narrow_dispatch.value_or(false))
      spec.diagnostics.note(
          "expert_exchange, expert_sms and narrow_dispatch change nothing: the model has no "
          "experts");
    for (const auto* key : {&keys.expert, &keys.expert_tensor})
      if (key->value_or(1) > 1) key->refuse("the model has no experts (num_experts)");
    if (keys.expert_overlap.value_or(false))
      keys.expert_overlap.refuse("the model has no experts (num_experts)");
    return;
  }
  check_expert_degrees(keys, *model, job.mesh);
  const bool sequence = job.sequence_parallel || keys.sequence_parallel.broken;
  if (job.mesh.size(Axis::tensor) > 1 && !sequence)
    keys.tensor.refuse(
        "with experts, tensor ranks divide their tokens, too: it needs sequence_parallel, as in "
        "Megatron-LM");
  check_expert_overlap(spec, job);
  if (job.schedule != nullptr && job.schedule->asynchronous)
    keys.expert.refuse(
        fmt::format("the replicas of '{}' wait for no other, so they cannot "
                    "exchange tokens",
                    job.schedule->name));
  // Experts that everybody has are divided as all else is, but not in groups.
  const bool alike = job.mesh.expert_sharers(0) == job.mesh.sharers();
  if (job.sharding.hybrid() || (!alike && job.sharding.what > Sharded::optimizer))
    keys.section.refuse(keys.shard.there ? "shard" : "distributed_optimizer",
                        "with experts, the optimizer's states can be divided, among all who have "
                        "them (shard: optimizer), and weights where each GPU has all experts "
                        "(expert: 1); groups (shard_group) are not modelled");
}

bool shape_known(const Section& model) {
  const auto fine = [&](const char* key) { return model.has(key) && !model.broken(key); };
  return fine("num_attention_heads") && fine("hidden_size") && fine("seq_length") &&
         !model.broken("num_query_groups") && !model.broken("ffn_hidden_size");
}

}  // namespace

Sharding sharding_of(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  const int sharers = job.mesh.sharers();
  if (keys.shard.value && keys.distributed_optimizer.value &&
      (*keys.shard.value == Sharded::none) == *keys.distributed_optimizer.value)
    keys.distributed_optimizer.refuse(
        fmt::format("'shard: {}' says the contrary; leave out one of the two",
                    kShardedNames[static_cast<std::size_t>(*keys.shard.value)]));
  Sharding out{.what = asked_sharding(keys), .sharers = sharers};
  const int expert_sharers = job.mesh.expert_sharers(0);
  out.expert_sharers = expert_sharers;
  // Of a single replica nothing is divided, as in Megatron-LM.
  if (sharers == 1 && expert_sharers == 1 && !keys.width.broken) return {};
  if (keys.shard_group.value == 1) return {};
  constexpr std::int64_t kMost = 1'000'000;
  out.group = static_cast<int>(std::min(keys.shard_group.value_or(sharers), kMost));
  out.gathering = spec.reduction.gather.value_or(Gathering::after_step);
  if (out.what != Sharded::weights) return out;
  out.lookahead = static_cast<int>(std::min(keys.unshard_lookahead.value_or(1), kMost));
  const bool pipelined = job.shape.stages() > 1;
  const Reshard reshard = keys.reshard_after_forward.value_or(Reshard::automatic);
  const bool again = reshard == Reshard::always || (reshard == Reshard::automatic && !pipelined);
  out.gathering = again       ? Gathering::each_pass
                  : pipelined ? Gathering::first_forward
                              : Gathering::forward;
  return out;
}

void check_shares(const Specification& spec, const Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  check_alone(spec);
  const Sharded asked = asked_sharding(keys);
  if (!keys.shard.broken && !keys.distributed_optimizer.broken) check_sharding_keys(spec, asked);
  if (job.sharding.sharded()) {
    check_sharding(spec, job);
  } else if (asked != Sharded::none) {
    spec.diagnostics.note(fmt::format(
        "{} changes nothing: it divides {} among replicas, {}",
        keys.shard.there ? "shard" : "distributed_optimizer",
        asked == Sharded::optimizer ? "the optimizer's state" : "what they have alike",
        job.mesh.sharers() > 1 ? "in groups of one (shard_group)" : "and there is one"));
  }
  refuse_given_costs(spec, job);
  const TransformerSpec* model = spec.transformer();
  if (model == nullptr || spec.layer_profile() || !shape_known(spec.model->section)) return;
  check_experts(spec, job);
  check_division(keys, *model, job.mesh.size(Axis::tensor), job.sequence_parallel);
  check_context(keys, *model, job.mesh, job.sequence_parallel);
  check_context_exchange(keys, *model, job.mesh);
}

/// Returns whether tokens go by DeepEP, which nodes of at most 8 GPUs are taken to use, and not by
/// HybridEP.
bool takes_deepep(const Specification& spec) {
  return spec.pipeline.expert_exchange.value == ExpertExchange::once_per_node &&
         spec.cluster.devices_per_node <= 8;
}

/// The rate at which one of DeepEP's multiprocessors sends to other GPUs of its node: 11 to 13 GB/s
/// (fp8) and 14 to 15 GB/s (bf16) with 20 of them on 8 H100, H200, B200 or B300 (docs/experts.md).
constexpr double kDeepEpBytesPerS = 14e9;

/// Returns how many multiprocessors the kernels of DeepEP (20 of its normal ones, which send over
/// nodes) and of HybridEP occupy where nobody says it: Megatron-LM's moe_deepep_num_sms and
/// moe_hybridep_num_sms (megatron/core/transformer/transformer_config.py, release 0.15).
int usual_sms(const Specification& spec) {
  constexpr int kDeepEp = 20, kHybridEp = 16;
  if (spec.pipeline.expert_exchange.value != ExpertExchange::once_per_node) return 0;
  return takes_deepep(spec) ? kDeepEp : kHybridEp;
}

void set_experts(const Specification& spec, Parallelism& job) {
  const PipelineKeys& keys = spec.pipeline;
  const TransformerSpec* model = spec.transformer();
  if (model == nullptr || !model->experts) return;
  const Experts& experts = *model->experts;
  constexpr std::int64_t kMost = 1'000'000;
  job.mesh.expert = static_cast<int>(std::min(keys.expert.value_or(1), kMost));
  job.mesh.expert_tensor =
      static_cast<int>(std::min(keys.expert_tensor.value_or(job.mesh.size(Axis::tensor)), kMost));
  job.mesh.routing = {
      .once_per_node = keys.expert_exchange.value == ExpertExchange::once_per_node,
      .narrow = keys.narrow_dispatch.value_or(false),
      .sms = static_cast<int>(std::min(keys.expert_sms.value_or(usual_sms(spec)), kMost)),
      .sm_bytes_per_s = takes_deepep(spec) ? kDeepEpBytesPerS : 0,
      .per_token = experts.top_k,
      .parts = experts.groups,
      .parts_per_token = experts.groups_per_token};
}

void note_tensor(const TransformerSpec& model, const Cluster& cluster, const Mesh& mesh,
                 Diagnostics& diagnostics) {
  if (mesh.size(Axis::tensor) == 1) return;
  const std::int64_t rows =
      model.vocab_rows({mesh.size(Axis::tensor), false}) * mesh.size(Axis::tensor);
  if (rows != model.vocab_size) {
    diagnostics.note(
        fmt::format("the vocabulary of {} is padded to {}, a multiple of 128 x tensor {}",
                    model.vocab_size, rows, mesh.size(Axis::tensor)));
  }
  const bool nodes = !cluster.link && !cluster.network && cluster.nodes > 1;
  if (nodes && cluster.devices_per_node % mesh.size(Axis::tensor) != 0) {
    diagnostics.note(fmt::format(
        "the {} GPUs of a stage span nodes of {}: every layer's exchanges cross the network",
        mesh.size(Axis::tensor), cluster.devices_per_node));
  }
}

StageCostOptions cost_options(const Parallelism& job) {
  return {.microbatch_size = static_cast<double>(job.microbatch_size),
          .recompute = job.recompute,
          .tensor = {job.mesh.size(Axis::tensor), job.sequence_parallel, job.transfers_divided,
                     job.tensor_overlap},
          .context = job.mesh.replica_sharers(),
          .ulysses = job.mesh.size(Axis::ulysses),
          .context_exchange = job.context_exchange,
          .sharding = job.sharding,
          .optimizer = job.optimizer_kind,
          .matrix_exchange = job.matrix_exchange,
          .stack = job.stack,
          .tensor_sum = job.tensor_sum,
          .expert = {.degree = std::max(1, job.mesh.expert),
                     .tensor = job.mesh.expert_tensor,
                     .narrow_dispatch = job.mesh.routing.narrow,
                     .copies = job.routing ? job.routing->copies(std::max(1, job.mesh.expert)) : 0,
                     .sms = job.mesh.routing.sms,
                     .sorts = job.mesh.expert > 1 && !job.mesh.routing.once_per_node}};
}

}  // namespace penstock
