// SPDX-License-Identifier: Apache-2.0
// The mesh of a job: the axes along which its work is divided among GPUs, and who is where.
//   pipeline  positions, each with its stages (its size is the depth p of the schedule)
//   data      replicas of a position: they take turns with the microbatches, each a device of the
//             Program, or they divide every microbatch and are one device
//   context   groups of GPUs of a replica, which divide every sequence
//   tensor    GPUs of such a group, neighbours, which divide every op
// Where layers have experts, the GPUs of a position, of all its replicas, are factored once more:
// `expert_tensor` neighbours divide each expert, `expert` such groups in a row have all experts of
// a layer together, and the whole is repeated until all GPUs are used (Liu et al., "MoE Parallel
// Folding", arXiv:2504.14960; Megatron-LM's order of expert ranks).
#pragma once

#include "program/op_lists.hpp"
#include "program/per_stage.hpp"
#include "program/recipe.hpp"

#include <cstdint>
#include <vector>

namespace penstock {

/// How copies of tokens go to the GPUs that have their experts.
struct TokenRouting {
  bool once_per_node = false;  ///< to each node one, which its GPUs pass on (DeepEP, HybridEP)
  bool narrow = false;         ///< in the type of experts' products; what they made is not
  int sms = 0;                 ///< multiprocessors that its kernels occupy
  double sm_bytes_per_s = 0;   ///< what each of these sends within a node; 0: as links can
  int per_token = 1;           ///< experts that a token visits
  /// Parts of the experts of which a token's are in so many alone (DeepSeek-V3's groups).
  int parts = 1, parts_per_token = 1;
};

struct Mesh {
  PerStage<int> width = 1;  ///< replicas, by position of the pipeline
  bool divided = false;     ///< replicas divide every microbatch instead of taking turns
  ByInnerAxis<int> inner = one_each();  ///< ranks of a replica along the inner axes
  /// So many groups of GPUs have all experts of a layer together; 0: layers have no experts. So
  /// many neighbours divide each expert.
  int expert = 0, expert_tensor = 1;
  TokenRouting routing{};
  bool pipeline_first = false;  ///< ranks: position after position (Megatron's), or pipelines
  std::vector<std::vector<int>> gpus{};  ///< by device of the Program; empty: not placed yet

  /// Replicas that are devices of their own.
  PerStage<int> turns() const { return divided ? PerStage<int>(1) : width; }
  /// Replicas of a position that are one device.
  int together(std::size_t position) const { return divided ? width.at(position) : 1; }
  bool replicated() const { return most() > 1; }
  /// Do GPUs of one device add their gradients: of replicas that divide microbatches, of context
  /// ranks, or of tensor ranks with the same experts?
  bool reduces_within() const {
    return divided || replica_sharers() > 1 || (most() == 1 && expert_sharers(0) > 1);
  }
  /// How many GPUs hold the same weights, at a position and at most.
  int sharers(std::size_t position) const { return width.at(position) * replica_sharers(); }
  int sharers() const { return most() * replica_sharers(); }
  int replica_sharers() const;  ///< of one replica
  int size(Axis axis) const { return inner[static_cast<std::size_t>(axis)]; }
  int& size(Axis axis) { return inner[static_cast<std::size_t>(axis)]; }
  /// How many GPUs hold the same part of the same experts, at a position; 1 where there are none.
  int expert_sharers(std::size_t position) const {
    if (expert == 0) return 1;
    const std::int64_t gpus = std::int64_t{width.at(position)} * replica_gpus();
    return static_cast<int>(gpus / (std::int64_t{expert} * expert_tensor));
  }
  /// GPUs of a replica of a position.
  int replica_gpus() const;
  /// The most replicas any position has.
  int most() const;
  /// Replicas of each of so many positions.
  std::vector<int> widths(std::uint32_t depth) const;
  std::int64_t devices(std::uint32_t depth) const;  ///< of the Program
  std::int64_t ranks(std::uint32_t depth) const;    ///< GPUs

  /// The GPUs of a device that exchange along an axis, group by group: those that differ in their
  /// rank along it alone; along `data` all with the same part of the weights: of all replicas, and
  /// of all their context ranks.
  std::vector<std::vector<int>> groups(int device, Axis axis) const;

 private:
  static constexpr ByInnerAxis<int> one_each() {
    ByInnerAxis<int> sizes{};
    sizes.fill(1);
    return sizes;
  }
};

/// Every device is one GPU.
Mesh one_gpu_each(const std::vector<int>& gpus);

/// Who reduces the gradients of a position: along `data`, over all devices that hold its weights.
std::vector<std::vector<int>> reduction_groups(const Placement& placement, const Mesh& mesh,
                                               std::uint32_t position);

/// Who exchanges tokens at a position: those who have all experts together, each another part.
std::vector<std::vector<int>> expert_groups(const Placement& placement, const Mesh& mesh,
                                            std::uint32_t position);
/// Who reduces the gradients of experts: those who have the same part of the same ones.
std::vector<std::vector<int>> expert_reduction_groups(const Placement& placement, const Mesh& mesh,
                                                      std::uint32_t position);

}  // namespace penstock
