// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "models/topology.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

std::string gpu_name(const NodePlace& node, int local) {
  return fmt::format("gpu{}", node.first_gpu + local);
}

int links_between(const NodeSpec& node, int a, int b) {
  for (const MeshLink& link : node.mesh) {
    if (std::minmax(link.from, link.to) == std::minmax(a, b)) return link.count;
  }
  return 0;
}

/// A place in a PCIe tree: a switch, or with -1 the socket itself.
struct PciePoint {
  int pcie_switch, socket;
};

int switches_of(const NodeSpec& node) {
  return (node.devices_per_node - 1) / node.pcie->devices_per_switch + 1;
}

PciePoint at_switch(const NodeSpec& node, int number) {
  return {number, number * node.pcie->sockets / switches_of(node)};
}

PciePoint point_of_gpu(const NodeSpec& node, int local) {
  return at_switch(node, local / node.pcie->devices_per_switch);
}

PciePoint point_of_nic(const NodeSpec& node, int nic) {
  if (node.nic_place == NicPlace::host) return {-1, nic * node.pcie->sockets / node.nics_per_node};
  return at_switch(node, nic * switches_of(node) / node.nics_per_node);
}

void cross_tree(const NodePlace& node, PciePoint from, PciePoint to, LinkPath& path) {
  const PcieTree& tree = *node.spec.pcie;
  if (from.pcie_switch == to.pcie_switch && from.pcie_switch >= 0) return;
  const auto uplink = [&](const PciePoint& point, bool out) {
    if (point.pcie_switch >= 0)
      path.port(fmt::format("node{} pcie{}", node.number, point.pcie_switch), tree.uplink, out);
  };
  uplink(from, true);
  if (from.socket != to.socket)
    path.wire(fmt::format("node{} socket", node.number), from.socket, to.socket, tree.host);
  uplink(to, false);
}

void gpu_to_tree(const NodePlace& node, int local, bool out, LinkPath& path) {
  path.port(gpu_name(node, local) + " pcie", node.spec.pcie->link, out);
}

void cross_pcie(const NodePlace& node, int from, int to, LinkPath& path) {
  gpu_to_tree(node, from, true, path);
  cross_tree(node, point_of_gpu(node.spec, from), point_of_gpu(node.spec, to), path);
  gpu_to_tree(node, to, false, path);
}

void nic_port(const NodePlace& node, int nic, bool out, LinkPath& path) {
  LinkSpec half = node.spec.inter;
  half.latency_s /= 2;
  path.port(fmt::format("node{} nic{}", node.number, nic), half, out);
}

}  // namespace

void LinkPath::port(const std::string& name, const LinkSpec& spec, bool out) {
  links.push_back(
      {spec.full_duplex ? name + (out ? " out" : " in") : name, spec.bytes_per_s, spec.fifo});
  latency_s += spec.latency_s;
}

void LinkPath::wire(const std::string& from, const std::string& to, const LinkSpec& spec) {
  links.push_back({from + (spec.full_duplex ? "->" : "--") + to, spec.bytes_per_s, spec.fifo});
  latency_s += spec.latency_s;
}

void LinkPath::wire(const std::string& kind, int from, int to, const LinkSpec& spec) {
  const auto [low, high] = std::minmax(from, to);
  const auto end = [&](int number) { return kind + std::to_string(number); };
  spec.full_duplex ? wire(end(from), end(to), spec) : wire(end(low), end(high), spec);
}

void cross_node(const NodePlace& node, int from, int to, LinkPath& path) {
  invariant(from != to, "a message from a GPU to itself");
  const NodeSpec& spec = node.spec;
  const auto direct = [&](int links) {
    LinkSpec all = spec.intra;
    all.bytes_per_s *= links;
    path.wire("gpu", node.first_gpu + from, node.first_gpu + to, all);
  };
  switch (spec.attachment) {
    case Attachment::pairs: return direct(1);
    case Attachment::port: {
      LinkSpec half = spec.intra;
      half.latency_s /= 2;
      path.port(gpu_name(node, from), half, true);
      return path.port(gpu_name(node, to), half, false);
    }
    case Attachment::mesh:
      if (const int links = links_between(spec, from, to)) return direct(links);
      return cross_pcie(node, from, to, path);
    case Attachment::pcie: return cross_pcie(node, from, to, path);
  }
}

void cross_to_host(const NodePlace& node, int gpu, bool out, LinkPath& path) {
  const std::string uplink =
      fmt::format("node{} pcie{}", node.number, point_of_gpu(node.spec, gpu).pcie_switch);
  gpu_to_tree(node, gpu, out, path);
  path.port(uplink, node.spec.pcie->uplink, out);
}

void leave_node(const NodePlace& node, int gpu, int nic, LinkPath& path) {
  if (node.spec.nic_place != NicPlace::direct) {
    gpu_to_tree(node, gpu, true, path);
    cross_tree(node, point_of_gpu(node.spec, gpu), point_of_nic(node.spec, nic), path);
  }
  nic_port(node, nic, true, path);
}

void enter_node(const NodePlace& node, int gpu, int nic, LinkPath& path) {
  nic_port(node, nic, false, path);
  if (node.spec.nic_place == NicPlace::direct) return;
  cross_tree(node, point_of_nic(node.spec, nic), point_of_gpu(node.spec, gpu), path);
  gpu_to_tree(node, gpu, false, path);
}

std::optional<std::pair<int, int>> unjoined_in_mesh(const NodeSpec& node) {
  if (node.attachment != Attachment::mesh || node.pcie) return std::nullopt;
  for (int a = 0; a < node.devices_per_node; ++a) {
    for (int b = a + 1; b < node.devices_per_node; ++b) {
      if (links_between(node, a, b) == 0) return std::pair(a, b);
    }
  }
  return std::nullopt;
}

}  // namespace penstock
