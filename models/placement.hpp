// SPDX-License-Identifier: Apache-2.0
// Which GPU every member of a pipeline runs on: in rank order, by a policy, or as listed.
// fresh, append and scatter first are the placements of DAPPLE's planner (Fan et al., PPoPP 2021,
// "DAPPLE"), here per stage: fresh first takes machines that no stage uses yet, append
// first those in use, scatter first the same number from all in use (or, with none, from all).
#pragma once

#include "models/cluster.hpp"

#include <string>
#include <vector>

namespace penstock {

enum class PlacementPolicy : std::uint8_t {
  fill_node,  ///< GPU of a rank = its number: node after node
  fresh_first,
  append_first,
  scatter_first,
  round_robin,  ///< rank after rank, each on the node after the last one's that has a place
};

struct PlacementRequest {
  std::vector<int> widths;      ///< replicas, by pipeline position
  int replica_gpus = 1;         ///< of a position
  bool pipeline_first = false;  ///< ranks: position after position (Megatron's), or pipelines
  PlacementPolicy policy = PlacementPolicy::fill_node;
  std::vector<int> gpus;  ///< by rank; not empty: instead of a policy

  int depth() const { return static_cast<int>(widths.size()); }
  int ranks() const;
};

struct PlacementProblem {
  int item = -1;  ///< of `gpus`; -1: all of it
  std::string why;
};

/// What is wrong with a placement; empty when it can be made.
std::vector<PlacementProblem> refuse_placement(const Cluster& cluster,
                                               const PlacementRequest& request);

/// GPU k of (replica r, position s) at (r * depth + s) * replica_gpus + k; -1 where a position has
/// fewer replicas than the widest one. The policies keep the GPUs of a replica in one node.
/// Precondition: nothing is wrong with it.
std::vector<int> place(const Cluster& cluster, const PlacementRequest& request);

}  // namespace penstock
