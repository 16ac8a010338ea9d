// SPDX-License-Identifier: Apache-2.0
// Collectives: what moves between which GPUs, as phases of concurrent flows, and what it takes.
//
// A phase's flows start together, each carrying everything that crosses its edge in all of the
// phase's steps; the phase ends `steps` latencies after the last flow. On links of their own this
// is the textbook cost, of a ring over n members 2 (n-1) latency + 2 (n-1)/n bytes / bandwidth
// (Patarasuk and Yuan, 2009); on shared links the flows contend like any others. `price` is all
// that is charged for a collective, whoever asks: engines, the cost model or the search.
#pragma once

#include "models/cluster.hpp"
#include "models/collective_shapes.hpp"
#include "models/sharding.hpp"
#include "program/mesh.hpp"
#include "program/recipe.hpp"
#include "program/transfer.hpp"
#include "program/vocabulary.hpp"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace penstock {

enum class ReductionAlgorithm : std::uint8_t {
  /// 2 (n-1) steps, 2 (n-1)/n of the bytes out of each GPU. Over nodes with several members each,
  /// as many rings as a node has members, each with its part: all their NICs carry it, as NCCL's.
  ring,
  hierarchical,  ///< reduce-scatter in each node, rings between nodes, all-gather in each node
  tree,          ///< two binary trees with half of the bytes each (Sanders et al., 2009; NCCL)
  server,        ///< central parameter server: everybody pushes gradients and pulls weights
  /// Everybody sends all of its gradients to everybody else, and each adds them up: one step, n-1
  /// times the bytes out of each GPU. (As many servers as replicas are the two-step exchange of
  /// parts: a reduce-scatter and an all-gather, each by an all-to-all.)
  all_to_all,
};
inline constexpr std::string_view kReductionNames[] = {"ring", "hierarchical", "tree", "server",
                                                       "all-to-all"};

/// What the members of a group do, and how their software does it.
struct Exchange {
  Collective what = Collective::all_reduce;
  ReductionAlgorithm algorithm = ReductionAlgorithm::ring;
  int servers = 1;         ///< parameter servers
  TokenRouting routing{};  ///< all-to-all: of tokens to experts
};

/// How tokens and their experts meet.
enum class ExpertExchange : std::uint8_t { all_to_all, once_per_node };

/// How gradients are reduced over the replicas.
struct ReductionOptions {
  ReductionAlgorithm algorithm = ReductionAlgorithm::ring;
  int servers = 1;      ///< parameter servers
  bool priced = false;  ///< take StageCosts::reduce_grad_s, on no link, instead of flows
  /// Parts of the gradient, per stage (empty: one part, when the backward has ended).
  std::vector<std::vector<GradientBucket>> buckets{};
  Sharding sharding{};  ///< who needs which part of what is reduced
  /// Says which share of each position's bytes are gradients of experts; empty: none has any.
  std::vector<double> expert_share{};

  Exchange exchange() const { return {Collective::all_reduce, algorithm, servers}; }
};

/// A share of the reduced bytes that moves from one GPU to another.
struct CollectiveFlow {
  int from, to;
  double share;
};

struct CollectivePhase {
  std::vector<CollectiveFlow> flows;
  int steps = 0;  ///< latencies it takes, of the slowest edge
  /// All that its groups do, each of so many members, as a library does it in one go; 0: it is a
  /// part, or done otherwise. Such a phase within nodes takes what was measured there.
  int members = 0;
  Collective what = Collective::all_reduce;
  double least_s_per_byte = 0;  ///< what its kernels take, however fast links are
};

using GpuGroups = std::vector<std::vector<int>>;

/// Returns whether both send the same along the same routes: a ring's all-gather and reduce-scatter
/// do.
bool flows_alike(Collective a, Collective b);

/// Returns the phases of an exchange over these GPUs; none for one GPU. `node_of` tells which GPUs
/// share a node. A ring goes round all of them, over all NICs that they have. `hierarchical`
/// all-gathers (and all-to-alls) in each node and between the GPUs of one place in all nodes, so
/// that every GPU's own NIC carries its part; its all-reduce falls back to ring where nodes hold
/// one GPU each, or one node all, and gathers on one GPU per node where nodes hold different
/// numbers. Tokens that go once to each node go to the GPU of the sender's place there, which sends
/// them on, once to each GPU that has experts of theirs. Each of `servers` GPUs holds an equal part
/// of the weights. Without nodes of several members, what is not an all-reduce goes as a ring's
/// does.
std::vector<CollectivePhase> phases_of(const Exchange& exchange, std::vector<int> gpus,
                                       const NodeOf& node_of);
/// Returns those of several groups side by side: phase k of all of them starts together.
std::vector<CollectivePhase> phases_of(const Exchange& exchange, const GpuGroups& groups,
                                       const NodeOf& node_of);

/// Returns the groups cut into ones of so many neighbours, and those that have the members of one
/// place in each of these.
GpuGroups cut_into(const GpuGroups& groups, int size);
GpuGroups across_cuts(const GpuGroups& groups, int size);

/// Returns what the members of these groups, who have the same weights, do with their gradients
/// when an update ends: an all-reduce, or a reduce-scatter among those who each need a part and an
/// all-reduce of each part across the groups of these. None where every backward has done it.
std::vector<CollectivePhase> reduction_phases(const ReductionOptions& options,
                                              const GpuGroups& groups, const NodeOf& node_of);
/// The same of all who have the weights of a position; the gradients of experts, which others
/// share, follow.
std::vector<CollectivePhase> reduction_phases(const ReductionOptions& options,
                                              const Placement& placement, const Mesh& mesh,
                                              std::uint32_t position, const NodeOf& node_of);

/// Returns what one of these GPUs, a replica that waits for no other, exchanges with the parameter
/// servers: it pushes its gradients, then pulls the weights. A server moves nothing to itself, so
/// the phases may have no flows. None for one GPU.
std::vector<CollectivePhase> push_and_pull(std::vector<int> gpus, int member, int servers = 1);

/// Returns what several groups do side by side: phase k of all of them starts together.
std::vector<CollectivePhase> side_by_side(const std::vector<std::vector<CollectivePhase>>& groups);

/// Returns flows of these shares along their routes, with the slowest one's latency.
Transfer::Phase routed(const std::vector<CollectiveFlow>& flows, bool backward, Network& network);
/// Returns phases along their routes, each with what it takes alone.
std::vector<Transfer::Phase> priced(const std::vector<CollectivePhase>& phases, Network& network);

/// Returns copies of these GPUs to the memory of their hosts, or from there, each of all the bytes.
Transfer::Phase host_copies(const std::vector<int>& gpus, bool out, Network& network);

/// Returns what an exchange costs that these groups of a cluster's GPUs make side by side.
CollectivePrice price(const Exchange& exchange, const GpuGroups& groups, const Cluster& cluster);
CollectivePrice price(const std::vector<CollectivePhase>& phases, const Cluster& cluster);

/// Returns the least seconds per byte of a ring's all-reduce among so many members of which every
/// `apart`-th GPU is one, wherever these are: what `price` is never below, for a search to which
/// places are open. Precondition: a cluster of one link, or of equal nodes whose GPUs have ports or
/// pairs of links.
double least_all_reduce_s_per_byte(const Cluster& cluster, int members, int apart);

}  // namespace penstock
