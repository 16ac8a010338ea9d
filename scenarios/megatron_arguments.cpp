// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_arguments.hpp"

#include "base/error.hpp"
#include "models/layout_string.hpp"
#include "scenarios/document.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace penstock {
namespace {

/// One number of layers may say what a list does: stages with fewer recompute all of them.
std::optional<Recomputation> recomputation_of_all(const Scenario& s) {
  if (s.recompute.alike()) return s.recompute.at(0);
  const std::vector<Recomputation> each = s.recompute.values();
  if (s.layers.size() != each.size()) return std::nullopt;
  int most = 0;
  for (std::size_t i = 0; i < each.size(); ++i)
    most = std::max(most, each[i].recomputed(s.layers[i]));
  const Recomputation all = Recomputation::block(most);
  for (std::size_t i = 0; i < each.size(); ++i)
    if (each[i].granularity == Recompute::selective || each[i].group(s.layers[i]) > 1 ||
        each[i].recomputed(s.layers[i]) != all.recomputed(s.layers[i]))
      return std::nullopt;
  return all;
}

/// What of a model's layers Megatron-LM has no flags for; empty where it has them.
std::string without_flags(const TransformerSpec& m) {
  const LayerForm f = m.form();
  std::vector<std::string> keys;
  const auto add = [&](bool is, const char* key) {
    if (is) keys.emplace_back(key);
  };
  add(f.norm == Norm::unbiased || f.norm == Norm::bare, "norm");
  add(f.norms != 2, "norms");
  add(f.qk_norm == QueryKeyNorm::width, "qk_norm: width");
  add(f.biases == Biases::attention || f.biases == Biases::mlp, "biases");
  add(f.positions == Positions::alibi, "positions: alibi");
  add(f.parallel_residual, "parallel_residual");
  add(f.sinks, "attention_sinks");
  add(m.experts && m.experts->router_bias, "router_bias");
  add(m.extra_parameters.has_value(), "extra_parameters");
  return fmt::format("{}", fmt::join(keys, ", "));
}

std::vector<Diagnostic> refusals(const Scenario& s) {
  std::vector<Diagnostic> out;
  const auto refuse = [&](const std::string& key, const std::string& why) {
    out.push_back({{s.origin + ", " + key, 0, 0}, why, "", 1, 0});
  };
  if (!megatron_runs(*s.schedule, s.shape.depth)) {
    refuse("schedule",
           fmt::format("Megatron-LM runs 1f1b and interleaved-1f1b, not '{}'", s.schedule->name));
  }
  if (!s.transformer)
    refuse("model", "a model given by its costs has no shape; Megatron-LM's flags give one");
  if (const std::string keys = s.transformer ? without_flags(*s.transformer) : ""; !keys.empty())
    refuse("model", fmt::format("Megatron-LM has no flags for the model's {}", keys));
  if (!s.mesh.width.alike() || s.mesh.divided)
    refuse("pipeline.width", "Megatron-LM replicates all stages alike");
  if (s.shape.accumulation_steps > 1)
    refuse("pipeline.accumulation_steps",
           "Megatron-LM runs all microbatches of an update in one go; leave it out");
  if (s.sharding.what == Sharded::weights && s.sharding.gathering != Gathering::each_pass)
    refuse("pipeline.reshard_after_forward",
           "Megatron-FSDP gathers weights in every forward and backward: reshard_after_forward: "
           "always");
  if (s.routing && s.routing->redundant > 0)
    refuse("routing.redundant_experts", "Megatron-LM gives no expert a second place");
  const auto by_op = [](const Recomputation& r) {
    return r.granularity == Recompute::selective &&
           r.parts.contains(LayerPart::every_second_product);
  };
  if (std::ranges::any_of(s.recompute.values(), by_op))
    refuse("pipeline.recompute_modules",
           "Megatron-LM recomputes modules, not every second product");
  if (s.sharding.what == Sharded::weights && s.sharding.lookahead != 1)
    refuse("pipeline.unshard_lookahead", "Megatron-FSDP gathers one layer ahead");
  if (!recomputation_of_all(s)) {
    refuse("pipeline.recompute",
           "Megatron-LM recomputes all stages alike; give one of none, selective, full for all, "
           "and one number of recompute_layers");
  }
  return out;
}

/// A command that starts as many processes as the job has GPUs, a flag a line.
class Flags {
 public:
  Flags(std::int64_t nodes, std::int64_t each)
      : text_(fmt::format("torchrun --nnodes {} --nproc-per-node {} pretrain_gpt.py \\\n", nodes,
                          each)) {}
  void add_flag(std::string_view flag) { text_ += fmt::format("  --{} \\\n", flag); }
  template <class Value>
  void add_flag(std::string_view flag, const Value& value) {
    text_ += fmt::format("  --{} {} \\\n", flag, value);
  }
  /// What the caller of the script adds comes last.
  std::string text() const { return text_ + "  \"$@\"\n"; }

 private:
  std::string text_;
};

/// Returns Megatron-LM's flags of a type: of its format and of its recipe (megatron/core/enums.py);
/// null where it has none.
const char* recipe_flags(NumberType type) {
  switch (type) {
    case NumberType::fp8: return "delayed";
    case NumberType::fp8_current: return "tensorwise";
    case NumberType::fp8_block: return "blockwise";
    case NumberType::mxfp8: return "mxfp8";
    default: return nullptr;
  }
}

/// Returns what of a model's types Megatron-LM's flags say.
ProductTypes said_by_flags(const ProductTypes& types) {
  const NumberType linear = types.of(ProductClass::mlp);
  const bool known = linear == NumberType::nvfp4 || recipe_flags(linear) != nullptr;
  ProductTypes said = known ? linear_layers_in(linear) : ProductTypes{};
  if (!known) return said;
  said.narrow_parameters = types.narrow_parameters && linear != NumberType::nvfp4;
  if (types.of(ProductClass::attention) == linear) said.of(ProductClass::attention) = linear;
  if (types.first_wide > 0 && types.last_wide > 0) {
    said.first_wide = types.first_wide;
    said.last_wide = types.last_wide;
  }
  return said;
}

void add_product_types(Flags& flags, const ProductTypes& types) {
  const ProductTypes said = said_by_flags(types);
  const NumberType linear = said.of(ProductClass::mlp);
  if (linear == NumberType::nvfp4) {
    flags.add_flag("fp4-format", "e2m1");
  } else if (const char* recipe = recipe_flags(linear)) {
    flags.add_flag("fp8-format", linear == NumberType::mxfp8 ? "e4m3" : "hybrid");
    flags.add_flag("fp8-recipe", recipe);
    if (said.narrow_parameters) flags.add_flag("fp8-param-gather");
    if (said.of(ProductClass::attention) == linear) flags.add_flag("fp8-dot-product-attention");
  }
  if (said.first_wide == 0) return;
  flags.add_flag("first-last-layers-bf16");
  flags.add_flag("num-layers-at-start-in-bf16", said.first_wide);
  flags.add_flag("num-layers-at-end-in-bf16", said.last_wide);
}

/// torchrun starts as many processes on each node: the most that a node has GPUs for.
Flags launch(const Scenario& s) {
  const std::int64_t gpus = s.gpu_count();
  std::int64_t each = std::clamp<std::int64_t>(s.cluster.devices_per_node, 1, gpus);
  while (gpus % each != 0) --each;
  return {gpus / each, each};
}

void add_latents(Flags& flags, const TransformerSpec& m) {
  if (!m.latent) return;
  flags.add_flag("multi-latent-attention");
  if (m.latent->q_rank > 0) flags.add_flag("q-lora-rank", m.latent->q_rank);
  flags.add_flag("kv-lora-rank", m.latent->kv_rank);
  flags.add_flag("qk-pos-emb-head-dim", m.latent->rope_dim);
  flags.add_flag("qk-head-dim", m.latent->nope_dim);
  flags.add_flag("v-head-dim", m.latent->value_dim);
}

void add_experts(Flags& flags, const TransformerSpec& m) {
  if (!m.experts) return;
  const Experts& e = *m.experts;
  flags.add_flag("num-experts", e.count);
  flags.add_flag("moe-router-topk", e.top_k);
  flags.add_flag("moe-ffn-hidden-size", e.width);
  if (e.shared_width > 0) flags.add_flag("moe-shared-expert-intermediate-size", e.shared_width);
  if (e.shared_gate) flags.add_flag("moe-shared-expert-gate");
  if (e.groups > 1) {
    flags.add_flag("moe-router-num-groups", e.groups);
    flags.add_flag("moe-router-group-topk", e.groups_per_token);
  }
  if (m.expert_layers(0, m.num_layers) == m.num_layers) return;
  std::vector<int> has;
  for (int i = 0; i < m.num_layers; ++i) has.push_back(m.has_experts(i) ? 1 : 0);
  flags.add_flag("moe-layer-freq", fmt::format("'[{}]'", fmt::join(has, ",")));
}

void add_model(Flags& flags, const TransformerSpec& m) {
  flags.add_flag("num-layers", m.num_layers);
  flags.add_flag("hidden-size", m.hidden_size);
  flags.add_flag("ffn-hidden-size", m.ffn_hidden_size);
  flags.add_flag("num-attention-heads", m.num_attention_heads);
  if (m.num_query_groups != m.num_attention_heads) {
    flags.add_flag("group-query-attention");
    flags.add_flag("num-query-groups", m.num_query_groups);
  }
  flags.add_flag("seq-length", m.seq_length);
  flags.add_flag("max-position-embeddings", std::max(m.seq_length, m.learned_positions()));
  flags.add_flag("vocab-size", m.vocab_size);
  const LayerForm f = m.form();
  if (f.gated_mlp) flags.add_flag("swiglu");
  if (f.norm == Norm::rms) flags.add_flag("normalization", "RMSNorm");
  if (f.positions != Positions::learned)
    flags.add_flag("position-embedding-type", f.positions == Positions::rotary ? "rope" : "none");
  if (f.biases != Biases::all) flags.add_flag("disable-bias-linear");
  if (f.biases == Biases::qkv) flags.add_flag("add-qkv-bias");
  if (f.qk_norm == QueryKeyNorm::head) flags.add_flag("qk-layernorm");
  if (m.head_dim) flags.add_flag("kv-channels", *m.head_dim);
  add_latents(flags, m);
  add_experts(flags, m);
  if (m.mtp_layers > 0) flags.add_flag("mtp-num-layers", m.mtp_layers);
  if (m.sliding_window) flags.add_flag("window-size", fmt::format("{},0", *m.sliding_window - 1));
  if (m.full_attention_every) flags.add_flag("window-attn-skip-freq", *m.full_attention_every);
  if (!f.dropout ||
      f.gated_mlp)  // Megatron-LM's default is 0.1 of both; a gated MLP means none here
    for (const char* flag : {"attention-dropout", "hidden-dropout"})
      flags.add_flag(flag, f.dropout ? "0.1" : "0");
  if (!m.tie_embeddings) flags.add_flag("untie-embeddings-and-output-weights");
  if (m.flash_attention)
    flags.add_flag("use-flash-attn");
  else
    flags.add_flag("transformer-impl",
                   "local");  // Transformer Engine's attention stores nothing, too
  if (m.compute_type == "fp16" || m.compute_type == "bf16") flags.add_flag(m.compute_type);
  add_product_types(flags, m.product_types);
}

/// Equal stages by their number, others by a layout.
void add_pipeline(Flags& flags, const Scenario& s) {
  flags.add_flag("pipeline-model-parallel-size", s.shape.depth);
  const bool even = std::ranges::adjacent_find(s.layers, std::not_equal_to<>()) == s.layers.end();
  if (!even) {
    flags.add_flag("pipeline-model-parallel-layout",
                   fmt::format("'{}'", to_layout(layout_of(s.layers))));
  } else if (s.shape.chunks > 1) {
    flags.add_flag("num-layers-per-virtual-pipeline-stage", s.layers.front());
  }
  if (s.shape.chunks > 1 && s.shape.group != 0 && s.shape.group != s.shape.depth)
    flags.add_flag("microbatch-group-size-per-virtual-pipeline-stage", s.shape.group);
  if (s.shape.chunks > 1 && s.lowering.transfers == Transfers::coupled)
    flags.add_flag("no-overlap-p2p-communication");
}

void add_recompute(Flags& flags, const Recomputation& r) {
  if (r.granularity == Recompute::none) return;
  flags.add_flag("recompute-granularity", kRecomputeNames[static_cast<int>(r.granularity)]);
  if (!r.in_full() && !r.plain())
    flags.add_flag("recompute-modules", fmt::format("{}", fmt::join(names_of(r.parts), " ")));
  if (!r.in_full()) return;
  flags.add_flag("recompute-method", kRecomputeMethodNames[static_cast<int>(r.method)]);
  flags.add_flag("recompute-num-layers", r.layers);
}

/// What is of the simulation rather than of the job, and what flags say.
constexpr std::string_view kSaid[] = {
    "name",  "batches",  "samples_per_epoch", "most_ops",  // the simulation's
    "model", "pipeline", "schedule",          "cluster",  "transfers", "routing"};
constexpr std::string_view kSaidOfRouting[] = {
    "capacity_factor", "pad_to_capacity", "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity", "expert_capacity_factor"};
constexpr std::string_view kSaidOfPipeline[] = {"stages",
                                                "chunks",
                                                "group",
                                                "width",
                                                "tensor",
                                                "context",
                                                "ulysses",
                                                "microbatch_size",
                                                "microbatches",
                                                "global_batch_size",
                                                "split",
                                                "recompute",
                                                "recompute_modules",
                                                "recompute_method",
                                                "rank_order",
                                                "recompute_layers",
                                                "distributed_optimizer",
                                                "context_exchange",
                                                "expert",
                                                "expert_tensor",
                                                "expert_exchange",
                                                "expert_sms",
                                                "expert_overlap",
                                                "shard",
                                                "shard_group",
                                                "reduction",
                                                "sequence_parallel",
                                                "tensor_overlap",
                                                "accumulation_steps"};

/// As Megatron's importer takes them (scenarios/megatron_import.cpp): 1F1B's messages are coupled.
bool says_transfers(const Scenario& s) {
  const Transfers t = s.lowering.transfers;
  if (s.shape.depth == 1) return true;
  return t == Transfers::coupled || (s.shape.chunks > 1 && t == Transfers::overlapped);
}

/// Mixed precision's 2 + 4 + 12 (with --fp16 also gradients of 2 bytes) or fp32's 4 + 4 + 8.
bool has_usual_bytes(const TransformerSpec& m) {
  const bool mixed = m.compute_type == "fp16" || m.compute_type == "bf16";
  const ParameterBytes& b = m.bytes;
  return b.weights == (mixed ? 2 : 4) && b.optimizer == (mixed ? 12 : 8) &&
         (b.gradients == 4 || (m.compute_type == "fp16" && b.gradients == 2));
}

std::string given(const std::string& key, const Value& value) {
  return value.kind == Value::Kind::scalar ? fmt::format("{}: {}", key, printable(value.text))
                                           : key;
}

}  // namespace

std::vector<std::string> left_out_of_megatron(const Scenario& s) {
  std::vector<std::string> out;
  const auto add_unsaid = [&](const Value& section, const std::string& prefix, const auto& said) {
    for (const Value::Entry& e : section.entries)
      if (std::ranges::find(said, e.key.text) == std::end(said) &&
          !(e.key.text == "stack" && s.stack.name == "megatron"))  // what an import assumes
        out.push_back(given(prefix + e.key.text, e.value));
  };
  const Value& document = s.source.document();
  add_unsaid(document, "", kSaid);
  if (const Value* pipeline = document.find("pipeline")) {
    add_unsaid(*pipeline, "pipeline.", kSaidOfPipeline);
    constexpr std::string_view kOverlap[] = {"overlap", "gather"};
    if (const Value* reduction = pipeline->find("reduction"))
      add_unsaid(*reduction, "pipeline.reduction.", kOverlap);
  }
  if (const Value* routing = document.find("routing"))
    add_unsaid(*routing, "routing.", kSaidOfRouting);
  if (!says_transfers(s))
    out.push_back(fmt::format("transfers: {}", to_string(s.lowering.transfers)));
  if (!s.transformer) return out;
  const TransformerSpec& m = *s.transformer;
  if (!has_usual_bytes(m))
    out.push_back(fmt::format("model.bytes_per_parameter: {} + {} + {}", m.bytes.weights,
                              m.bytes.gradients, m.bytes.optimizer));
  const ProductTypes said = said_by_flags(m.product_types);
  if (said != m.product_types)
    out.push_back("model.precision: " + precision_text(m.product_types, "mixed-" + m.compute_type));
  if (m.compute_type != "fp16" && m.compute_type != "bf16" && m.compute_type != "fp32")
    out.push_back(fmt::format("model.precision: {}", m.compute_type));
  if (!s.missing.empty()) out.push_back("model.missing: " + s.missing);
  return out;
}

bool megatron_runs(const Schedule& schedule, std::uint32_t depth) {
  return schedule.name == "1f1b" || schedule.name == "interleaved-1f1b" ||
         (depth == 1 && schedule.flushes());
}

std::string megatron_arguments(const Scenario& s) {
  if (auto errors = refusals(s); !errors.empty()) throw InputError(std::move(errors));
  Flags flags = launch(s);
  add_model(flags, *s.transformer);
  flags.add_flag("tensor-model-parallel-size", s.mesh.size(Axis::tensor));
  const int ring = s.mesh.size(Axis::context), ulysses = s.mesh.size(Axis::ulysses);
  if (ring * ulysses > 1) {
    flags.add_flag("context-parallel-size", ring * ulysses);
    if (ulysses > 1) flags.add_flag("cp-comm-type", ring > 1 ? "a2a+p2p" : "a2a");
    if (ring > 1 && ulysses > 1)
      flags.add_flag("hierarchical-context-parallel-sizes", fmt::format("{} {}", ulysses, ring));
    if (s.context_exchange != ContextExchange::ring)
      flags.add_flag("cp-comm-type",
                     s.context_exchange == ContextExchange::all_gather ? "all_gather" : "a2a");
  }
  if (s.mesh.expert > 1) {
    flags.add_flag("expert-model-parallel-size", s.mesh.expert);
    const TokenRouting& routing = s.mesh.routing;
    flags.add_flag("moe-token-dispatcher-type", routing.once_per_node ? "flex" : "alltoall");
    if (routing.once_per_node) {
      constexpr int kNode = 8;  // GPUs, beyond which HybridEP is usual
      const std::string backend = s.cluster.devices_per_node > kNode ? "hybridep" : "deepep";
      flags.add_flag("moe-flex-dispatcher-backend", backend);
      flags.add_flag(fmt::format("moe-{}-num-sms", backend), routing.sms);
    }
  }
  if (s.mesh.expert > 0 && s.mesh.expert_tensor != s.mesh.size(Axis::tensor))
    flags.add_flag("expert-tensor-parallel-size", s.mesh.expert_tensor);
  if (s.routing && s.routing->capacity_factor > 0) {
    flags.add_flag("moe-expert-capacity-factor", s.routing->capacity_factor);
    if (s.routing->padded) flags.add_flag("moe-pad-expert-input-to-capacity");
  }
  if (s.lowering.pairs) flags.add_flag("overlap-moe-expert-parallel-comm");
  if (s.sequence_parallel) flags.add_flag("sequence-parallel");
  if (s.tensor_overlap) flags.add_flag("tp-comm-overlap");
  if (s.mesh.pipeline_first) flags.add_flag("use-tp-pp-dp-mapping");
  add_pipeline(flags, s);
  flags.add_flag("micro-batch-size", s.microbatch_size);
  flags.add_flag("global-batch-size",
                 s.microbatch_size * s.shape.microbatches_per_update * s.mesh.most());
  add_recompute(flags, *recomputation_of_all(s));
  if (s.sharding.sharded()) {
    flags.add_flag("use-distributed-optimizer");
    if (s.sharding.what > Sharded::optimizer) {
      flags.add_flag("use-megatron-fsdp");
      flags.add_flag("data-parallel-sharding-strategy",
                     s.sharding.what == Sharded::weights ? "optim_grads_params" : "optim_grads");
    } else if (s.sharding.gathering == Gathering::first_forward)
      flags.add_flag("overlap-param-gather");
    if (s.sharding.hybrid())
      flags.add_flag("num-distributed-optimizer-instances", s.sharding.sharers / s.sharding.group);
  }
  if (s.mesh.sharers() > 1 && overlaps_reduction(s)) flags.add_flag("overlap-grad-reduce");
  if (s.stack.cross_entropy != CrossEntropy::separate) flags.add_flag("cross-entropy-loss-fusion");
  if (s.stack.cross_entropy == CrossEntropy::in_place)
    flags.add_flag("cross-entropy-fusion-impl", "te");
  if (s.stack.cuda_graphs) flags.add_flag("enable-cuda-graph");
  return flags.text();
}

}  // namespace penstock
