#include "models/cluster.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace penstock {
namespace {

using EdgesAt = std::map<int, std::vector<int>>;

EdgesAt edges_by_vertex(const NetworkGraph& graph) {
  EdgesAt edges_at;
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    edges_at[graph.edges[e].from].push_back(static_cast<int>(e));
    edges_at[graph.edges[e].to].push_back(static_cast<int>(e));
  }
  return edges_at;
}

/// By vertex, the edge over which a breadth-first search from `from` came there; -1 for `from`.
std::map<int, int> search(const NetworkGraph& graph, const EdgesAt& edges_at, int from) {
  std::map<int, int> came_by{{from, -1}};
  std::deque<int> next{from};
  for (; !next.empty(); next.pop_front()) {
    const int vertex = next.front();
    const auto found = edges_at.find(vertex);
    if (found == edges_at.end()) continue;
    for (const int e : found->second) {
      const auto& edge = graph.edges[static_cast<std::size_t>(e)];
      const int other = edge.from == vertex ? edge.to : edge.from;
      if (came_by.try_emplace(other, e).second) next.push_back(other);
    }
  }
  return came_by;
}

}  // namespace

std::optional<std::pair<int, int>> unjoined_devices(const Cluster& cluster) {
  if (!cluster.network) return std::nullopt;
  const auto reached = search(*cluster.network, edges_by_vertex(*cluster.network), 0);
  for (int device = 0; device < cluster.devices(); ++device) {
    if (!reached.contains(device)) return std::pair(0, device);
  }
  return std::nullopt;
}

Network::Network(const Cluster& cluster) : cluster_(&cluster) {
  if (cluster.network) edges_at_ = edges_by_vertex(*cluster.network);
}

int Network::link(const std::string& name, const LinkSpec& spec) {
  const auto [it, added] = index_.try_emplace(name, static_cast<int>(links_.size()));
  if (added) links_.push_back({name, spec.bytes_per_s, spec.fifo});
  return it->second;
}

std::string Network::vertex_name(int vertex) const {
  const int devices = cluster_->devices();
  if (vertex < devices) return std::to_string(vertex);
  return cluster_->network->switches[static_cast<std::size_t>(vertex - devices)];
}

int Network::link_of(const NetworkGraph::Edge& edge, bool back) {
  const std::string from = vertex_name(edge.from), to = vertex_name(edge.to);
  if (!edge.link.full_duplex) return link(from + "--" + to, edge.link);
  if (!back) return link(from + "->" + to, edge.link);
  LinkSpec reverse = edge.link;
  reverse.bytes_per_s = edge.bytes_per_s_back;
  return link(to + "->" + from, reverse);
}

Route Network::shortest(int from, int to) {
  const NetworkGraph& graph = *cluster_->network;
  const auto came_by = search(graph, edges_at_, from);
  invariant(came_by.contains(to), "a message between devices that are not joined");
  Route route;
  for (int at = to; at != from;) {
    const auto& edge = graph.edges[static_cast<std::size_t>(came_by.at(at))];
    const bool back = edge.from == at;
    route.links.push_back(link_of(edge, back));
    route.latency_s += edge.link.latency_s;
    at = back ? edge.to : edge.from;
  }
  std::ranges::reverse(route.links);
  return route;
}

Route Network::route(int from, int to, bool backward) {
  const Cluster& c = *cluster_;
  if (c.network) return shortest(from, to);
  if (c.link) {
    const auto name = c.link->full_duplex
                          ? fmt::format("{}->{} {}", from, to, backward ? "B" : "F")
                          : fmt::format("{}--{}", std::min(from, to), std::max(from, to));
    return {{link(name, *c.link)}, c.link->latency_s};
  }
  const int from_node = c.node_of(from);
  const int to_node = c.node_of(to);
  if (from_node == to_node && c.attachment == Attachment::pairs) {
    const auto name = c.intra.full_duplex
                          ? fmt::format("gpu{}->gpu{}", from, to)
                          : fmt::format("gpu{}--gpu{}", std::min(from, to), std::max(from, to));
    return {{link(name, c.intra)}, c.intra.latency_s};
  }
  const auto port = [&](const std::string& what, const LinkSpec& spec, bool out) {
    return link(spec.full_duplex ? what + (out ? " out" : " in") : what, spec);
  };
  if (from_node == to_node) {
    return {{port(fmt::format("gpu{}", from), c.intra, true),
             port(fmt::format("gpu{}", to), c.intra, false)},
            c.intra.latency_s};
  }
  const auto nic = [&](int gpu) {
    const int local = gpu % c.devices_per_node;
    return fmt::format("node{} nic{}", c.node_of(gpu),
                       local * c.nics_per_node / c.devices_per_node);
  };
  return {{port(nic(from), c.inter, true), port(nic(to), c.inter, false)}, c.inter.latency_s};
}

}  // namespace penstock
