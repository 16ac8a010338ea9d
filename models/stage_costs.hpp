// SPDX-License-Identifier: Apache-2.0
// What each virtual stage of a transformer costs on a device, or on each of the t GPUs that share
// it (tensor parallelism).
//
// Times are those of computing; what the GPUs of a stage exchange is counted apart, in
// OpCost::recipe. Per layer and microbatch, with x = bytes of s b h elements (Korthikanti et
// al., MLSys'23, section 4.2):
//   F             2 all-reduces of x; sequence parallel: 2 all-gathers and 2 reduce-scatters
//   B             the same, of which all belong to I; layers recomputed in full: those of F once
//                 more
//   W             nothing; sequence parallel: 2 all-gathers of x, whose results nobody kept
//   embedding     F 1 all-reduce of x; sequence parallel: F a reduce-scatter, W an all-gather
//   LM head       F 3 all-reduces of b s fp32 numbers (maximum, target's logit, sum), I one of x;
//                 sequence parallel: an all-gather in F and W, a reduce-scatter in I
//   messages      divided among the ranks (and no sequence parallelism): an all-gather of x in F of
//                 every stage but the first, in I of every one but the last
// What an op needs is all-gathered before it computes, what it makes is reduced after it. With
// TensorParallel::overlap what sequence parallelism exchanges of layers goes beside (t-1)/t of
// their products instead, which is all of it where a part's product takes longer than its transfer;
// all-gathers and reduce-scatters each beside a share of the products as large as that of their
// calls.
//
// Among c context ranks (ring attention: Liu et al., arXiv:2310.01889; Megatron's cp_comm_type p2p)
// each has s/c tokens of every sequence, cut so that causal attention is 1/c of the work for all.
// Everything above is then of s/c tokens, and per layer, with y = 2 s/c b k / t elements of keys
// and values (k their size):
//   F             y goes on c-1 times, under (c-1)/c of the attention; then the last part of it
//   I             y and its gradient go on c-1 times together, under (c-1)/c of all of I's; before
//                 that, where attention is computed again, y of F once more, under that
// So it goes round as in an all-gather of c y. (Of I, the first y and the last gradient go alone, a
// round more; its latency is neglected.) Gathered before attention, c y are all-gathered in F and
// again in I, which reduce-scatters their gradients; all to all, each rank exchanges its part of
// queries, keys and values before and of the output behind attention, in F and in I. Neither is
// hidden.
//
// Each GPU computes 1/t of the FLOPs on narrower matrices. Its efficiency is, assumed, that of
// hidden size h / sqrt(t), whose matrices have as many elements. Norms, dropout and residual
// additions take their whole time on every GPU, unless sequence parallelism divides them.
//
// That is the neutral stack; one that takes layers apart has its own times (models/stack.hpp).
#pragma once

#include "models/device.hpp"
#include "models/gradient_buckets.hpp"
#include "models/sharding.hpp"
#include "models/stack.hpp"
#include "models/topology.hpp"
#include "models/training.hpp"
#include "models/transformer.hpp"
#include "program/transfer.hpp"
#include "program/vocabulary.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace penstock {

struct StageCostOptions {
  double microbatch_size = 1;  ///< sequences per microbatch
  PerStage<Recomputation> recompute = Recompute::none;
  TensorParallel tensor = {};
  int context = 1;  ///< ranks that divide every sequence, c
  int ulysses = 1;  ///< of which so many neighbours exchange heads all to all; the others a ring
  ContextExchange context_exchange = ContextExchange::ring;
  /// Replicas, and their context ranks, that divide weights, gradients or the optimizer's states.
  /// With weights gathered after the step, a reduce-scatter of gradients and an all-gather of
  /// weights replace the all-reduce; each counts half of its bytes in `reduced_bytes`.
  Sharding sharding = {};
  /// The optimizer, where it takes whole matrices (models/matrix_optimizers.hpp); the others are
  /// Adam.
  OptimizerSpec::Kind optimizer = OptimizerSpec::Kind::adamw;
  /// An all-to-all among the replicas that divide the states of a stage.
  PerStage<CollectivePrice> matrix_exchange = {};
  StackSpec stack = {};
  PerStage<CollectivePrice> tensor_sum = {};  ///< an all-reduce among the tensor ranks of a stage
  ExpertParallel expert = {};
  /// Pairs of queries and keys of the slowest context rank over its share of those of whole
  /// sequences: documents attend to themselves alone (models/documents.hpp).
  double attended = 1;
};

/// Consecutive layers of a model on a stage, [begin, begin + layers). The first stage also has the
/// embedding, the last one the LM head and the layers that predict further tokens.
struct LayerSpan {
  int begin = 0, layers = 0;
  bool first = false, last = false;

  int end() const { return begin + layers; }
};

/// Returns those of every stage when stage i has `layers[i]` of them.
std::vector<LayerSpan> spans_of_stages(const std::vector<int>& layers);

/// Costs per GPU of the stages when stage i holds `layers[i]` consecutive layers, the first one
/// also the embedding and the last one the LM head. Precondition: the layers add up to the model's,
/// and the device has a peak rate for the model's number type.
std::vector<StageCosts> stage_costs(const TransformerSpec& model, const DeviceSpec& device,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options);

/// The same of one of the stages.
StageCosts stage_costs_of(const TransformerSpec& model, const DeviceSpec& device,
                          const std::vector<int>& layers, std::size_t stage,
                          const StageCostOptions& options);

/// The same of many stages, one by one, where layers are computed once: all recompute as
/// `options.recompute` says of stage 0, and the other options by stage are those of stage 0, too.
class StageCoster {
 public:
  StageCoster(const TransformerSpec& model, const DeviceSpec& device,
              const StageCostOptions& options);
  ~StageCoster();
  StageCosts costs(const LayerSpan& stage) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

/// The same with a device of its own for every stage.
std::vector<StageCosts> stage_costs(const TransformerSpec& model,
                                    const std::vector<DeviceSpec>& devices,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options);

/// Parameters per GPU of a stage with these layers, and of these, those of routed experts; a tied
/// projection counts once where both copies meet.
std::int64_t stage_parameters(const TransformerSpec& model, const LayerSpan& layers,
                              const TensorParallel& tensor = {}, const ExpertParallel& expert = {});
std::int64_t stage_expert_parameters(const TransformerSpec& model, const LayerSpan& layers,
                                     const ExpertParallel& expert);

/// What a layer's backward takes, and what that of the embedding and of the LM head.
struct PartBackward {
  double layer_s = 0, embedding_s = 0, head_s = 0;
  int recomputed = 0;       ///< so many first layers take another time
  double recomputed_s = 0;  ///< each of them
  double dense_s = 0;       ///< what a layer without experts takes longer than one with them
};

/// The gradients of a stage in the order of the forward pass: embedding, layers, LM head. A tied
/// projection's belongs to the embedding, whose backward completes it.
std::vector<LayerGradient> stage_gradients(const TransformerSpec& model, const LayerSpan& layers,
                                           const PartBackward& times,
                                           const TensorParallel& tensor = {},
                                           const ExpertParallel& expert = {});

/// The same for every stage of `stage_costs`. The embedding's backward takes no time there.
std::vector<std::vector<LayerGradient>> stage_gradients(const TransformerSpec& model,
                                                        const std::vector<DeviceSpec>& devices,
                                                        const std::vector<int>& layers,
                                                        const StageCostOptions& options);

/// Layers per stage, all equal; empty when the stages do not divide the layers.
std::vector<int> even_split(int layers, int stages);

/// Layers per stage so that the slowest device's F + B is as fast as possible; among those, the
/// split whose second, third ... slowest devices are fastest. A stage that is slow without layers
/// (the last one, with the LM head) may have none. Layers without experts before those with some
/// count as the first stage's.
std::vector<int> balanced_split(const TransformerSpec& model, const DeviceSpec& device, int stages,
                                const StageCostOptions& options);

/// The same with a device of its own for every stage, and replicas that share its microbatches
/// (empty: as many of every stage). `positions`: which device of the pipeline has each stage
/// (empty: each its own); the stages of one count together and have about as many layers each.
std::vector<int> balanced_split(const TransformerSpec& model,
                                const std::vector<DeviceSpec>& devices,
                                const StageCostOptions& options,
                                const std::vector<int>& replicas = {},
                                const std::vector<std::uint32_t>& positions = {});

/// The same for any time of a stage with so many layers: `time(layers, stage)`, which grows with
/// the layers.
std::vector<int> balanced_split(int layers, int stages, const std::function<double(int, int)>& time,
                                std::vector<std::uint32_t> positions = {});

}  // namespace penstock
