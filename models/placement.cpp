// SPDX-License-Identifier: Apache-2.0
#include "models/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace penstock {
namespace {

struct Member {
  int replica, position;
};

/// The replicas of positions in the order of their ranks.
std::vector<Member> in_rank_order(const PlacementRequest& request) {
  std::vector<Member> members;
  const int widest = request.widths.empty() ? 0 : std::ranges::max(request.widths);
  const auto add = [&](int r, int s) {
    if (r < request.widths[static_cast<std::size_t>(s)]) members.push_back({r, s});
  };
  if (request.pipeline_first) {
    for (int r = 0; r < widest; ++r)
      for (int s = 0; s < request.depth(); ++s) add(r, s);
  } else {
    for (int s = 0; s < request.depth(); ++s)
      for (int r = 0; r < widest; ++r) add(r, s);
  }
  return members;
}

/// The nodes of a cluster with what they still have free, in units of the GPUs of a replica.
class Rooms {
 public:
  Rooms(const Cluster& cluster, int unit) : unit_(unit) {
    for (int n = 0; n < cluster.nodes; ++n) {
      const NodePlace node = cluster.node(n);
      nodes_.push_back({node.first_gpu, node.spec.devices_per_node / unit, 0});
    }
  }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  bool used(int node) const { return at(node).taken > 0; }
  int left(int node) const { return at(node).units - at(node).taken; }
  int units() const {
    return std::accumulate(nodes_.begin(), nodes_.end(), 0,
                           [](int sum, const Room& room) { return sum + room.units; });
  }
  /// The first GPU of a unit of this node.
  int take_unit(int node) {
    Room& room = nodes_[static_cast<std::size_t>(node)];
    return room.first_gpu + unit_ * room.taken++;
  }

 private:
  struct Room {
    int first_gpu, units, taken;
  };
  const Room& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }

  int unit_;
  std::vector<Room> nodes_;
};

/// Takes `count` units, node after node in this order.
void fill(Rooms& rooms, const std::vector<int>& order, int count, std::vector<int>& out) {
  for (const int node : order) {
    for (; count > 0 && rooms.left(node) > 0; --count) out.push_back(rooms.take_unit(node));
  }
}

/// Takes `count` units, one of each of these nodes at a time; returns how many were not there.
int deal(Rooms& rooms, const std::vector<int>& nodes, int count, std::vector<int>& out) {
  for (bool more = true; more && count > 0;) {
    more = false;
    for (const int node : nodes) {
      if (count == 0 || rooms.left(node) == 0) continue;
      out.push_back(rooms.take_unit(node));
      --count;
      more = true;
    }
  }
  return count;
}

/// First GPUs of the units of one stage.
std::vector<int> stage_units(Rooms& rooms, PlacementPolicy policy, int count) {
  std::vector<int> fresh, used, units;
  for (int n = 0; n < rooms.nodes(); ++n) (rooms.used(n) ? used : fresh).push_back(n);
  if (policy == PlacementPolicy::scatter_first) {
    const int missing = deal(rooms, used, count, units);
    deal(rooms, fresh, missing, units);
    return units;
  }
  const bool fresh_first = policy == PlacementPolicy::fresh_first;
  std::vector<int> order = fresh_first ? fresh : used;
  const auto& rest = fresh_first ? used : fresh;
  order.insert(order.end(), rest.begin(), rest.end());
  fill(rooms, order, count, units);
  return units;
}

/// First GPUs of the members' units by a policy that looks at nodes.
std::vector<int> units_by_policy(const Cluster& cluster, const PlacementRequest& request,
                                 const std::vector<Member>& members) {
  Rooms rooms(cluster, request.replica_gpus);
  std::vector<int> units;
  if (request.policy == PlacementPolicy::round_robin) {
    std::vector<int> all(static_cast<std::size_t>(rooms.nodes()));
    std::iota(all.begin(), all.end(), 0);
    deal(rooms, all, static_cast<int>(members.size()), units);
    return units;
  }
  std::vector<std::vector<int>> by_stage;
  for (const int width : request.widths)
    by_stage.push_back(stage_units(rooms, request.policy, width));
  for (const Member& m : members)
    units.push_back(
        by_stage[static_cast<std::size_t>(m.position)][static_cast<std::size_t>(m.replica)]);
  return units;
}

void refuse_list(const Cluster& cluster, const PlacementRequest& request,
                 std::vector<PlacementProblem>& problems) {
  std::set<int> seen;
  for (std::size_t i = 0; i < request.gpus.size(); ++i) {
    const int gpu = request.gpus[i];
    if (gpu < 0 || gpu >= cluster.devices()) {
      problems.push_back({static_cast<int>(i), fmt::format("no GPU {}: the cluster has 0 to {}",
                                                           gpu, cluster.devices() - 1)});
    } else if (!seen.insert(gpu).second) {
      problems.push_back({static_cast<int>(i), fmt::format("GPU {} is used twice", gpu)});
    }
  }
  if (static_cast<int>(request.gpus.size()) != request.ranks())
    problems.push_back({-1, fmt::format("{} GPUs are listed, the pipeline needs {}",
                                        request.gpus.size(), request.ranks())});
}

}  // namespace

int PlacementRequest::ranks() const {
  return std::accumulate(widths.begin(), widths.end(), 0) * replica_gpus;
}

std::vector<PlacementProblem> refuse_placement(const Cluster& cluster,
                                               const PlacementRequest& request) {
  std::vector<PlacementProblem> problems;
  if (!request.gpus.empty()) {
    refuse_list(cluster, request, problems);
    return problems;
  }
  if (request.ranks() > cluster.devices()) {
    problems.push_back({-1, fmt::format("the pipeline needs {} GPUs, the cluster has {}",
                                        request.ranks(), cluster.devices())});
  } else if (request.policy != PlacementPolicy::fill_node) {
    const int places = Rooms(cluster, request.replica_gpus).units();
    const int needed = request.ranks() / request.replica_gpus;
    if (places < needed)
      problems.push_back({-1, fmt::format("the nodes have places for {} groups of {} GPUs, "
                                          "the pipeline has {}",
                                          places, request.replica_gpus, needed)});
  }
  return problems;
}

std::vector<int> place(const Cluster& cluster, const PlacementRequest& request) {
  const auto members = in_rank_order(request);
  const auto t = static_cast<std::size_t>(request.replica_gpus);
  const auto depth = request.widths.size();
  std::vector<int> units;
  if (request.gpus.empty() && request.policy != PlacementPolicy::fill_node)
    units = units_by_policy(cluster, request, members);
  const auto gpu_of_rank = [&](std::size_t rank) {
    if (!request.gpus.empty()) return request.gpus[rank];
    if (units.empty()) return static_cast<int>(rank);
    return units[rank / t] + static_cast<int>(rank % t);
  };
  const int widest = request.widths.empty() ? 0 : std::ranges::max(request.widths);
  std::vector<int> gpus(static_cast<std::size_t>(widest) * depth * t, -1);
  for (std::size_t m = 0; m < members.size(); ++m) {
    const auto at = (static_cast<std::size_t>(members[m].replica) * depth +
                     static_cast<std::size_t>(members[m].position)) *
                    t;
    for (std::size_t i = 0; i < t; ++i) gpus[at + i] = gpu_of_rank(m * t + i);
  }
  return gpus;
}

}  // namespace penstock
