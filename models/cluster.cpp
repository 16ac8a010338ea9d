#include "models/cluster.hpp"

#include "models/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

double all_reduce_s(const Cluster& cluster, const std::vector<int>& gpus, double bytes) {
  const bool one_node = std::ranges::all_of(
      gpus, [&](int gpu) { return cluster.node_of(gpu) == cluster.node_of(gpus.front()); });
  const LinkSpec& link = cluster.link ? *cluster.link : one_node ? cluster.intra : cluster.inter;
  return ring_all_reduce_s(static_cast<int>(gpus.size()), bytes, link.latency_s, link.bytes_per_s);
}

int Network::link(const std::string& name, const LinkSpec& spec) {
  const auto [it, added] = index_.try_emplace(name, static_cast<int>(links_.size()));
  if (added) links_.push_back({name, spec.bytes_per_s, spec.fifo});
  return it->second;
}

Route Network::route(int from, int to, bool backward) {
  const Cluster& c = *cluster_;
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
