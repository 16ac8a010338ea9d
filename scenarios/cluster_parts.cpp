// SPDX-License-Identifier: Apache-2.0

#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace penstock {
namespace {

/// Keys that only a cluster of nodes has.
constexpr const char* kRealKeys[] = {"nodes", "devices_per_node", "intra", "inter", "mesh",
                                     "pcie",  "fabric",           "groups"};

/// Abstract and real clusters have different keys.
void check_kind(const Section& cluster, bool real) {
  for (const char* key : {"link", "devices", "network"}) {
    if (real && cluster.has(key)) {
      cluster.refuse(key, fmt::format("'{}' describes an abstract cluster, but 'nodes', "
                                      "'devices_per_node', 'intra' and 'inter' describe a real one",
                                      key));
    }
  }
}

/// The edges of a cluster that is a graph; names become vertices behind the devices.
class GraphReader {
 public:
  GraphReader(int devices, Diagnostics& diagnostics)
      : devices_(devices), diagnostics_(diagnostics) {}

  NetworkGraph read(const Value& list) {
    for (const Value& item : list.items) {
      if (item.kind != Value::Kind::map) continue;  // refused already
      read_edge(Section(item, "edge", diagnostics_));
    }
    return std::move(graph_);
  }

 private:
  void read_edge(const Section& section) {
    if (!section.has("between")) return section.refuse("the edge needs 'between'");
    if (section.broken("between")) return;
    const auto& ends = section.at("between").items;
    NetworkGraph::Edge edge;
    edge.from = vertex(ends[0]);
    edge.to = vertex(ends[1]);
    edge.link = read_wire(section);
    edge.bytes_per_s_back = section.number("bandwidth_back").value_or(edge.link.bytes_per_s);
    if (!edge.link.full_duplex && section.has("bandwidth_back")) {
      section.refuse("bandwidth_back",
                     "'bandwidth_back' needs a full-duplex edge: the directions of this one share "
                     "their 'bandwidth'");
    }
    if (edge.from < 0 || edge.to < 0 || !is_new(section.at("between"), edge)) return;
    graph_.edges.push_back(edge);
  }

  bool is_new(const Value& where, const NetworkGraph::Edge& edge) {
    const std::string a = printable(where.items[0].text), b = printable(where.items[1].text);
    if (edge.from == edge.to) {
      diagnostics_.add_error(where, fmt::format("joins '{}' with itself", a));
      return false;
    }
    const bool added = joined_.insert(std::minmax(edge.from, edge.to)).second;
    if (!added)
      diagnostics_.add_error(where, fmt::format("'{}' and '{}' are joined already", a, b));
    return added;
  }

  /// -1 when it is none.
  int vertex(const Value& word) {
    if (std::isalpha(static_cast<unsigned char>(word.text[0])) != 0) {
      const auto next = devices_ + static_cast<int>(graph_.switches.size());
      const auto [it, added] = switches_.try_emplace(word.text, next);
      if (added) graph_.switches.push_back(word.text);
      return it->second;
    }
    const int number = number_below(devices_, word.text);
    if (number >= 0) return number;
    diagnostics_.add_error(word, fmt::format("'{}' is neither a device (0 to {}) nor the name of a "
                                             "switch, which begins with a letter",
                                             printable(word.text), devices_ - 1));
    return -1;
  }

  int devices_;
  Diagnostics& diagnostics_;
  NetworkGraph graph_;
  std::map<std::string, int> switches_;
  std::set<std::pair<int, int>> joined_;
};

void read_network_cluster(const Section& cluster, Cluster& c) {
  const Value& where = cluster.at("network");
  if (cluster.has("link"))
    cluster.refuse("link",
                   "'link' joins every two devices, 'network' those it names; give one of them");
  if (!cluster.has("devices"))
    return cluster.diagnostics().add_error(where, "'network' needs 'devices', too");
  if (cluster.broken("devices")) return;
  c.devices_per_node = static_cast<int>(cluster.integer("devices").value_or(1));
  const std::size_t before = cluster.diagnostics().size();
  c.network = GraphReader(c.devices_per_node, cluster.diagnostics()).read(where);
  if (cluster.diagnostics().size() > before || cluster.broken("network")) return;
  if (const auto apart = unjoined_devices(c)) {
    cluster.diagnostics().add_error(
        where, fmt::format("no route from device {} to device {}", apart->first, apart->second));
  }
}

void read_abstract_cluster(const Section& cluster, int devices_needed, Cluster& c) {
  if (cluster.has("network")) return read_network_cluster(cluster, c);
  c.devices_per_node = static_cast<int>(cluster.integer("devices").value_or(devices_needed));
  c.link = read_plain_link(cluster, "link", {});
}

void add_entry(Value& map, const std::string& key, const Value& value) {
  Value name = value;
  name.kind = Value::Kind::scalar;
  name.text = key;
  map.entries.push_back({std::move(name), value});
}

/// Every group starts from the keys of its cluster; what the cluster says of `inter` also holds
/// where a group has a base with a network of its own.
std::vector<NodeGroup> read_groups(const Section& cluster, const NodeSpec& start,
                                   Library& library) {
  std::vector<NodeGroup> groups;
  if (cluster.has("nodes"))
    cluster.refuse("nodes", "'nodes' and 'groups' both say how many nodes there are");
  for (const Value& item : cluster.at("groups").items) {
    Value own = item;
    if (cluster.has("inter") && own.find("base") != nullptr && own.find("inter") == nullptr)
      add_entry(own, "inter", cluster.at("inter"));
    const Value* found =
        own.kind == Value::Kind::map ? library.resolve(own, "cluster", "models/clusters") : nullptr;
    if (found == nullptr) continue;
    const std::optional<Section> group(std::in_place, *found, "cluster", cluster.diagnostics());
    refuse_keys(group, {"groups", "fabric", "devices", "link", "network"}, "groups");
    groups.push_back(
        {static_cast<int>(group->integer("nodes").value_or(1)), read_node(*group, start, library)});
  }
  return groups;
}

/// The cluster's own node becomes the first of the groups', for what looks at one node only.
void adopt_groups(std::vector<NodeGroup> groups, Cluster& c) {
  if (groups.empty()) {
    c.devices_per_node = std::max(1, c.devices_per_node);
    return;
  }
  static_cast<NodeSpec&>(c) = groups.front().node;
  c.nodes = 0;
  for (const NodeGroup& group : groups) c.nodes += group.nodes;
  c.groups = std::move(groups);
}

bool is_too_large(const Section& cluster, const Cluster& c, const std::vector<NodeGroup>& groups) {
  double devices = groups.empty() ? double{1} * c.nodes * c.devices_per_node : 0;
  for (const NodeGroup& group : groups)
    devices += static_cast<double>(group.nodes) * group.node.devices_per_node;
  if (devices <= 1e6) return false;
  cluster.refuse("the cluster has more than a million devices");
  return true;
}

void read_real_cluster(const Section& cluster, Cluster& c, Library& library) {
  NodeSpec start;
  start.devices_per_node = 0;  // not known
  static_cast<NodeSpec&>(c) = read_node(cluster, start, library);
  c.nodes = static_cast<int>(cluster.integer("nodes").value_or(1));
  std::vector<NodeGroup> groups;
  if (cluster.has("groups")) groups = read_groups(cluster, c, library);
  if (is_too_large(cluster, c, groups)) return;
  adopt_groups(std::move(groups), c);
  const bool joined = cluster.has("inter") ||
                      (!c.groups.empty() && std::ranges::all_of(c.groups, [](const auto& g) {
                        return g.node.inter.bytes_per_s < std::numeric_limits<double>::infinity();
                      }));
  if (c.nodes > 1 && !joined) cluster.refuse("a cluster of several nodes needs 'inter'");
  c.fabric = read_fabric(cluster, c);
}

}  // namespace

Cluster read_cluster(const Section& cluster, Library& library, int devices_needed) {
  Cluster c;
  c.name = cluster.text("name").value_or("inline cluster");
  const bool real =
      std::ranges::any_of(kRealKeys, [&](const char* key) { return cluster.has(key); });
  check_kind(cluster, real);
  if (real) {
    read_real_cluster(cluster, c, library);
  } else {
    read_device_keys(cluster, library, c.device);
    read_abstract_cluster(cluster, devices_needed, c);
  }
  return c;
}

}  // namespace penstock
