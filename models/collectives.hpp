// SPDX-License-Identifier: Apache-2.0
// Collectives: what moves between which GPUs, as phases of concurrent flows, and in closed form.
//
// A phase's flows start together, each carrying everything that crosses its edge in all of the
// phase's steps; the phase ends `steps` latencies after the last flow. On links of their own this
// is the textbook cost; on shared links the flows contend like any others.
#pragma once

#include "models/cluster.hpp"
#include "program/recipe.hpp"
#include "program/vocabulary.hpp"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace penstock {

/// Ring all-reduce of `bytes` over n members (Patarasuk and Yuan, 2009):
/// 2 (n-1) latency + 2 (n-1)/n bytes / bandwidth, seconds; 0 for one member.
double ring_all_reduce_s(int members, double bytes, double latency_s, double bytes_per_s);

/// Ring all-gather or reduce-scatter of `bytes` in all over n members: half an all-reduce,
/// (n-1) latency + (n-1)/n bytes / bandwidth.
double ring_gather_s(int members, double bytes, double latency_s, double bytes_per_s);

/// All-to-all in which every member has `bytes`, a part for each of the n, and sends to all others
/// at once: latency + (n-1)/n bytes / bandwidth of its port.
double all_to_all_s(int members, double bytes, double latency_s, double bytes_per_s);

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

/// How gradients are reduced over the replicas.
struct ReductionOptions {
  ReductionAlgorithm algorithm = ReductionAlgorithm::ring;
  int servers = 1;      ///< parameter servers
  bool priced = false;  ///< take StageCosts::reduce_grad_s, on no link, instead of flows
  /// Parts of the gradient, per stage (empty: one part, when the backward has ended).
  std::vector<std::vector<GradientBucket>> buckets{};
};

/// A share of the reduced bytes that moves from one GPU to another.
struct CollectiveFlow {
  int from, to;
  double share;
};

struct CollectivePhase {
  std::vector<CollectiveFlow> flows;
  int steps = 0;  ///< latencies it takes, of the slowest edge
};

/// The phases of an all-reduce over these GPUs; none for one GPU. `node_of` tells which GPUs share
/// a node; hierarchical falls back to ring where nodes hold one GPU each, or one node all, and
/// gathers on one GPU per node where nodes hold different numbers. `servers` of the GPUs hold an
/// equal part of the weights each (server only).
std::vector<CollectivePhase> all_reduce(ReductionAlgorithm algorithm, std::vector<int> gpus,
                                        const std::function<int(int)>& node_of, int servers = 1);

/// The phases of a collective over these GPUs, as all_reduce's. `ring` goes round all of them,
/// over all NICs that they have;
/// `hierarchical` all-gathers (and all-to-alls) in each node and between the GPUs of one place in
/// all nodes, so that every GPU's own NIC carries its part. The others are all-reduces.
std::vector<CollectivePhase> collective(Collective what, ReductionAlgorithm algorithm,
                                        std::vector<int> gpus,
                                        const std::function<int(int)>& node_of);

/// What one of these GPUs, a replica that waits for no other, exchanges with the parameter servers:
/// it pushes its gradients, then pulls the weights. The servers are as in all_reduce; a server
/// moves nothing to itself, so its phases may have no flows. None for one GPU.
std::vector<CollectivePhase> push_and_pull(std::vector<int> gpus, int member, int servers = 1);

/// What several groups do side by side: phase k of all of them starts together.
std::vector<CollectivePhase> side_by_side(const std::vector<std::vector<CollectivePhase>>& groups);
/// The all-reduces of several groups side by side.
std::vector<CollectivePhase> all_reduce(ReductionAlgorithm algorithm,
                                        const std::vector<std::vector<int>>& groups,
                                        const std::function<int(int)>& node_of, int servers = 1);

/// Seconds of a collective of `bytes` over these GPUs, round a ring, with the cluster's links for
/// itself.
double collective_alone_s(const Cluster& cluster, Collective what, const std::vector<int>& gpus,
                          double bytes);

/// Seconds of an all-reduce of `bytes` in each of these groups of GPUs, side by side, with the
/// cluster's links for themselves.
double all_reduce_s(const Cluster& cluster, const std::vector<std::vector<int>>& groups,
                    double bytes, const ReductionOptions& options = {});
inline double all_reduce_s(const Cluster& cluster, const std::vector<int>& gpus, double bytes,
                           const ReductionOptions& options = {}) {
  return all_reduce_s(cluster, std::vector<std::vector<int>>{gpus}, bytes, options);
}

}  // namespace penstock
