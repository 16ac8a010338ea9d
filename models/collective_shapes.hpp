// SPDX-License-Identifier: Apache-2.0
// Who is next to whom in a collective: nodes, rails, rings and trees over GPUs. What a collective
// costs (collectives.cpp) and the steps by which it is executed (collective_steps.cpp) are made
// from these alike.
#pragma once

#include <array>
#include <functional>
#include <vector>

namespace penstock {

using NodeOf = std::function<int(int gpu)>;

/// Returns the GPUs of each node, in the order of the nodes. Requires GPUs in ascending order.
std::vector<std::vector<int>> nodes_of(const std::vector<int>& gpus, const NodeOf& node_of);
/// Are there several nodes with as many members each, more than one?
bool has_rails(const std::vector<std::vector<int>>& nodes);
/// Returns the GPUs of each place in all nodes. Requires has_rails().
std::vector<std::vector<int>> rails_of(const std::vector<std::vector<int>>& nodes);

/// Returns the GPUs in the order of each ring: one ring, or where nodes hold as many members each
/// as many rings as that, so that every member's NIC carries one in and one out, to the same place
/// in the next node where that is possible: the channels of NCCL, which are cut in this way
/// (NCCL_CROSS_NIC). Each ring takes an equal part of the bytes.
std::vector<std::vector<int>> ring_orders(const std::vector<int>& gpus, const NodeOf& node_of);

/// Two GPUs of a tree.
struct TreeEdge {
  int child, parent;
};
/// Returns two binary trees in which the leaves of one are inner in the other (Sanders et al.,
/// 2009; NCCL); of each the edges, those below a GPU before the one to its parent.
std::array<std::vector<TreeEdge>, 2> binary_trees(const std::vector<int>& gpus);

}  // namespace penstock
