// SPDX-License-Identifier: Apache-2.0
#include "models/collectives.hpp"

#include "models/collective_shapes.hpp"
#include "models/sharing.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {

std::vector<std::vector<int>> nodes_of(const std::vector<int>& gpus, const NodeOf& node_of) {
  std::map<int, std::vector<int>> by_node;
  for (const int gpu : gpus) by_node[node_of(gpu)].push_back(gpu);
  std::vector<std::vector<int>> nodes;
  for (auto& [node, members] : by_node) nodes.push_back(std::move(members));
  return nodes;
}

bool has_rails(const std::vector<std::vector<int>>& nodes) {
  const std::size_t local = nodes.front().size();
  return nodes.size() > 1 && local > 1 &&
         std::ranges::all_of(nodes, [&](const auto& node) { return node.size() == local; });
}

std::vector<std::vector<int>> rails_of(const std::vector<std::vector<int>>& nodes) {
  std::vector<std::vector<int>> rails(nodes.front().size());
  for (const std::vector<int>& node : nodes)
    for (std::size_t i = 0; i < node.size(); ++i) rails[i].push_back(node[i]);
  return rails;
}

namespace {

using Gpus = std::vector<int>;

/// Every GPU sends `share` of the bytes to the next one.
void add_ring(CollectivePhase& phase, const Gpus& gpus, double share, int steps) {
  if (gpus.size() < 2) return;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    phase.flows.push_back({gpus[i], gpus[(i + 1) % gpus.size()], share});
  phase.steps = std::max(phase.steps, steps);
}

/// All members of a node, from the one at place `enter` to the one at `leave`.
void go_through(const Gpus& node, std::size_t enter, std::size_t leave, Gpus& ring) {
  const std::size_t local = node.size();
  const std::size_t step = (enter + 1) % local == leave ? local - 1 : 1;
  for (std::size_t i = 0, at = enter; i < local; ++i, at = (at + step) % local)
    if (at != leave) ring.push_back(node[at]);
  ring.push_back(node[leave]);
}

/// The order of the ring that begins at the GPU of this place in the first node.
Gpus ring_through(const std::vector<Gpus>& nodes, std::size_t ring) {
  const std::size_t local = nodes.front().size();
  // Where it enters node k: here and there in turn, and a third place before an odd end.
  const auto place = [&](std::size_t k) {
    const bool odd_end = nodes.size() % 2 == 1 && k + 1 == nodes.size();
    return (ring + (k == nodes.size() ? 0 : odd_end && local > 2 ? 2 : k % 2)) % local;
  };
  Gpus order;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const std::size_t enter = place(k), leave = place(k + 1);
    go_through(nodes[k], enter, leave == enter ? (enter + 1) % local : leave, order);
  }
  return order;
}

/// Reduce-scatter or all-gather of `share` of the bytes: (n-1)/n over every edge, n-1 steps.
void add_half_ring(CollectivePhase& phase, const Gpus& gpus, double share) {
  const auto n = static_cast<double>(gpus.size());
  add_ring(phase, gpus, share * (n - 1) / n, static_cast<int>(gpus.size()) - 1);
}

void add_full_ring(CollectivePhase& phase, const Gpus& gpus, double share) {
  const auto n = static_cast<double>(gpus.size());
  add_ring(phase, gpus, share * 2 * (n - 1) / n, 2 * (static_cast<int>(gpus.size()) - 1));
}

/// `rounds` times n-1 steps round these GPUs: an all-reduce goes twice.
CollectivePhase round_all(const Gpus& gpus, const NodeOf& node_of, int rounds) {
  const int steps = rounds * (static_cast<int>(gpus.size()) - 1);
  const double share = steps / static_cast<double>(gpus.size());
  const std::vector<Gpus> orders = ring_orders(gpus, node_of);
  CollectivePhase phase;
  if (orders.size() == 1) {
    add_ring(phase, gpus, share, steps);
    return phase;
  }
  std::map<std::pair<int, int>, int> rings_over;
  for (const Gpus& order : orders)
    for (std::size_t i = 0; i < order.size(); ++i)
      ++rings_over[{order[i], order[(i + 1) % order.size()]}];
  for (const auto& [edge, rings] : rings_over)
    phase.flows.push_back(
        {edge.first, edge.second, share * rings / static_cast<double>(orders.size())});
  phase.steps = steps;
  return phase;
}

/// Returns the one phase of what these members do by a library.
std::vector<CollectivePhase> by_library(CollectivePhase phase, Collective what, const Gpus& gpus) {
  phase.what = what;
  phase.members = static_cast<int>(gpus.size());
  return {std::move(phase)};
}

std::vector<CollectivePhase> ring(const Gpus& gpus, const NodeOf& node_of) {
  return by_library(round_all(gpus, node_of, 2), Collective::all_reduce, gpus);
}

/// Everything to the first GPU of the list along the chain, or back.
void add_chain(CollectivePhase& phase, const Gpus& gpus, bool to_first) {
  for (std::size_t i = 0; i + 1 < gpus.size(); ++i) {
    if (to_first) {
      phase.flows.push_back({gpus[i + 1], gpus[i], 1});
    } else {
      phase.flows.push_back({gpus[i], gpus[i + 1], 1});
    }
  }
  phase.steps = std::max(phase.steps, static_cast<int>(gpus.size()) - 1);
}

/// Nodes with different numbers of members: gather on the first GPU of each, ring over these.
std::vector<CollectivePhase> leaders(const std::vector<Gpus>& nodes) {
  std::vector<CollectivePhase> phases(3);
  Gpus firsts;
  for (const Gpus& node : nodes) {
    add_chain(phases[0], node, true);
    add_chain(phases[2], node, false);
    firsts.push_back(node.front());
  }
  add_full_ring(phases[1], firsts, 1);
  return phases;
}

std::vector<CollectivePhase> hierarchical(const Gpus& gpus, const NodeOf& node_of) {
  const std::vector<Gpus> nodes = nodes_of(gpus, node_of);
  if (nodes.size() == 1 || nodes.size() == gpus.size()) return ring(gpus, node_of);
  if (!has_rails(nodes)) return leaders(nodes);
  std::vector<CollectivePhase> phases(3);
  for (const Gpus& node : nodes) {
    add_half_ring(phases[0], node, 1);
    add_half_ring(phases[2], node, 1);
  }
  for (const Gpus& rail : rails_of(nodes))
    add_full_ring(phases[1], rail, 1.0 / static_cast<double>(nodes.front().size()));
  return phases;
}

/// Between nodes what each GPU has or will have; in each node the parts of all.
std::vector<CollectivePhase> hierarchical_gather(const std::vector<Gpus>& nodes, bool scatter) {
  std::vector<CollectivePhase> phases(2);
  for (const Gpus& rail : rails_of(nodes))
    add_half_ring(phases[scatter ? 1 : 0], rail, 1.0 / static_cast<double>(nodes.front().size()));
  for (const Gpus& node : nodes) add_half_ring(phases[scatter ? 0 : 1], node, 1);
  return phases;
}

/// Everybody sends `share` of the bytes to each of the others.
void add_to_each(CollectivePhase& phase, const Gpus& gpus, double share) {
  if (gpus.size() < 2) return;
  for (const int from : gpus)
    for (const int to : gpus)
      if (from != to) phase.flows.push_back({from, to, share});
  phase.steps = 1;
}

/// Everybody sends its part of what it has to each of the others.
void add_all_to_all(CollectivePhase& phase, const Gpus& gpus) {
  add_to_each(phase, gpus, 1 / static_cast<double>(gpus.size()));
}

/// In each node to the GPU of the receiver's place, then along the rails.
std::vector<CollectivePhase> hierarchical_all_to_all(const std::vector<Gpus>& nodes) {
  std::vector<CollectivePhase> phases(2);
  for (const Gpus& node : nodes) add_all_to_all(phases[0], node);
  for (const Gpus& rail : rails_of(nodes)) add_all_to_all(phases[1], rail);
  return phases;
}

/// Returns with which probability an expert of a token is among this share of all.
double visits(const TokenRouting& routing, double share) {
  const double chosen = std::min(1.0, share * routing.parts);  // of a part, if parts lie in nodes
  const double part_of = routing.parts > 1 && share * routing.parts <= 1 + 1e-9
                             ? static_cast<double>(routing.parts_per_token) / routing.parts
                             : 1;
  const double alone = part_of < 1 ? chosen / routing.parts_per_token : share;
  return part_of * (1 - std::pow(1 - alone, routing.per_token));
}

/// Everybody sends each token once to each node that has experts of it, to the GPU of its own place
/// there, which sends it on, once to each other GPU that has experts of it.
std::vector<CollectivePhase> once_per_node(const std::vector<Gpus>& nodes,
                                           const TokenRouting& routing) {
  CollectivePhase phase{{}, 1};
  std::size_t all = 0;
  for (const Gpus& node : nodes) all += node.size();
  const double each = 1 / static_cast<double>(all);
  const double copy = visits(routing, each) / routing.per_token;  // for another GPU of the node
  for (const Gpus& to : nodes) {
    const auto members = static_cast<double>(to.size());
    const double for_node = visits(routing, members * each) / routing.per_token;
    std::vector<double> arrived(to.size(), copy);
    for (const Gpus& from : nodes) {
      if (&from == &to) continue;
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::size_t place = i % to.size();
        phase.flows.push_back({from[i], to[place], for_node});
        arrived[place] += copy;
      }
    }
    for (std::size_t i = 0; i < to.size(); ++i)
      for (std::size_t j = 0; j < to.size(); ++j)
        if (i != j) phase.flows.push_back({to[i], to[j], arrived[i]});
  }
  if (nodes.size() > 1) return {phase};
  // Within one node the kernels' multiprocessors may be slower than its links.
  if (routing.sms > 0 && routing.sm_bytes_per_s > 0)
    phase.least_s_per_byte =
        copy * static_cast<double>(all - 1) / (routing.sms * routing.sm_bytes_per_s);
  return by_library(std::move(phase), Collective::all_to_all, nodes.front());
}

/// Parent of each rank in a binary tree whose leaves are the odd ranks; -1 for the root, rank 0.
std::vector<int> binary_tree(int n) {
  std::vector<int> parent(static_cast<std::size_t>(n), -1);
  // A rank's lowest set bit is its height; its parent clears it and sets the next one (NCCL's).
  for (int r = 1; r < n; ++r) {
    const int bit = r & -r;
    int up = (r ^ bit) | (bit << 1);
    if (up >= n) up = r ^ bit;
    parent[static_cast<std::size_t>(r)] = up;
  }
  return parent;
}

std::vector<CollectivePhase> tree(const Gpus& gpus) {
  CollectivePhase phase;
  for (const auto& edges : binary_trees(gpus)) {
    for (const auto& [child, parent] : edges) {
      phase.flows.push_back({child, parent, 0.5});
      phase.flows.push_back({parent, child, 0.5});
    }
  }
  int height = 0;
  for (std::size_t reached = 1; reached < gpus.size(); reached *= 2) ++height;
  phase.steps = 2 * height;
  return {phase};
}

/// All gradients of everybody to everybody.
std::vector<CollectivePhase> everything_to_everybody(const Gpus& gpus) {
  CollectivePhase phase;
  add_to_each(phase, gpus, 1);
  return {phase};
}

std::vector<CollectivePhase> server(const Gpus& gpus, const Gpus& members, int servers) {
  CollectivePhase push, pull;
  const auto parts = std::clamp<std::size_t>(static_cast<std::size_t>(servers), 1, gpus.size());
  const double share = 1.0 / static_cast<double>(parts);
  for (std::size_t s = 0; s < parts; ++s) {
    for (const int gpu : members) {
      if (gpu == gpus[s]) continue;
      push.flows.push_back({gpu, gpus[s], share});
      pull.flows.push_back({gpus[s], gpu, share});
    }
  }
  push.steps = pull.steps = 1;
  return {push, pull};
}

}  // namespace

std::vector<std::vector<int>> ring_orders(const std::vector<int>& gpus, const NodeOf& node_of) {
  const std::vector<Gpus> nodes = nodes_of(gpus, node_of);
  if (!has_rails(nodes)) return {gpus};
  std::vector<Gpus> orders;
  for (std::size_t ring = 0; ring < nodes.front().size(); ++ring)
    orders.push_back(ring_through(nodes, ring));
  return orders;
}

std::array<std::vector<TreeEdge>, 2> binary_trees(const std::vector<int>& gpus) {
  const int n = static_cast<int>(gpus.size());
  const std::vector<int> parent = binary_tree(n);
  std::array<std::vector<TreeEdge>, 2> trees;
  for (const bool second : {false, true}) {
    // Mirrored, or with an odd number shifted.
    const auto gpu = [&](int r) {
      const int at = !second ? r : n % 2 == 0 ? n - 1 - r : (r + 1) % n;
      return gpus[static_cast<std::size_t>(at)];
    };
    for (int height = 1; height < n; height *= 2)
      for (int r = height; r < n; r += 2 * height)
        trees[second ? 1 : 0].push_back({gpu(r), gpu(parent[static_cast<std::size_t>(r)])});
  }
  return trees;
}

namespace {

std::vector<CollectivePhase> all_reduce(const Exchange& exchange, const Gpus& gpus,
                                        const NodeOf& node_of) {
  switch (exchange.algorithm) {
    case ReductionAlgorithm::ring: return ring(gpus, node_of);
    case ReductionAlgorithm::hierarchical: return hierarchical(gpus, node_of);
    case ReductionAlgorithm::tree: return tree(gpus);
    case ReductionAlgorithm::server: return server(gpus, gpus, exchange.servers);
    case ReductionAlgorithm::all_to_all: return everything_to_everybody(gpus);
  }
  return {};
}

/// How often a ring goes round; 0: it is none.
int rounds_of(Collective what) {
  return what == Collective::all_reduce ? 2 : what == Collective::all_to_all ? 0 : 1;
}

}  // namespace

bool flows_alike(Collective a, Collective b) { return rounds_of(a) == rounds_of(b); }

std::vector<CollectivePhase> phases_of(const Exchange& exchange, std::vector<int> gpus,
                                       const NodeOf& node_of) {
  if (gpus.size() < 2) return {};
  std::ranges::sort(gpus);  // neighbours in the ring are neighbours in the cluster
  if (exchange.what == Collective::all_reduce) return all_reduce(exchange, gpus, node_of);
  const std::vector<Gpus> nodes = nodes_of(gpus, node_of);
  const bool rails = exchange.algorithm == ReductionAlgorithm::hierarchical && has_rails(nodes);
  const int rounds = rounds_of(exchange.what);
  if (rounds == 0 && exchange.routing.once_per_node) return once_per_node(nodes, exchange.routing);
  if (rails && rounds == 0) return hierarchical_all_to_all(nodes);
  if (rails) return hierarchical_gather(nodes, exchange.what == Collective::reduce_scatter);
  if (rounds > 0) return by_library(round_all(gpus, node_of, rounds), exchange.what, gpus);
  CollectivePhase phase;
  add_all_to_all(phase, gpus);
  return by_library(std::move(phase), exchange.what, gpus);
}

std::vector<CollectivePhase> phases_of(const Exchange& exchange, const GpuGroups& groups,
                                       const NodeOf& node_of) {
  std::vector<std::vector<CollectivePhase>> phases;
  for (const Gpus& gpus : groups) phases.push_back(phases_of(exchange, gpus, node_of));
  return side_by_side(phases);
}

GpuGroups cut_into(const GpuGroups& groups, int size) {
  GpuGroups cut;
  for (const Gpus& group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (i % static_cast<std::size_t>(size) == 0) cut.emplace_back();
      cut.back().push_back(group[i]);
    }
  }
  return cut;
}

GpuGroups across_cuts(const GpuGroups& groups, int size) {
  GpuGroups across;
  for (const Gpus& group : groups) {
    const std::size_t first = across.size();
    across.resize(first + static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < group.size(); ++i)
      across[first + i % static_cast<std::size_t>(size)].push_back(group[i]);
  }
  return across;
}

std::vector<CollectivePhase> reduction_phases(const ReductionOptions& options,
                                              const GpuGroups& groups, const NodeOf& node_of) {
  const Sharding& sharding = options.sharding;
  const bool scatters =
      sharding.sharded() && !sharding.reduces_each_backward() && !sharding.gathers_in_reduction();
  if (!scatters && !sharding.reduces_each_backward())
    return phases_of(options.exchange(), groups, node_of);
  std::vector<CollectivePhase> phases, across;
  if (scatters)
    phases = phases_of({Collective::reduce_scatter, options.algorithm},
                       cut_into(groups, sharding.group), node_of);
  if (sharding.hybrid())
    across = phases_of(options.exchange(), across_cuts(groups, sharding.group), node_of);
  for (CollectivePhase& phase : across) {
    for (CollectiveFlow& flow : phase.flows)
      if (scatters) flow.share /= sharding.group;
    phases.push_back(std::move(phase));
  }
  return phases;
}

std::vector<CollectivePhase> reduction_phases(const ReductionOptions& options,
                                              const Placement& placement, const Mesh& mesh,
                                              std::uint32_t position, const NodeOf& node_of) {
  std::vector<CollectivePhase> phases =
      reduction_phases(options, reduction_groups(placement, mesh, position), node_of);
  const double expert_share =
      position < options.expert_share.size() ? options.expert_share[position] : 0;
  if (expert_share <= 0) return phases;
  const GpuGroups of_experts = expert_reduction_groups(placement, mesh, position);
  ReductionOptions experts = options;
  experts.sharding.group = experts.sharding.sharers = static_cast<int>(of_experts.front().size());
  std::vector<CollectivePhase> more = reduction_phases(experts, of_experts, node_of);
  const auto scale = [](std::vector<CollectivePhase>& all, double share) {
    for (CollectivePhase& phase : all)
      for (CollectiveFlow& flow : phase.flows) flow.share *= share;
  };
  scale(phases, 1 - expert_share);
  scale(more, expert_share);
  phases.insert(phases.end(), more.begin(), more.end());
  return phases;
}

std::vector<CollectivePhase> push_and_pull(std::vector<int> gpus, int member, int servers) {
  if (gpus.size() < 2) return {};
  std::ranges::sort(gpus);
  return server(gpus, {member}, servers);
}

std::vector<CollectivePhase> side_by_side(const std::vector<std::vector<CollectivePhase>>& groups) {
  std::vector<CollectivePhase> together;
  for (const std::vector<CollectivePhase>& own : groups) {
    together.resize(std::max(together.size(), own.size()));
    for (std::size_t i = 0; i < own.size(); ++i) {
      auto& flows = together[i].flows;
      flows.insert(flows.end(), own[i].flows.begin(), own[i].flows.end());
      together[i].steps = std::max(together[i].steps, own[i].steps);
      together[i].least_s_per_byte =
          std::max(together[i].least_s_per_byte, own[i].least_s_per_byte);
      const bool first = flows.size() == own[i].flows.size();
      const bool alike = together[i].members == own[i].members && together[i].what == own[i].what;
      if (first) together[i].what = own[i].what;
      together[i].members = first || alike ? own[i].members : 0;
    }
  }
  return together;
}

Transfer::Phase routed(const std::vector<CollectiveFlow>& flows, bool backward, Network& network) {
  Transfer::Phase phase;
  for (const CollectiveFlow& flow : flows) {
    Route route = network.route(flow.from, flow.to, backward);
    phase.latency_s = std::max(phase.latency_s, route.latency_s);
    phase.flows.push_back({std::move(route.links), flow.share});
  }
  return phase;
}

namespace {

/// Makes a phase take so long: its flows occupy the links for as long as its bytes take, whose
/// number stays what it is.
void set_pace(double s_per_byte, Transfer::Phase& priced) {
  const double longer = s_per_byte / priced.s_per_byte;
  for (LinkFlow& flow : priced.flows) flow.bytes *= longer;
  priced.pace *= longer;
  priced.s_per_byte = s_per_byte;
}

/// Takes what was measured of a phase within nodes.
void take_measured(const CollectivePhase& phase, Transfer::Phase& priced, const Network& network) {
  if (phase.members < 2 || phase.flows.empty() || priced.s_per_byte == 0) return;
  std::optional<CollectivePrice> measured;
  for (const CollectiveFlow& flow : phase.flows) {
    if (!network.same_node(flow.from, flow.to)) return;
    if (measured && !network.has_unlike_nodes()) continue;
    const auto here = network.measured(phase.what, phase.members, flow.from);
    if (!here) return;
    if (!measured || here->s_per_byte > measured->s_per_byte) measured = here;  // the slowest
  }
  // In an all-to-all each GPU has an equal part for each; tokens that go once are fewer bytes.
  const double parts =
      phase.what == Collective::all_to_all ? phase.flows.front().share * phase.members : 1;
  set_pace(parts * measured->s_per_byte, priced);
  priced.latency_s = measured->call_s;
  priced.join = measured->join;
}

}  // namespace

std::vector<Transfer::Phase> priced(const std::vector<CollectivePhase>& phases, Network& network) {
  std::vector<Transfer::Phase> out;
  for (const CollectivePhase& phase : phases) {
    Transfer::Phase& one = out.emplace_back(routed(phase.flows, true, network));
    one.latency_s *= phase.steps;
    one.s_per_byte = shared_flows_s(one.flows, network.links());
    take_measured(phase, one, network);
    if (one.s_per_byte > 0 && one.s_per_byte < phase.least_s_per_byte)
      set_pace(phase.least_s_per_byte, one);
  }
  return out;
}

Transfer::Phase host_copies(const std::vector<int>& gpus, bool out, Network& network) {
  Transfer::Phase phase;
  for (const int gpu : gpus) {
    Route route = network.host_route(gpu, out);
    phase.latency_s = std::max(phase.latency_s, route.latency_s);
    phase.flows.push_back({std::move(route.links), 1});
  }
  phase.s_per_byte = shared_flows_s(phase.flows, network.links());
  return phase;
}

CollectivePrice price(const Exchange& exchange, const GpuGroups& groups, const Cluster& cluster) {
  return price(phases_of(exchange, groups, [&](int gpu) { return cluster.node_of(gpu); }), cluster);
}

CollectivePrice price(const std::vector<CollectivePhase>& phases, const Cluster& cluster) {
  Network network(cluster);
  Transfer whole;
  whole.phases = priced(phases, network);
  return whole.price();
}

double least_all_reduce_s_per_byte(const Cluster& cluster, int members, int apart) {
  if (members < 2) return 0;
  double inside_s = 1 / (cluster.link ? *cluster.link : cluster.intra).bytes_per_s;
  for (const MeasuredCollective& one : cluster.measured)
    if (one.what == Collective::all_reduce)
      inside_s = std::min(inside_s, one.price.s_per_byte * one.ranks / (2.0 * (one.ranks - 1)));
  const bool one_kind = cluster.link || cluster.nodes == 1;
  const double across_s = one_kind ? inside_s : 1 / cluster.inter.bytes_per_s;
  const double within_s = std::min(inside_s, across_s);  // who fits into a node may be in several
  // Over nodes with several members each as many rings share the bytes: each member sends one
  // ring's over its NIC and the others' within the node.
  double least_s = across_s;
  for (int rings = 2; rings <= std::min(cluster.devices_per_node / apart, members); ++rings)
    least_s = std::min(least_s, std::max(across_s, (rings - 1) * within_s) / rings);
  if (members * apart <= cluster.devices_per_node) least_s = std::min(least_s, within_s);
  return 2.0 * (members - 1) / members * least_s;
}

}  // namespace penstock
