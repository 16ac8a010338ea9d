// SPDX-License-Identifier: Apache-2.0
// Collectives as steps that can be executed: what each member sends, and what it does with what
// comes. Between every two members move the bytes that models/collectives.hpp predicts.
//
// The steps of all members stand in one list. Executed one after the other they give the result;
// members may also execute their own ones side by side, because a send waits for nobody and the
// messages from one member to another are FIFO. So the list also says in which order each element
// is summed, and every member ends with the same bits:
//   ring          chunk k of n: members in the order of the ring, from the one after place k on
//   hierarchical  the same in each node, and then among the nodes' sums
//   tree          a GPU's own, then the sums of its children, the lowest first
//   server        the server's own, then the others in ascending order
//   all-to-all    in ascending order
#pragma once

#include "models/collective_shapes.hpp"
#include "models/collectives.hpp"

namespace penstock {

/// One step of one GPU, on the elements [first, end) that it and `peer` have.
struct CollectiveStep {
  enum class Kind : std::uint8_t {
    send,  ///< its own elements leave for `peer`
    add,   ///< what comes from `peer` is added to its own
    take,  ///< what comes from `peer` replaces its own
    pile,  ///< what comes from `peer` is added to what comes next
  };
  int gpu;
  Kind kind;
  int peer;
  std::int64_t first, end;
};

/// Returns the steps of a collective over `elements` elements; none for one GPU. Every member has
/// room for all of them. An all-reduce leaves the sums at each; a reduce-scatter leaves at each
/// member the sums of one chunk (round one ring of n members: chunk k of n at place k), with which
/// an all-gather begins. Chunks may be empty: they are sent, too. Requires all_reduce,
/// reduce_scatter or all_gather; `algorithm` is as for collective().
std::vector<CollectiveStep> collective_steps(Collective what, ReductionAlgorithm algorithm,
                                             std::vector<int> gpus, const NodeOf& node_of,
                                             std::int64_t elements, int servers = 1);

}  // namespace penstock
