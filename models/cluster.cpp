// SPDX-License-Identifier: Apache-2.0
#include "models/cluster.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// Calls f with every link of a class that a cluster is described by.
template <typename C, typename F>
void each_link(C& cluster, LinkClass links, const F& f) {
  const bool within = links != LinkClass::between_nodes, between = links != LinkClass::within_nodes;
  const auto of_node = [&](auto& node) {
    if (within) f(node.intra);
    if (between) f(node.inter);
    if (!within || !node.pcie) return;
    f(node.pcie->link);
    f(node.pcie->uplink);
    f(node.pcie->host);
  };
  of_node(cluster);
  for (auto& group : cluster.groups) of_node(group.node);
  if (between) {
    for (auto& level : cluster.fabric.levels) f(level.uplink);
    f(cluster.fabric.link);
    f(cluster.fabric.global);
  }
  if (links != LinkClass::all) return;
  if (cluster.link) f(*cluster.link);
  if (!cluster.network) return;
  for (auto& edge : cluster.network->edges) f(edge.link);
}

/// Through the NICs of both GPUs; on rails, through two of one rail, with a step inside a node.
LinkPath between_nodes(const Cluster& cluster, const NodePlace& source, int from,
                       const NodePlace& destination, int to) {
  FabricEnd out{source.number, source.spec.nic_of(from)};
  FabricEnd in{destination.number, destination.spec.nic_of(to)};
  int sender = from, receiver = to;
  if (cluster.fabric.rails && cluster.fabric.cross_inside && out.nic != in.nic) {
    // Uneven nodes: a rail that the sending node lacks is changed to in the receiving one.
    if (in.nic < source.spec.nics_per_node) {
      out.nic = in.nic;
      sender = source.spec.first_gpu_of(in.nic);
    } else {
      in.nic = out.nic;
      receiver = destination.spec.first_gpu_of(out.nic);
    }
  }
  LinkPath path;
  if (sender != from) cross_node(source, from, sender, path);
  leave_node(source, sender, out.nic, path);
  cross_fabric(cluster.fabric, out, in, path);
  enter_node(destination, receiver, in.nic, path);
  if (receiver != to) cross_node(destination, receiver, to, path);
  return path;
}

}  // namespace

int Cluster::devices() const {
  if (groups.empty()) return nodes * devices_per_node;
  int sum = 0;
  for (const NodeGroup& group : groups) sum += group.nodes * group.node.devices_per_node;
  return sum;
}

int Cluster::node_of(int gpu) const {
  int first = 0;
  for (const NodeGroup& group : groups) {
    const int here = group.nodes * group.node.devices_per_node;
    if (gpu < here) return first + gpu / group.node.devices_per_node;
    gpu -= here;
    first += group.nodes;
  }
  return first + gpu / devices_per_node;
}

NodePlace Cluster::node(int number) const {
  int before = 0, gpus = 0;
  for (const NodeGroup& group : groups) {
    const int local = number - before;
    if (local < group.nodes)
      return {group.node, number, gpus + local * group.node.devices_per_node};
    before += group.nodes;
    gpus += group.nodes * group.node.devices_per_node;
  }
  return {*this, number, gpus + (number - before) * devices_per_node};
}

std::string device_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const NodeGroup& group : cluster.groups) {
    const std::string& name = group.node.device.name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names.empty() ? cluster.device.name : fmt::format("{}", fmt::join(names, ", "));
}

std::optional<std::pair<int, int>> unjoined_devices(const Cluster& cluster) {
  if (!cluster.network) return std::nullopt;
  GraphPaths paths(*cluster.network, cluster.devices());
  for (int device = 0; device < cluster.devices(); ++device) {
    if (!paths.joined(0, device)) return std::pair(0, device);
  }
  return std::nullopt;
}

void scale_bandwidth(Cluster& cluster, double factor, LinkClass links) {
  each_link(cluster, links, [&](LinkSpec& link) { link.bytes_per_s *= factor; });
  if (links != LinkClass::between_nodes) {
    const auto scale = [&](NodeSpec& node) {
      for (MeasuredCollective& one : node.measured) one.price.s_per_byte /= factor;
    };
    scale(cluster);
    for (NodeGroup& group : cluster.groups) scale(group.node);
  }
  if (links != LinkClass::all || !cluster.network) return;
  for (auto& edge : cluster.network->edges) edge.bytes_per_s_back *= factor;
}

void keep_free(Cluster& cluster, double headroom) {
  cluster.device.headroom = headroom;
  for (NodeGroup& group : cluster.groups) group.node.device.headroom = headroom;
}

LinkSpec slowest_route(const Cluster& cluster) {
  LinkSpec slowest;
  double latency_s = 0;
  each_link(cluster, LinkClass::all, [&](const LinkSpec& link) {
    latency_s += link.latency_s;
    slowest.bytes_per_s = std::min(slowest.bytes_per_s, link.bytes_per_s);
  });
  if (cluster.network) {
    for (const auto& edge : cluster.network->edges)
      slowest.bytes_per_s = std::min(slowest.bytes_per_s, edge.bytes_per_s_back);
  }
  // A route crosses the links of a graph once, those of the tiers of a node at both ends.
  slowest.latency_s = latency_s * (2 + cluster.fabric.most_hops());
  return slowest;
}

Network::Network(const Cluster& cluster) : cluster_(&cluster) {
  if (cluster.network) graph_.emplace(*cluster.network, cluster.devices());
}

LinkPath Network::path(int from, int to, bool backward) {
  const Cluster& c = *cluster_;
  if (graph_) return graph_->path(from, to);
  LinkPath path;
  if (c.link) {
    const auto kind = c.link->full_duplex ? (backward ? " B" : " F") : "";
    path.wire("", from, to, *c.link);
    path.links[0].name += kind;
    return path;
  }
  const NodePlace source = c.node(c.node_of(from));
  const NodePlace destination = c.node(c.node_of(to));
  const int a = from - source.first_gpu, b = to - destination.first_gpu;
  if (source.number != destination.number) return between_nodes(c, source, a, destination, b);
  cross_node(source, a, b, path);
  return path;
}

Route Network::route(int from, int to, bool backward) { return numbered(path(from, to, backward)); }

std::optional<CollectivePrice> Network::measured(Collective what, int ranks, int gpu) const {
  return measured_price(cluster_->node(cluster_->node_of(gpu)).spec.measured, what, ranks);
}

Route Network::host_route(int gpu, bool out) {
  const NodePlace node = cluster_->node(cluster_->node_of(gpu));
  LinkPath path;
  cross_to_host(node, gpu - node.first_gpu, out, path);
  return numbered(std::move(path));
}

Route Network::numbered(LinkPath found) {
  Route route;
  route.latency_s = found.latency_s;
  for (NetworkLink& link : found.links) {
    const auto [it, added] = index_.try_emplace(link.name, static_cast<int>(links_.size()));
    if (added) links_.push_back(std::move(link));
    route.links.push_back(it->second);
  }
  return route;
}

}  // namespace penstock
