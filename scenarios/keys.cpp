// SPDX-License-Identifier: Apache-2.0
#include "scenarios/keys.hpp"

#include "models/documents.hpp"
#include "models/perturbation.hpp"
#include "models/routing.hpp"
#include "scenarios/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace penstock {
namespace {

using T = KeyRow::Type;
using D = Dimension;

// The second behind the model's own types, in the order of NumberType (models/precision.hpp).
constexpr std::string_view kPrecisions =
    "mixed-fp16|mixed-bf16|fp32|tf32|bf16|fp16|fp8|fp8-current|fp8-rowwise|fp8-block|mxfp8|nvfp4";
constexpr std::string_view kProductTypes =
    "bf16|fp16|fp32|fp8|fp8-current|fp8-rowwise|fp8-block|mxfp8|nvfp4";

const std::vector<KeyRow>& table() {
  static const std::vector<KeyRow> kTable = {
      {"scenario", "name", T::text, "what the results call it; default: the file's name"},
      {"scenario", "model", T::name_or_section,
       "a model of `penstock list models`, a file, a profile, or inline", "model"},
      {"scenario", "cluster", T::name_or_section,
       "a cluster of `penstock list clusters`, a file, a profile, or inline; default: free links "
       "between as many devices as needed",
       "cluster"},
      {"scenario", "stack", T::name_or_section,
       "the software that trains, of `penstock list stacks`, a file, or inline: launches, traffic, "
       "what overlaps; none: the device's curve of whole layers says all; default: megatron, of a "
       "model by shape",
       "stack"},
      {"scenario", "schedule", T::name_or_section,
       "a schedule of `penstock schedule list`, a FILE.csv of torch.distributed.pipelining, or a "
       "building block (a map, or a FILE.yaml)",
       "block"},
      {"scenario", "transfers", T::choice, "how a message holds its two ends; default overlapped",
       "free|overlapped|coupled|blocking"},
      {"scenario", "batches", T::integer,
       "weight updates to simulate; steady state is measured after the first; default 1, of "
       "schedules "
       "without a flush as many as a steady state needs",
       1},
      {"scenario", "pipeline", T::section, "how the model is cut and fed", "pipeline"},
      {"scenario", "routing", T::section,
       "which share of the tokens goes to which expert, and what is done about it; default: to all "
       "as many",
       "routing"},
      {"scenario", "documents", T::section,
       "documents of many lengths, packed into sequences, whose tokens attend to their own "
       "document "
       "alone; default: a sequence is one",
       "documents"},
      {"scenario", "perturbations", T::section,
       "what disturbs the run: noise, slow devices, links that fail, failures", "perturbations"},
      {"scenario", "training", T::section,
       "how weights are trained where the scenario is executed (`replay`, `train`)", "training"},
      {"scenario", "samples_per_epoch", T::integer, "gives the result's epoch_s", 1},
      {"scenario", "most_ops", T::integer,
       "ops that the run may have, of about 64 bytes each; default 50000000", 1},

      {"block", "name", T::text, "for results"},
      {"block", "layout", T::choice, "where chunks live: snake (default), there and back, or loop",
       "snake|loop"},
      {"block", "chunks", T::integer, "virtual stages per device (v); default 2 (snake), 1 (loop)",
       1},
      {"block", "forward", T::counts, "slot of F, a list with one per virtual stage"},
      {"block", "backward", T::counts, "slot of B per virtual stage; or the next two"},
      {"block", "backward_input", T::counts, "slot of I per virtual stage"},
      {"block", "backward_weight", T::counts,
       "slot of W per virtual stage; default: the next free one of its device"},
      {"block", "interval", T::integer,
       "slots after which the block repeats (T); default: as many as a device's ops take", 1},
      {"block", "slots", T::section, "slots that ops take; default 1, B 2", "slots"},
      {"slots", "forward", T::integer, "slots of F; default 1", 1},
      {"slots", "backward", T::integer, "slots of B; default 2", 1},
      {"slots", "backward_input", T::integer, "slots of I; default 1", 1},
      {"slots", "backward_weight", T::integer, "slots of W; default 1", 1},

      {"pipeline", "stages", T::integer,
       "devices in a pipeline (depth, p); default: all of the cluster; data-parallel and asp take "
       "1",
       1, "pipeline_model_parallel_size|pipeline_parallel_size|pipeline_parallel|depth|pp"},
      {"pipeline", "chunks", T::integer,
       "virtual stages per device (v); default: what is usual for the schedule (1, or 2)", 1,
       "virtual_pipeline_model_parallel_size|num_chunks|vp|vpp"},
      {"pipeline", "group", T::integer,
       "interleaved-1f1b: microbatches of one chunk in a row; default stages", 1,
       "microbatch_group_size_per_vp_stage"},
      {"pipeline", "offload", T::quantity_per_stage,
       "share of what layers keep for the backward that waits in the memory of the host, from 0 "
       "(default) to 1, or a list with one per virtual stage: copied out under F and in under B, "
       "over the cluster's `pcie`",
       D::fraction},
      {"pipeline", "memory_limit", T::quantity_per_stage,
       "schedules that search: activations a device may hold, in multiples of 1F1B's largest peak, "
       "or a list with one limit per device"},
      {"pipeline", "checkpoint", T::choice,
       "torchgpipe: which microbatches are recomputed; default except_last",
       "always|except_last|never"},
      {"pipeline", "correction", T::boolean,
       "pipemare: its T2 corrects the weights of the backward, for one more buffer; default true"},
      {"pipeline", "width", T::counts,
       "replicas of every stage, or a list with those of each (microbatches go round-robin over "
       "them); default 1; data-parallel, asp: all of the cluster",
       1, "data_parallel_size|data_parallel|dp"},
      {"pipeline", "tensor", T::integer,
       "GPUs that share every stage (tensor-parallel degree, t), neighbours, as Megatron divides a "
       "layer; default 1",
       1, "tensor_model_parallel_size|tensor_parallel_size|tensor_parallel|tp"},
      {"pipeline", "context", T::integer,
       "groups of GPUs that share every sequence (context-parallel degree, c): each has s/c "
       "tokens, and keys and values go round between them while attention is computed (ring "
       "attention, causal work balanced); a stage then has tensor x ulysses x context GPUs per "
       "replica; "
       "default 1",
       1, "context_parallel_size|context_parallel|cp"},
      {"pipeline", "ulysses", T::integer,
       "neighbours that divide every sequence, too, and exchange tokens for heads all to all "
       "around "
       "attention (DeepSpeed-Ulysses); sequences are divided by ulysses x context, whose ring then "
       "goes among groups of so many (Megatron's a2a+p2p); default 1",
       1, "ulysses_degree|ulysses_sequence_parallel_size"},
      {"pipeline", "expert", T::integer,
       "GPUs of a position, of all its replicas, that divide the experts of a layer "
       "(expert-parallel "
       "degree, ep) and exchange tokens all to all; default 1",
       1, "expert_model_parallel_size|expert_parallel|expert_parallel_size|ep"},
      {"pipeline", "expert_tensor", T::integer,
       "neighbours that divide each expert (expert-tensor degree, etp); default: tensor, as "
       "Megatron's",
       1, "expert_tensor_parallel_size|expert_tensor_parallel|etp"},
      {"pipeline", "expert_exchange", T::choice,
       "how tokens go to their experts: all-to-all (default: NCCL, one copy for each expert), "
       "once-per-node (DeepEP, HybridEP: one copy to each node, whose GPUs pass it on)",
       "all-to-all|once-per-node"},
      {"pipeline", "expert_sms", T::integer,
       "multiprocessors that the kernels of such an exchange occupy, so that what is computed "
       "beside it (expert_overlap, DualPipe) is slower; with measured kernels. Default: 20 of "
       "once-per-node in nodes of at most 8 GPUs (DeepEP), 16 in larger ones (HybridEP), 0 of "
       "all-to-all",
       0},
      {"pipeline", "narrow_dispatch", T::boolean,
       "tokens, and in the backward gradients, go to their experts in the type of experts' "
       "products, "
       "such as fp8 (DeepSeek-V3); what experts made comes back in 16 bits; default false"},
      {"pipeline", "expert_overlap", T::boolean,
       "a backward and the forward that comes next run together, layer by layer in turns, so that "
       "one computes while tokens of the other one go to their experts (Megatron's combined 1F1B, "
       "which needs chunks or a single stage); DualPipe does anyway; default false",
       "", "overlap_moe_expert_parallel_comm"},
      {"pipeline", "context_exchange", T::choice,
       "how context ranks bring queries, keys and values together: ring (default: p2p, beside "
       "attention), all-gather (of keys and values, "
       "before it: Llama 3), all-to-all (whole sequences of a part of the heads: Ulysses, a2a)",
       "ring|all-gather|all-to-all"},
      {"pipeline", "sequence_parallel", T::boolean,
       "they divide norms, dropout and messages, too; needs tensor > 1; default false", "", "sp"},
      {"pipeline", "tensor_overlap", T::boolean,
       "their all-gathers and reduce-scatters inside of layers go part by part beside the products "
       "(Megatron's tp_comm_overlap, asynchronous tensor parallelism); needs sequence_parallel; "
       "default false",
       "", "tp_comm_overlap|async_tensor_parallel"},
      {"pipeline", "transfers_divided", T::boolean,
       "each tensor rank sends its part of a message between stages and the receivers gather them "
       "(Megatron's scatter-gather, DeepSpeed's partitioned activations), as sequence_parallel "
       "does without; default false: each sends all of it",
       "", "scatter_gather_tensors_in_pipeline"},
      {"pipeline", "distributed_optimizer", T::boolean,
       "replicas share the optimizer's state (ZeRO-1); default false", "",
       "use_distributed_optimizer"},
      {"pipeline", "shard", T::choice,
       "what the GPUs that have the same weights (replicas, and their context ranks) divide among "
       "them: none (default), optimizer (its states: ZeRO-1, as distributed_optimizer), gradients "
       "(and gradients: ZeRO-2), weights (and weights: ZeRO-3, FSDP)",
       "none|optimizer|gradients|weights"},
      {"pipeline", "shard_group", T::integer,
       "so many of them divide it, and the groups reduce with one another (HSDP, hybrid sharding); "
       "default: all of them",
       1},
      {"pipeline", "reshard_after_forward", T::choice,
       "shard weights: always (gathered again for every backward), never (kept until the backward, "
       "in a pipeline until the last one of an update), auto (default: never in a pipeline, as "
       "torchtitan)",
       "auto|always|never"},
      {"pipeline", "unshard_lookahead", T::integer,
       "shard weights: layers (and embedding, LM head) that are gathered ahead of the one that "
       "computes; 0: an op waits until all of its are there; each further one is held beside it; "
       "default 1",
       0},
      {"pipeline", "microbatch_size", T::integer, "samples per microbatch; default 1", 1,
       "micro_batch_size|mbs"},
      {"pipeline", "microbatches", T::integer,
       "microbatches per weight update of one replica (m); default: those of global_batch_size, or "
       "1",
       1, "num_microbatches"},
      {"pipeline", "global_batch_size", T::integer,
       "samples per weight update, over all replicas; microbatches follow from it, so that "
       "changing width or microbatch_size leaves the batch as it is",
       1, "train_batch_size|gbs"},
      {"pipeline", "accumulation_steps", T::integer,
       "gradient accumulation around the pipeline, as torchtitan's: an update fills and drains it "
       "so "
       "many times, with an equal part of the microbatches each; default 1 (Megatron's, and most: "
       "all microbatches in one go)",
       1},
      {"pipeline", "recompute", T::choice_per_stage,
       "activations made again in the backward, of all stages alike or of each as listed: virtual "
       "stages 0 to p v - 1 (chimera, dualpipe: p - 1), as op tokens number them; default none",
       "none|selective|full", "activation_checkpointing|gradient_checkpointing"},
      {"pipeline", "recompute_modules", T::choice_sets,
       "where recompute is selective: which parts of a layer, as Megatron's --recompute-modules: a "
       "list for all stages, such as [core_attn, mlp], or a list of such lists, one per virtual "
       "stage; moe_act: the activation function, of a dense MLP, too; moe: router and experts; "
       "mla_up_proj: what latent attention makes of its latents; every_second_product, alone: all "
       "but attention and the first, third, ... product (torchtitan's selective_ac_option op); "
       "default core_attn",
       "core_attn|mlp|layernorm|moe_act|moe|shared_experts|mla_up_proj|every_second_product"},
      {"pipeline", "recompute_method", T::choice,
       "where recompute is full: block: recompute_layers layers of each virtual stage, its first "
       "ones, while the others keep their activations; uniform: all, in groups of "
       "recompute_layers, of which only the first one's input is kept; default: all, one by one "
       "(uniform, 1)",
       "block|uniform"},
      {"pipeline", "recompute_layers", T::counts,
       "layers that recompute_method recomputes (block), or of a group (uniform), as Megatron's "
       "--recompute-num-layers; or a list with one per virtual stage; a stage with fewer "
       "recomputes all of them",
       0, "recompute_num_layers"},
      {"pipeline", "split", T::split,
       "layers per virtual stage: even (default); balanced, so that the slowest device is as fast "
       "as possible, with the LM head and the embedding counted and all chunks of a device "
       "together; or a list, in which a stage may have 0",
       "even|balanced"},
      {"pipeline", "optimizer_sync", T::choice,
       "device (default): each device steps when its gradients are there; global: all at once, at "
       "the flush; post-validation (zero bubble): each once the partial norm of the devices before "
       "is there as well, a message of latency alone; no step is taken back (docs/schedules.md)",
       "device|global|post-validation"},
      {"pipeline", "rank_order", T::choice,
       "data-first (default, Megatron's): a stage's replicas on neighbouring GPUs; pipeline-first: "
       "its pipelines",
       "data-first|pipeline-first"},
      {"pipeline", "replication", T::choice,
       "replicas take turns with whole microbatches (round-robin, PipeDream's; default), or split "
       "each one among them (DAPPLE's)",
       "round-robin|split"},
      {"pipeline", "reduction", T::section, "how gradients are reduced over the replicas",
       "reduction"},
      {"pipeline", "placement", T::gpus,
       "GPUs of the ranks: fill-node (default): in order; DAPPLE's fresh-first, append-first, "
       "scatter-first; round-robin: over the nodes; or a list of GPUs in the order of the ranks",
       "fill-node|fresh-first|append-first|scatter-first|round-robin"},
      {"pipeline", "vertical_sync", T::boolean,
       "pipedream: every stage uses the version stage 0 used; default false"},
      {"pipeline", "stashing", T::choice,
       "pipedream: all (default): a backward uses the weights of its forward; none: one copy of "
       "the "
       "weights, so that a backward uses newer ones than its forward (the naive pipeline)",
       "all|none"},
      {"pipeline", "weight_copies", T::choice,
       "pipedream: weight copies kept: paper (default): w_s + 1; code: w_s + 2", "paper|code"},

      {"routing", "load", T::choice,
       "how many tokens experts get: balanced (default); zipf, by rank; hot-experts, or those of "
       "one "
       "GPU (hot-rank), or spread evenly over GPUs, get hot_share; idle: half of them get none; "
       "rotating: hot-rank, whose GPU changes; burst: hot-experts now and then; histogram (default "
       "where that is given)",
       kRoutingLoads},
      {"routing", "exponent", T::quantity, "zipf: tokens go with 1 / rank^exponent; default 1.2"},
      {"routing", "hot_share", T::quantity,
       "share of tokens' choices that hot experts get together, no more than one for a token and "
       "expert; default 0.5",
       D::fraction},
      {"routing", "hot_experts", T::integer, "so many are hot; default: as many as a GPU has", 1},
      {"routing", "period", T::integer,
       "rotating: microbatches until the next GPU is hot (default 3); burst: of so many "
       "microbatches the last one is hot (default 4)",
       1},
      {"routing", "histogram", T::numbers,
       "tokens of each routed expert as measured, in the order of the experts; only ratios count"},
      {"routing", "drift", T::quantity,
       "the logarithm of each expert's share takes a random step of this standard deviation from a "
       "microbatch to the next; default 0"},
      {"routing", "capacity_factor", T::quantity,
       "an expert takes so many times the mean at most, and further tokens are dropped; default: "
       "none is",
       D::number, "", "moe_expert_capacity_factor|expert_capacity_factor"},
      {"routing", "pad_to_capacity", T::boolean,
       "each expert's tokens are padded to that; default false", "",
       "moe_pad_expert_input_to_capacity"},
      {"routing", "redundant_experts", T::integer,
       "so many experts with most tokens of a microbatch have a second place, on the GPU with the "
       "least to do: their weights come, and gradients go, beside attention, and every GPU keeps "
       "room for its part of them in all layers; default 0",
       0},
      {"routing", "seed", T::integer,
       "of what is drawn: which experts are hot, and drift; default 1"},

      {"documents", "lengths", T::numbers, "of documents, in tokens"},
      {"documents", "weights", T::numbers, "how often each length comes up; default: all as often"},
      {"documents", "file", T::text,
       "a file of lengths instead: a line for each, or 'length count'"},
      {"documents", "context_division", T::choice,
       "what context ranks divide: documents (default: each of them, so that all ranks have as "
       "much "
       "to do), or sequences as a whole (ring and all-gather: the rank with most pairs decides)",
       kDocumentDivisions},
      {"documents", "seed", T::integer, "of the lengths that are drawn; default 1"},

      {"reduction", "algorithm", T::choice,
       "ring (default), hierarchical (within each node, then between nodes), tree (two binary "
       "trees), server (central parameter server), all-to-all (everybody sends everybody all of "
       "its "
       "gradients): flows on the cluster's links; formula: a ring's time, on no link",
       "ring|hierarchical|tree|server|all-to-all|formula"},
      {"reduction", "overlap", T::choice,
       "none: after the last backward; backward: bucket by bucket beside the last backward; "
       "next-batch: beside the next batch (pipedream-2bw only); default: as the stack has it, "
       "without one none",
       "none|backward|next-batch"},
      {"reduction", "buckets", T::integer,
       "overlap backward: so many equal parts of a stage's gradient, ready at equal intervals; "
       "default of a model by costs: 10",
       1},
      {"reduction", "bucket_size", T::quantity,
       "overlap backward: layers are joined, from the last to the first, until a bucket has this "
       "size, and it is ready with the backward of the first of them; default of a model by shape: "
       "25 MiB",
       D::bytes},
      {"reduction", "gather", T::choice,
       "when the weights are gathered that a divided optimizer (shard) has updated in parts: "
       "after-step (default), first-forward (layer by layer beside each stage's next forward: "
       "Megatron's overlap_param_gather)",
       "after-step|first-forward"},
      {"reduction", "servers", T::integer,
       "algorithm server: replicas that hold a part of the weights each; default 1", 1},

      {"model", "base", T::text, "a model to start from; the other keys replace its values"},
      {"model", "name", T::text, "what the results call it"},
      {"model", "family", T::choice,
       "a preset of the keys from gated_mlp to dropout: gpt: learned positions, biases, layer "
       "norm, "
       "an MLP of two matrices, dropout; bert: the same, bidirectional; llama: rotary, gated MLP, "
       "RMS norm, no biases, no dropout; default gpt",
       "gpt|bert|llama", "model_type"},
      {"model", "num_layers", T::integer, "transformer layers", 1, "num_hidden_layers|n_layer"},
      {"model", "hidden_size", T::integer, "width of a layer", 1, "n_embd"},
      {"model", "num_attention_heads", T::integer, "query heads", 1, "n_head"},
      {"model", "num_query_groups", T::integer,
       "key/value heads; default: as many as query heads; 1: multi-query attention", 1,
       "num_key_value_heads|num_kv_heads|n_head_kv"},
      {"model", "head_dim", T::integer,
       "elements of a head; default: hidden_size / num_attention_heads", 1, "kv_channels"},
      {"model", "ffn_hidden_size", T::integer, "inner width of the MLP; default 4 * hidden_size", 1,
       "intermediate_size|n_inner|ffn_dim"},
      {"model", "vocab_size", T::integer, "rows of the embedding, padding included", 1,
       "padded_vocab_size"},
      {"model", "seq_length", T::integer, "tokens per sample", 1,
       "max_position_embeddings|n_positions|n_ctx|max_seq_len|model_max_length"},
      {"model", "gated_mlp", T::boolean,
       "an MLP of three matrices (SwiGLU, GeGLU) instead of two; default: only for llama"},
      {"model", "norm", T::choice, "default layer, of llama rms",
       "layer|rms|layer-without-bias|layer-without-parameters"},
      {"model", "norms", T::integer,
       "of a layer: 2 (default); 1 where attention and MLP share one; 4 before and after both "
       "(Gemma 2 and 3)",
       1},
      {"model", "qk_norm", T::choice,
       "a norm of queries and keys: none (default); head: a weight per element of a head (Qwen3, "
       "Gemma 3); width: per element of all heads (OLMo-2)",
       "none|head|width"},
      {"model", "biases", T::choice,
       "of which linear layers; default all, of llama none; qkv: Qwen2 and Qwen2.5; attention: "
       "also its output",
       "none|qkv|attention|mlp|all"},
      {"model", "positions", T::choice,
       "learned (default) is a table of position_rows; of llama rotary",
       "learned|rotary|alibi|none"},
      {"model", "position_rows", T::integer,
       "rows of learned positions, at least seq_length; default: the seq_length of the model that "
       "'base' names, else that of this one",
       1},
      {"model", "parallel_residual", T::boolean,
       "attention and MLP both read the layer's input, and tensor ranks sum both at once; default "
       "false",
       "", "use_parallel_residual|parallel_attn"},
      {"model", "dropout", T::boolean,
       "its masks are kept for the backward; default: not for llama"},
      {"model", "sliding_window", T::integer,
       "keys that a query attends to, its own included, as flash attention's kernels skip what is "
       "outside; default: all",
       1},
      {"model", "full_attention_every", T::integer,
       "every so many-th layer has no sliding window (Gemma 2: 2, Gemma 3: 6); default: all have "
       "it",
       1, "sliding_window_pattern"},
      {"model", "attention_sinks", T::boolean,
       "a learned number of each head beside the scores of its keys (gpt-oss); default false"},
      {"model", "latent_attention", T::section,
       "multi-head latent attention (DeepSeek-V2): queries, keys and values are made of compressed "
       "latents; default: none",
       "latent_attention"},
      {"model", "num_experts", T::integer,
       "routed experts of a layer, in the place of its MLP; default: none", 1,
       "num_local_experts|n_routed_experts|num_moe_experts|moe_num_experts"},
      {"model", "experts_per_token", T::integer, "of which a token uses so many", 1,
       "num_experts_per_tok|moe_router_topk|moe_top_k|moe_topk|num_experts_per_token"},
      {"model", "expert_ffn_hidden_size", T::integer,
       "inner width of a routed expert; default: ffn_hidden_size", 1,
       "moe_ffn_hidden_size|moe_intermediate_size"},
      {"model", "shared_expert_ffn_hidden_size", T::integer,
       "inner width of the experts that every token uses, all together; default 0: there are none",
       0, "moe_shared_expert_intermediate_size|shared_expert_intermediate_size"},
      {"model", "shared_expert_gate", T::boolean,
       "a sigmoid of the token weighs what the shared expert makes (Qwen2-MoE); default false", "",
       "moe_shared_expert_gate|use_shared_expert_gate"},
      {"model", "router_bias", T::boolean,
       "a parameter of each routed expert beside its score (gpt-oss); default false"},
      {"model", "first_dense_layers", T::integer,
       "first layers with an MLP of ffn_hidden_size instead of experts (DeepSeek-V3: 3); default 0",
       0, "first_k_dense_replace"},
      {"model", "expert_layer_every", T::integer,
       "of the layers behind first_dense_layers, the first and every n-th after it have experts, "
       "the "
       "others an MLP (Llama 4 Maverick: 2, with first_dense_layers: 1); default 1",
       1},
      {"model", "expert_groups", T::integer,
       "equal parts of the routed experts, of which a token's are in groups_per_token alone "
       "(DeepSeek-V3: 8); default 1",
       1, "n_group|moe_router_num_groups"},
      {"model", "groups_per_token", T::integer, "see expert_groups (DeepSeek-V3: 4); default 1", 1,
       "topk_group|moe_router_group_topk"},
      {"model", "mtp_layers", T::integer,
       "layers behind the last one that predict a further token each (multi-token prediction: "
       "DeepSeek-V3), on the last stage; default 0",
       0, "mtp_num_layers"},
      {"model", "extra_parameters", T::integer,
       "of the first stage beside the embedding, such as a vision encoder's; they take memory, and "
       "no time but the optimizer's; default 0"},
      {"model", "tie_embeddings", T::boolean,
       "the LM head shares the embedding's weights (a copy on the last stage); default: not for "
       "llama",
       "", "tie_word_embeddings"},
      {"model", "flash_attention", T::boolean,
       "attention probabilities are never stored; default: only for llama"},
      {"model", "missing", T::text,
       "what of the real model is left out, such as 'the other experts' weights': what fits is "
       "then "
       "unknown, and times are at best those of the results; importers write it"},
      {"model", "missing_saves", T::text,
       "the same of what the real model has and that needs less memory, such as 'sharded weights': "
       "what does not fit here may fit there"},
      {"model", "precision", T::choice_or_section,
       "mixed: 16-bit compute, fp32 master weights and Adam; default mixed-bf16. Of 8 and 4 bits "
       "are the products of linear layers, as Transformer Engine has them, beside mixed-bf16: fp8 "
       "with delayed scales of tensors, fp8-current with those of this step, fp8-rowwise, "
       "fp8-block "
       "(1 x 128, 128 x 128), mxfp8 (32), nvfp4 (16); a map says other products' types",
       kPrecisions},
      {"model", "bytes_per_parameter", T::section,
       "memory per parameter; default 2 + 4 + 12 mixed, 4 + 4 + 8 fp32", "bytes_per_parameter"},
      {"model", "forward", T::quantity_per_stage,
       "time of F per microbatch (abstract model), of a device's share of the model: one number or "
       "a list with one per device is divided evenly among the device's chunks, a list with one "
       "per virtual stage is taken as it is; so with the next keys",
       D::time},
      {"model", "backward", T::quantity_per_stage,
       "time of B; or give backward_input and backward_weight", D::time},
      {"model", "backward_input", T::quantity_per_stage, "time of I", D::time},
      {"model", "backward_weight", T::quantity_per_stage, "time of W", D::time},
      {"model", "forward_backward", T::quantity_per_stage,
       "time of an overlapped F and B (dualpipe, dualpipev); default the sum of the two", D::time},
      {"model", "step", T::quantity_per_stage, "time of the optimizer step; default 0", D::time},
      {"model", "output", T::quantity_per_stage,
       "bytes sent on per microbatch, by every chunk; default 0", D::bytes},
      {"model", "parameters", T::quantity_per_stage, "bytes of weights", D::bytes},
      {"model", "gradients", T::quantity_per_stage, "bytes of gradients", D::bytes},
      {"model", "optimizer", T::quantity_per_stage, "bytes of optimizer state", D::bytes},
      {"model", "version", T::quantity_per_stage,
       "bytes of a further weight version; default: parameters", D::bytes},
      {"model", "activation", T::quantity_per_stage, "bytes kept by F until B", D::bytes},
      {"model", "activation_after_input", T::quantity_per_stage,
       "bytes kept from I to W; default: activation", D::bytes},
      {"model", "workspace", T::quantity_per_stage,
       "bytes in use while an op runs, of every chunk alike", D::bytes},
      {"model", "per", T::choice,
       "whose costs one number is: those of a device's share of the model, divided among its "
       "chunks, or those of each chunk; default device",
       "device|chunk"},

      {"model", "measured", T::section_list,
       "what `penstock calibrate` measured, a row per microbatch size, recomputation and load; it "
       "replaces the formulas, and the device needs no peak",
       "measured"},
      {"model", "measured_step", T::section_list,
       "what it measured of the optimizer step, a row per load", "measured_step"},
      {"model", "profile", T::text,
       "a file of layer times in PipeDream's format (graph.txt), instead of a shape; the split is "
       "balanced unless given, and counts its layers in execution order (by id, without Input)"},
      {"model", "profile_batch", T::integer,
       "samples per microbatch of the profile, from which times and activations go linearly; "
       "default: microbatch_size",
       1},
      {"model", "measured_load", T::choice,
       "rows to use: those of a device alone, or of all devices at work at once; default: loaded "
       "where there are several devices and it was measured",
       "alone|loaded"},

      {"measured", "microbatch_size", T::integer,
       "samples; between two measured sizes costs are linear, outside of them refused", 1},
      {"measured", "recompute", T::choice, "default none", "none|selective|full"},
      {"measured", "load", T::integer,
       "devices that ran the same op at the same time; default 1: alone. A run takes the smallest "
       "load that covers its devices, else the largest",
       1},
      {"measured", "spread", T::quantity,
       "(95th - 5th percentile) / median of the noisiest op; for information"},
      {"measured", "layer", T::section, "one layer", "measured_part"},
      {"measured", "embedding", T::section, "what the first stage has more", "measured_part"},
      {"measured", "head", T::section, "what the last stage has more", "measured_part"},
      {"measured", "overhead", T::section, "what every stage has once, whatever its layers",
       "measured_part"},

      {"measured_part", "forward", T::quantity, "time of F", D::time},
      {"measured_part", "backward", T::quantity,
       "time of B, recomputation included; default: backward_input + backward_weight", D::time},
      {"measured_part", "backward_input", T::quantity,
       "time of I, recomputation included; default: half of B", D::time},
      {"measured_part", "backward_weight", T::quantity, "time of W; default: half of B", D::time},
      {"measured_part", "activation", T::quantity,
       "bytes kept by F until B or I, the stage's input included", D::bytes},
      {"measured_part", "activation_after_input", T::quantity,
       "bytes kept from I to W, the stage's input included; default: activation", D::bytes},
      {"measured_part", "forward_workspace", T::quantity, "bytes in use while F runs", D::bytes},
      {"measured_part", "backward_workspace", T::quantity, "bytes in use while B, I or W run",
       D::bytes},

      {"measured_step", "load", T::integer, "as in `measured`", 1},
      {"measured_step", "overhead", T::quantity, "time of a step of no parameters", D::time},
      {"measured_step", "per_parameter", T::quantity, "time more per parameter", D::time},

      {"latent_attention", "q_rank", T::integer,
       "of the latent of queries; default 0: they are made of the layer's input", 0, "q_lora_rank"},
      {"latent_attention", "kv_rank", T::integer, "of the latent of keys and values", 1,
       "kv_lora_rank"},
      {"latent_attention", "rope_dim", T::integer,
       "elements of a head's query with positions, and of the part of a key that heads share", 1,
       "qk_rope_head_dim|qk_pos_emb_head_dim"},
      {"latent_attention", "nope_dim", T::integer,
       "elements of a head's query and key without positions", 1, "qk_nope_head_dim|qk_head_dim"},
      {"latent_attention", "value_dim", T::integer, "elements of a head's value", 1, "v_head_dim"},

      {"precision", "base", T::choice, "of everything but what the other keys say", kPrecisions},
      {"precision", "attention_projections", T::choice, "products of the layers of attention",
       kProductTypes},
      {"precision", "mlp", T::choice, "products of the MLP", kProductTypes},
      {"precision", "experts", T::choice, "products of experts", kProductTypes},
      {"precision", "head", T::choice, "the LM head's product; default 16 bits", kProductTypes},
      {"precision", "attention", T::choice, "attention itself; default 16 bits", kProductTypes},
      {"precision", "router", T::choice,
       "the product that scores experts (Megatron-LM's --moe-router-dtype); default 16 bits",
       kProductTypes},
      {"precision", "linear_weights", T::choice,
       "weights of linear layers: held in 16 bits, and in their products' type beside it (wide, "
       "the default), or in that type alone, in which a distributed optimizer also gathers them "
       "(narrow: Megatron-LM's --fp8-param-gather)",
       "wide|narrow"},
      {"precision", "kept_activations", T::choice,
       "what activation functions read and attention made, for the backward: in 16 bits (wide, the "
       "default), or in 8 and 12 bits (narrow: DeepSeek-V3)",
       "wide|narrow"},
      {"precision", "first_wide_layers", T::integer,
       "first layers whose products are in 16 bits; default 0"},
      {"precision", "last_wide_layers", T::integer, "the same of the last layers; default 0"},

      {"bytes_per_parameter", "weights", T::quantity, "live weights"},
      {"bytes_per_parameter", "gradients", T::quantity, "gradients, all copies"},
      {"bytes_per_parameter", "optimizer", T::quantity, "master weights and moments"},
      {"bytes_per_parameter", "version", T::quantity, "a further weight version; default: weights"},
      {"bytes_per_parameter", "reduced", T::quantity,
       "moved by the all-reduce of gradients; default: gradients, at most 4"},

      {"cluster", "base", T::text, "a cluster to start from; the other keys replace its values"},
      {"cluster", "name", T::text, "what the results call it"},
      {"cluster", "device", T::name_or_section,
       "a device of `penstock list devices`, a file, or inline", "device"},
      {"cluster", "devices", T::integer,
       "abstract: devices, every two of them joined by `link`, or as `network` says", 1},
      {"cluster", "memory", T::quantity,
       "capacity of a device; with a 'device', its memory; default unknown", D::bytes},
      {"cluster", "link", T::link,
       "abstract: a private link between every two devices, each channel with its own capacity",
       D::bandwidth},
      {"cluster", "network", T::section_list,
       "abstract: the links one by one, as a graph of devices and switches", "edge"},
      {"cluster", "nodes", T::integer, "servers; default 1", 1},
      {"cluster", "devices_per_node", T::integer, "GPUs of a server", 1},
      {"cluster", "intra", T::link,
       "inside a node: a link per pair of GPUs, a port per GPU to a switch, or as its attachment "
       "says",
       D::bandwidth},
      {"cluster", "mesh", T::section_list,
       "attachment mesh: which GPUs of a node NVLinks join; the others meet in the PCIe tree",
       "mesh"},
      {"cluster", "pcie", T::section, "the PCIe tree of a node", "pcie"},
      {"cluster", "inter", T::link, "between nodes: one NIC", D::bandwidth},
      {"cluster", "fabric", T::section,
       "what joins the NICs; default: one switch that does not block", "fabric"},
      {"cluster", "groups", T::section_list,
       "nodes of different kinds, instead of 'nodes': in each nodes, device, devices_per_node, "
       "memory, intra, mesh, pcie and inter, by default the cluster's own; base: of the nodes",
       "cluster"},

      {"link", "bandwidth", T::quantity, "per direction; default: unlimited", D::bandwidth},
      {"link", "latency", T::quantity, "default 0; never occupies the link", D::time},
      {"link", "duplex", T::choice, "full (default), or half: both directions share the capacity",
       "full|half"},
      {"link", "sharing", T::choice,
       "fair (default): messages of several channels side by side; fifo: one after the other",
       "fair|fifo"},
      {"link", "attachment", T::choice,
       "intra: pairs (default): a link for every two GPUs; switch: a port per GPU; mesh: as `mesh` "
       "says, `bandwidth` being that of one NVLink; pcie: the PCIe tree alone",
       "pairs|switch|mesh|pcie"},
      {"link", "nics", T::integer, "inter: NICs per node, shared evenly by its GPUs; default 1", 1},
      {"link", "nics_at", T::choice,
       "inter: direct (default): GPUs reach their NIC over no shared link; pcie: NICs hang on the "
       "PCIe switches, evenly; host: on the sockets",
       "direct|pcie|host"},

      {"mesh", "between", T::pair, "two GPUs, by their numbers in the node"},
      {"mesh", "links", T::integer, "NVLinks between them; default 1", 1},

      {"pcie", "devices_per_switch", T::integer, "consecutive GPUs; default: all of the node", 1},
      {"pcie", "sockets", T::integer, "the switches are spread over them evenly; default 1", 1},
      {"pcie", "link", T::link, "of a GPU to its switch", D::bandwidth},
      {"pcie", "uplink", T::link, "of a switch to its socket, shared by all on the switch",
       D::bandwidth},
      {"pcie", "host", T::link, "between two sockets", D::bandwidth},

      {"fabric", "topology", T::choice, "default switch, which does not block",
       "switch|fat-tree|dragonfly|torus"},
      {"fabric", "rails", T::boolean,
       "switch, fat-tree: NIC i of every node hangs on a switch (a leaf) of rail i; default false"},
      {"fabric", "crossing", T::choice,
       "rails: how a message changes them: node (default): inside the sending node (NCCL's PXN); "
       "spine: over the switches",
       "node|spine"},
      {"fabric", "link", T::link,
       "fat-tree: an uplink, by default as wide as the oversubscription leaves; dragonfly: between "
       "two routers of a group; torus: between neighbours; rails of one switch: a rail's to the "
       "spine; default: as wide as a NIC, no latency",
       D::bandwidth},
      {"fabric", "leaf", T::integer, "fat-tree: nodes per leaf switch", 1},
      {"fabric", "levels", T::integer, "fat-tree: of switches; default 2", 2},
      {"fabric", "pod", T::integer,
       "fat-tree of three levels and more: leaves (then pods ...) per pod; default: as leaf", 1},
      {"fabric", "oversubscription", T::quantity,
       "fat-tree: bandwidth into a switch from below over that of its uplinks; default 1"},
      {"fabric", "uplinks", T::integer,
       "fat-tree: per leaf, each to a switch of its own; default: NICs of a leaf / "
       "oversubscription; the destination decides which one a message takes (D-mod-k)",
       1},
      {"fabric", "groups", T::integer, "dragonfly: every two joined by one cable", 1},
      {"fabric", "routers", T::integer, "dragonfly: per group, every two joined", 1},
      {"fabric", "nodes_per_router", T::integer, "dragonfly: default 1", 1},
      {"fabric", "global", T::link, "dragonfly: between two groups; default: as wide as a NIC",
       D::bandwidth},
      {"fabric", "shape", T::text,
       "torus: nodes per dimension, such as 4x4x2; messages go through the dimensions in this "
       "order"},

      {"edge", "between", T::pair,
       "its two ends: numbers of devices, or names of switches, which need no other mention"},
      {"edge", "bandwidth", T::quantity, "per direction; default: unlimited", D::bandwidth},
      {"edge", "bandwidth_back", T::quantity,
       "from the second end to the first; default: bandwidth", D::bandwidth},
      {"edge", "latency", T::quantity, "default 0; those of a route add up", D::time},
      {"edge", "duplex", T::choice, "full (default), or half: both directions share the capacity",
       "full|half"},
      {"edge", "sharing", T::choice,
       "fair (default): messages of several channels side by side; fifo: one after the other",
       "fair|fifo"},

      {"device", "base", T::text, "a device to start from; the other keys replace its values"},
      {"device", "name", T::text, "what the results call it"},
      {"device", "memory", T::quantity, "of the GPU, as nvidia-smi reports it", D::bytes},
      {"device", "reserved", T::quantity, "CUDA context, libraries and communicators", D::bytes},
      {"device", "allocator_slack", T::quantity, "share of the rest that the allocator cannot use",
       D::fraction},
      {"device", "memory_bandwidth", T::quantity, "peak", D::bandwidth},
      {"device", "memory_efficiency", T::quantity,
       "share of it that streaming kernels reach; default 80%", D::fraction},
      {"device", "peak", T::rates,
       "dense FLOP/s by number type: fp16, bf16, tf32, fp32, fp8, nvfp4", D::flops_rate,
       "fp16|bf16|tf32|fp32|fp8|nvfp4"},
      {"device", "product_share", T::section,
       "shares of these peaks that large products reach, measured or assumed: how fast narrow "
       "types "
       "are beside 16 bits; a curve's layers lose the rest elsewhere. Default: alike, 75%",
       "product_share"},
      {"product_share", "fp16", T::quantity, "of fp16's peak", D::fraction},
      {"product_share", "bf16", T::quantity, "of bf16's", D::fraction},
      {"product_share", "fp8", T::quantity,
       "of fp8's; mxfp8's products and those of blocks are taken for as fast", D::fraction},
      {"product_share", "nvfp4", T::quantity, "of nvfp4's", D::fraction},
      {"device", "launch", T::quantity, "host time to launch a kernel", D::time},
      {"device", "efficiency", T::curve,
       "pairs [hidden size, share of peak] of whole transformer layers", D::fraction},
      {"device", "efficiency_source", T::choice,
       "are these measured (default), or assumed from another device's?", "measured|assumed"},
      {"device", "matrix_efficiency", T::quantity,
       "share of peak that large matrix products reach, measured; goes before a stack's",
       D::fraction},
      {"device", "attention_efficiency", T::quantity,
       "the same of attention, counting what a causal mask leaves", D::fraction},
      {"device", "kernels", T::text,
       "measured times of kernels: a file of models/devices/kernels, or of one's own by its path "
       "(`penstock calibrate --device`); of another device they are assumed, by the ratio of the "
       "peaks"},

      {"stack", "base", T::text, "a stack to start from; the other keys replace its values"},
      {"stack", "name", T::text, "what the results call it"},
      {"stack", "fitted_on", T::text, "the measured rows that its numbers have seen"},
      {"stack", "matrix_efficiency", T::quantity,
       "share of peak that matrix products reach; with it layers are taken apart, and the device's "
       "curve of whole layers is not used",
       D::fraction},
      {"stack", "kernels", T::choice,
       "do products and attention take what such kernels take on the device, as measured by their "
       "shapes, or the efficiencies' times (default)?",
       "none|measured"},
      {"stack", "matrix_efficiency_of", T::text,
       "the devices on which it was measured, such as 'H100, H200'; none: it is assumed"},
      {"stack", "attention_efficiency", T::quantity,
       "the same of attention; default: matrix_efficiency", D::fraction},
      {"stack", "misaligned_attention", T::quantity,
       "the same where the size of a head is no multiple of 8", D::fraction},
      {"stack", "misaligned_head", T::quantity,
       "the same of the LM head where a rank's part of the vocabulary is no multiple of 8",
       D::fraction},
      {"stack", "product_slowdown", T::quantity,
       "share longer that products and attention take in training than kernels measured alone "
       "(`kernels: measured`); default 0",
       D::fraction},
      {"stack", "narrow_slowdown", T::quantity,
       "share longer that products in types of 8 and 4 bits take beyond that; default 0",
       D::fraction},
      {"stack", "beside_exchanges", T::quantity,
       "share longer that a layer's products take where tensor exchanges go beside them, which "
       "occupy multiprocessors; default 0",
       D::fraction},
      {"stack", "operand_traffic", T::quantity,
       "times that matrix products' operands cross memory while nothing is computed", D::number},
      {"stack", "forward_traffic", T::quantity,
       "bytes of memory that norms, activations and casts of a layer move per token and hidden "
       "element in F",
       D::number},
      {"stack", "backward_traffic", T::quantity, "the same in B", D::number},
      {"stack", "accumulation", T::quantity,
       "bytes that adding up gradients moves per parameter in every B", D::number},
      {"stack", "logits_traffic", T::quantity,
       "bytes moved per logit, in F and again in B; with measured kernels by cross_entropy: 26 of "
       "separate, 14 of fused, 5 of in-place",
       D::number},
      {"stack", "forward_host", T::quantity, "time of the host to launch a layer's F", D::time},
      {"stack", "backward_host", T::quantity, "time of the host to launch a layer's B", D::time},
      {"stack", "tensor_host", T::quantity, "more of each where tensor ranks share a layer",
       D::time},
      {"stack", "cuda_graphs", T::boolean,
       "are kernels launched as CUDA graphs? Then no time of the host counts, nor a device's "
       "`launch`; default false"},
      {"stack", "link_efficiency", T::quantity,
       "share of the links' rate that its transfers reach; default 100%", D::fraction},
      {"stack", "link_latency", T::quantity,
       "of a transfer's step between nodes, or of `cluster.link`; default: the cluster's", D::time},
      {"stack", "node_latency", T::quantity,
       "of a transfer's step within a node; default: the cluster's", D::time},
      {"stack", "reduction_overlap", T::choice,
       "of gradients, where the pipeline's reduction does not say it: none (default), or backward",
       "none|backward"},
      {"stack", "speed_spread", T::quantity,
       "standard deviation of the speeds of GPUs of one kind: a step takes as long as the slowest",
       D::fraction},
      {"stack", "optimizer_traffic", T::quantity,
       "bytes that the optimizer moves per parameter it updates; default: its state, twice",
       D::number},
      {"stack", "iteration_overhead", T::quantity, "of every iteration, beyond all ops", D::time},
      {"stack", "kept_per_hidden", T::quantity,
       "bytes kept for B per token and hidden element of a layer; default: those of fused kernels",
       D::number},
      {"stack", "kept_per_column", T::quantity, "more per token and column of the MLP", D::number},
      {"stack", "kept_whole", T::quantity,
       "bytes of kept_per_hidden that tensor ranks do not divide, beside gathered inputs",
       D::number},
      {"stack", "gathered_inputs", T::choice,
       "of linear layers under sequence parallelism, for W: kept (default), or gathered again",
       "kept|again"},
      {"stack", "cross_entropy", T::choice,
       "how the loss is made of 16-bit logits: separate (default: 4 bytes kept of each, 6 beside "
       "them), fused (4 kept, 2 beside them), in-place (2 kept)",
       "separate|fused|in-place"},
      {"stack", "logits_kept", T::quantity, "bytes kept per logit, instead of these", D::number},
      {"stack", "gradient_placeholders", T::boolean,
       "products that add up gradients leave one more of each shape of the layers' matrices, as "
       "Transformer Engine's do; default false"},
      {"stack", "weight_bytes", T::quantity,
       "per parameter, where the model has no bytes_per_parameter", D::number},
      {"stack", "gradient_bytes", T::quantity, "the same of gradients", D::number},
      {"stack", "fp16_gradient_bytes", T::quantity,
       "the same of mixed-fp16, and what replicas reduce of it", D::number},
      {"stack", "optimizer_bytes", T::quantity, "the same of the optimizer's state", D::number},
      {"stack", "allocator_slack", T::quantity,
       "share of the device's memory that its allocator cannot use; default: the device's",
       D::fraction},
      {"stack", "reserved", T::quantity,
       "CUDA context, kernels and communicators of a process; default: the device's", D::bytes},

      {"training", "optimizer", T::choice,
       "sgd, momentum, nesterov, adam, adamw, nadamw, muon, basis_rotation; default: adamw of a "
       "model by shape, else sgd. nesterov and nadamw look ahead for delayed gradients (Ajanthan "
       "et al., ICML'25); muon (Jordan et al., 2024) orthogonalizes matrices, and basis_rotation "
       "(Jung et al., ICML'26) steps in their eigenvectors; all else is adamw's. Of both, steps "
       "cost time and states have their sizes in simulation, too",
       "sgd|momentum|nesterov|adam|adamw|nadamw|muon|basis_rotation"},
      {"training", "learning_rate", T::quantity,
       "default 0.001 (adam, adamw, nadamw, muon, basis_rotation), else 0.01"},
      {"training", "momentum", T::quantity,
       "of momentum and muon, or the share of the mean gradient kept by adam, adamw and "
       "basis_rotation (beta1); default 0.9; muon 0.95; nesterov and nadamw 0.99"},
      {"training", "weight_decay", T::quantity,
       "times the learning rate off the weights (adamw, nadamw, muon, basis_rotation), else added "
       "to the gradient times the weights; default 0.01 of these four, else 0"},
      {"training", "warmup", T::integer,
       "updates in which the learning rate rises linearly; default 0"},
      {"training", "decay", T::choice,
       "of the learning rate, from the warm-up to the last of `updates`; default none",
       "none|linear|cosine"},
      {"training", "final_rate", T::quantity,
       "what is left of the learning rate when it has decayed; default 10%", D::fraction},
      {"training", "clip", T::quantity,
       "largest norm of the gradient of a stage (virtual stage), which needs no word from the "
       "others; default: any"},
      {"training", "rescheduled", T::integer,
       "PipeMare's T1, of schedules with stale weights: begins with learning rates divided by the "
       "delay of a stage in updates (if above 1), and ends after so many updates; default: without",
       1},
      {"training", "discounted", T::boolean,
       "the same without an end (Zhang et al., IJCAI'16); default false"},
      {"training", "predicted", T::boolean,
       "pipedream and pipedream-2bw: ops use the weights as they will be at their update if the "
       "last step goes on, as SpecTrain (Chen et al., 2018); in fp32 the weights once more; "
       "default "
       "false"},
      {"training", "error_feedback", T::boolean,
       "pipedream-2bw: a step takes what the one before it lacked, w - 2 u + the last u with u the "
       "optimizer's own step (Zmushko et al., ICML'26); in fp32 the weights twice more; default "
       "false"},
      {"training", "updates", T::integer,
       "weight updates that `train` makes, and over which the rate decays; default: batches", 1},
      {"training", "data", T::text,
       "generated (default): a hash, nothing to learn but how frequent tokens are; markov: a chain "
       "with an entropy of 1.75 bits per token; or a text file, whose bytes are the tokens"},
      {"training", "held_out", T::quantity,
       "of a text: the share at its end that is evaluated on, not trained; default 10%",
       D::fraction},
      {"training", "evaluate_every", T::integer,
       "updates between two evaluations on held-out data; default 100", 1},
      {"training", "evaluation_microbatches", T::integer,
       "held-out microbatches of an evaluation; default 8; 0: none are made"},
      {"training", "problem", T::choice,
       "what is trained: the model (default), or a problem with a closed form: a product of 8 x 8 "
       "matrices, one a stage, or half the squares of 8 weights a stage",
       "model|linear|quadratic"},
      {"training", "seed", T::integer, "of the first weights and the data; default 1"},

      {"perturbations", "jitter", T::section, "noise of the durations of all ops", "jitter"},
      {"perturbations", "slow_devices", T::section_list, "devices that are slower than the others",
       "slow_device"},
      {"perturbations", "throttle", T::section_list, "devices that slow down for a while",
       "throttle"},
      {"perturbations", "links", T::section_list, "links that degrade or fail, and recover",
       "link_change"},
      {"perturbations", "failures", T::section_list, "when devices fail; or give mtbf", "failure"},
      {"perturbations", "mtbf", T::quantity,
       "mean time between failures of the whole job, exponentially distributed", D::time},
      {"perturbations", "seed", T::integer, "of the failures that mtbf draws; default 1"},
      {"perturbations", "checkpoint", T::section, "what failures cost", "checkpoint"},
      {"perturbations", "horizon", T::quantity,
       "length of the job whose goodput is computed; default 24 h", D::time},

      {"jitter", "spread", T::quantity, "standard deviation of an op's duration over its mean",
       D::fraction},
      {"jitter", "distribution", T::choice,
       "normal (default; spread at most 30%), lognormal or uniform (at most 57%)", kDistributions},
      {"jitter", "seed", T::integer, "another one gives other runs; default 1"},
      {"jitter", "runs", T::integer, "runs that the percentiles are taken of; default 100", 1},

      {"slow_device", "device", T::integer, "its number in the result"},
      {"slow_device", "factor", T::quantity, "of its times: 1.1 is 10 % slower"},

      {"throttle", "device", T::integer, "its number in the result"},
      {"throttle", "at", T::quantity, "when it slows down; default 0", D::time},
      {"throttle", "until", T::quantity, "when it is back at full speed; default never", D::time},
      {"throttle", "speed", T::quantity, "share of its speed meanwhile; overlaps multiply",
       D::fraction},

      {"link_change", "link", T::text, "its name in the result's links; or give between"},
      {"link_change", "between", T::pair,
       "all links from one of two ends to the other: names or numbers as in the links' names"},
      {"link_change", "at", T::quantity, "when it degrades or fails; default 0", D::time},
      {"link_change", "until", T::quantity, "when it is back as it was; default never", D::time},
      {"link_change", "bandwidth", T::quantity,
       "share of its bandwidth meanwhile; overlaps multiply", D::fraction},
      {"link_change", "failed", T::boolean,
       "true: nothing moves meanwhile; messages wait, and go on afterwards"},

      {"failure", "device", T::integer, "its number in the result"},
      {"failure", "at", T::quantity, "when it fails, from the beginning of the job", D::time},

      {"checkpoint", "every", T::integer, "batches between two checkpoints", 1},
      {"checkpoint", "save", T::quantity, "time of a checkpoint, when all devices wait; default 0",
       D::time},
      {"checkpoint", "restart", T::quantity,
       "from a failure until the job computes again; default 0", D::time},
  };
  return kTable;
}

/// A section and the name of a key in it.
using Name = std::pair<std::string_view, std::string_view>;
struct HashOfName {
  std::size_t operator()(const Name& name) const {
    const std::hash<std::string_view> hash;
    return hash(name.first) * 31 + hash(name.second);
  }
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t bar = std::min(text.find('|'), text.size());
    words.push_back(text.substr(0, bar));
    text.remove_prefix(std::min(bar + 1, text.size()));
  }
  return words;
}

/// Every key and alias; of the same name, the first row.
const std::unordered_map<Name, const KeyRow*, HashOfName>& rows_by_name() {
  static const auto kRows = [] {
    std::unordered_map<Name, const KeyRow*, HashOfName> rows;
    for (const KeyRow& row : table()) {
      rows.try_emplace({row.section, row.key}, &row);
      for (const std::string_view alias : words_of(row.aliases))
        rows.try_emplace({row.section, alias}, &row);
    }
    return rows;
  }();
  return kRows;
}

}  // namespace

std::span<const KeyRow> key_table() { return table(); }

const KeyRow* find_key(std::string_view section, std::string_view key) {
  const auto found = rows_by_name().find({section, key});
  return found == rows_by_name().end() ? nullptr : found->second;
}

std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> keys;
  for (const KeyRow& row : table()) {
    if (row.section != section) continue;
    keys.emplace_back(row.key);
    const auto aliases = words_of(row.aliases);
    keys.insert(keys.end(), aliases.begin(), aliases.end());
  }
  return keys;
}

std::string known_elsewhere(std::string_view key) {
  if (key == "global_batch_size" || key == "gradient_accumulation_steps")
    return "; give pipeline.global_batch_size (= microbatch_size x microbatches x width) or "
           "microbatches";
  if (const NotModelled* known = find_not_modelled(key)) return fmt::format("; {}", known->instead);
  return "";
}

std::vector<std::string> split_choices(std::string_view choices) {
  const auto words = words_of(choices);
  return {words.begin(), words.end()};
}

std::optional<int> place_of_choice(std::string_view choices, std::string_view word) {
  for (int place = 0; !choices.empty(); ++place) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == word) return place;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return std::nullopt;
}

std::string describe(const KeyRow& row) {
  const auto one_of = [&] {
    return fmt::format("one of {}", fmt::join(split_choices(row.choices), ", "));
  };
  switch (row.type) {
    case T::text: return "text";
    case T::boolean: return "true or false";
    case T::integer: return fmt::format("an integer >= {}", row.minimum);
    case T::quantity: return describe(row.dimension);
    case T::quantity_per_stage: return describe(row.dimension) + ", or a list with one per stage";
    case T::choice: return one_of();
    case T::choice_or_section: return one_of() + ", or a map";
    case T::choice_per_stage: return one_of() + ", or a list with one per virtual stage";
    case T::choice_sets:
      return fmt::format("some of {}, or a list with such a list per virtual stage",
                         fmt::join(split_choices(row.choices), ", "));
    case T::counts:
      return fmt::format("an integer >= {}, or a list with one per stage", row.minimum);
    case T::split: return one_of() + ", or a list of layers per stage";
    case T::gpus: return one_of() + ", or a list of GPU numbers";
    case T::numbers: return "a list of numbers >= 0, such as [3, 2, 1.5]";
    case T::link:
      return "a bandwidth such as '25 GB/s', or a map with bandwidth, latency, duplex, sharing";
    case T::section: return "a map";
    case T::section_list: return "a list of maps";
    case T::name_or_section: return "a name, a file or a map";
    case T::curve:
      return "a list of pairs [hidden size, share of (0, 100%]] such as [[1024, 36%], [2048, 48%]]";
    case T::pair: return "a list of two, such as [0, switch]";
    case T::rates: return "a map such as {fp16: 125 TFLOP/s}";
  }
  return "";
}

}  // namespace penstock
