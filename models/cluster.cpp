#include "models/cluster.hpp"

#include <fmt/format.h>

namespace penstock {

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
