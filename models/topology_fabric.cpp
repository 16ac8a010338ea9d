// SPDX-License-Identifier: Apache-2.0
#include "models/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

void cross_rails(const FabricSpec& fabric, FabricEnd from, FabricEnd to, LinkPath& path) {
  if (!fabric.rails || from.nic == to.nic) return;  // the switch itself does not block
  path.port(fmt::format("rail{}", from.nic), fabric.link, true);
  path.port(fmt::format("rail{}", to.nic), fabric.link, false);
}

/// The subtrees that an end is in, from its leaf upwards.
std::vector<int> subtrees(const FabricSpec& fabric, FabricEnd end) {
  std::vector<int> numbers;
  for (const FatTreeLevel& level : fabric.levels) {
    const int below = numbers.empty() ? end.node : numbers.back();
    const int number = below / level.children;
    numbers.push_back(numbers.empty() && fabric.rails ? number * fabric.most_nics + end.nic
                                                      : number);
  }
  return numbers;
}

void cross_fat_tree(const FabricSpec& fabric, FabricEnd from, FabricEnd to, LinkPath& path) {
  const auto mine = subtrees(fabric, from), theirs = subtrees(fabric, to);
  std::size_t top = 0;  // levels to climb
  while (top < mine.size() && mine[top] != theirs[top]) ++top;
  std::int64_t d = fabric.rails ? to.node : std::int64_t{to.node} * fabric.most_nics + to.nic;
  std::vector<std::int64_t> up;
  std::vector<std::string>
      at;  // within its subtree, a switch is named by the uplinks that lead there
  for (std::size_t l = 0; l < top; ++l) {
    at.push_back(l == 0 ? "" : fmt::format("{}.{}", at.back(), up.back()));
    up.push_back(d % fabric.levels[l].uplinks);
    d /= fabric.levels[l].uplinks;
  }
  const auto name = [&](std::size_t l, int subtree) {
    const std::string kind = l == 0 ? "leaf" : l == 1 ? "pod" : fmt::format("level{} ", l + 1);
    return fmt::format("{}{}{} up{}", kind, subtree, at[l], up[l]);
  };
  for (std::size_t l = 0; l < top; ++l) path.port(name(l, mine[l]), fabric.levels[l].uplink, true);
  for (std::size_t l = top; l-- > 0;) path.port(name(l, theirs[l]), fabric.levels[l].uplink, false);
}

/// The router of group `from` that has the cable to group `to`: cables in the order of the other
/// groups, evenly over the routers.
int gateway(const FabricSpec& fabric, int from, int to) {
  const int cable = to < from ? to : to - 1;
  const int per_router = (fabric.groups - 2) / fabric.routers + 1;
  return from * fabric.routers + cable / per_router;
}

void cross_dragonfly(const FabricSpec& fabric, FabricEnd from, FabricEnd to, LinkPath& path) {
  const int source = from.node / fabric.nodes_per_router;
  const int destination = to.node / fabric.nodes_per_router;
  const int group = source / fabric.routers, other = destination / fabric.routers;
  const auto local = [&](int a, int b) {
    if (a != b) path.wire("router", a, b, fabric.link);
  };
  if (group == other) return local(source, destination);
  local(source, gateway(fabric, group, other));
  path.wire("group", group, other, fabric.global);
  local(gateway(fabric, other, group), destination);
}

void cross_torus(const FabricSpec& fabric, FabricEnd from, FabricEnd to, LinkPath& path) {
  int at = from.node;
  int stride = 1;
  for (const int size : fabric.shape) {
    const int target = to.node / stride % size;
    while (at / stride % size != target) {
      const int x = at / stride % size;
      const bool forth = 2 * ((target - x + size) % size) <= size;  // a tie goes forth
      const int next = at + ((x + (forth ? 1 : size - 1)) % size - x) * stride;
      path.wire("router", at, next, fabric.link);
      at = next;
    }
    stride *= size;
  }
}

}  // namespace

int FabricSpec::most_hops() const {
  switch (topology) {
    case Topology::one_switch: return rails ? 2 : 0;
    case Topology::fat_tree: return 2 * static_cast<int>(levels.size());
    case Topology::dragonfly: return 3;
    case Topology::torus:
      return std::accumulate(shape.begin(), shape.end(), 0,
                             [](int sum, int size) { return sum + size / 2; });
  }
  return 0;
}

void cross_fabric(const FabricSpec& fabric, FabricEnd from, FabricEnd to, LinkPath& path) {
  switch (fabric.topology) {
    case Topology::one_switch: return cross_rails(fabric, from, to, path);
    case Topology::fat_tree: return cross_fat_tree(fabric, from, to, path);
    case Topology::dragonfly: return cross_dragonfly(fabric, from, to, path);
    case Topology::torus: return cross_torus(fabric, from, to, path);
  }
}

}  // namespace penstock
