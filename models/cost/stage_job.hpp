// SPDX-License-Identifier: Apache-2.0
// One stage of a job, as far as the costs of its layers depend on it.
#pragma once

#include "models/layer/module.hpp"
#include "models/stage_costs.hpp"

#include <algorithm>
#include <vector>

namespace penstock {

/// Layers of one kind on a stage, and so many of them that are recomputed in full.
struct LayerCount {
  int layers = 0;
  int in_full = 0;
};

/// Holds references: what it was made of must outlive it.
struct StageJob {
  StageJob(const TransformerSpec& m, const Layer& l, const DeviceSpec& d,
           const StageCostOptions& options, std::size_t stage)
      : model(m),
        layer(l),
        device(d),
        stack(options.stack),
        tensor(options.tensor),
        expert(options.expert),
        tensor_sum(options.tensor_sum.at(stage)),
        context(options.context),
        ulysses(options.ulysses),
        context_exchange(options.context_exchange),
        b(options.microbatch_size / options.context),
        recompute(options.recompute.at(stage)),
        forward(layer.work(b, tensor)),
        again(recompute.in_full() ? forward
              : selective()       ? layer.work_again(b, tensor, recompute.parts)
                                  : LayerWork{}),
        attended(options.attended) {
    for (LayerWork* work : {&forward, &again}) work->attention_flops *= attended;
  }

  const TransformerSpec& model;
  const Layer& layer;
  const DeviceSpec& device;
  const StackSpec& stack;
  TensorParallel tensor;
  ExpertParallel expert;
  CollectivePrice tensor_sum;  ///< an all-reduce among the GPUs that share the stage
  int context;                 ///< ranks that divide every sequence
  int ulysses;                 ///< of which so many exchange heads, by an axis of their own
  ContextExchange context_exchange;
  double b;  ///< sequences of a microbatch that a context rank has, may be a fraction
  Recomputation recompute;
  LayerWork forward;  ///< of a layer
  LayerWork again;    ///< what is computed again of a layer of which something is
  double attended;    ///< StageCostOptions::attended

  /// Returns among how many ranks, or groups with whole heads, keys and values go.
  int ring() const {
    return context_exchange == ContextExchange::all_to_all ? 1 : context / ulysses;
  }
  bool selective() const { return recompute.granularity == Recompute::selective; }
  /// Returns of how many of a stage's layers something is computed again.
  int layers_again(int layers) const { return selective() ? layers : recompute.recomputed(layers); }
  int layers_again(const LayerCount& count) const {
    return selective() ? count.layers : count.in_full;
  }
  /// Returns what sequence parallelism gathers of a layer over its wide bytes: operands of
  /// products, cast before, half for attention's and half for the MLP's.
  double gathered_share() const {
    double bytes = 0;
    for (const ProductClass of : {ProductClass::attention_projections, ProductClass::mlp})
      bytes += std::min(model.element_bytes(), model.operand_bytes(of)) / 2;
    return tensor.sequence ? bytes / model.element_bytes() : 1;
  }
  bool makes_attention_again() const { return again.attention_flops > 0; }
  /// Returns whether W finds the gathered inputs of its products among what is kept.
  bool keeps_gathered() const { return stack.kept_per_hidden > 0 && !stack.gathers_again; }
  /// Returns whether a stage gathers the parts of the message that it receives.
  bool gathers_messages() const { return tensor.divided_messages && !tensor.sequence; }
};

/// Holds how many layers of one kind a stage has, and what they cost.
struct StageKind {
  const StageJob& job;
  LayerCount count;
};
/// All kinds of a stage, the usual one of the model first.
using StageKinds = std::vector<StageKind>;

}  // namespace penstock
