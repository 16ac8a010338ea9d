// SPDX-License-Identifier: Apache-2.0
#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace penstock {
namespace {

constexpr std::int64_t kMostUplinks = 1'000'000;

class FabricReader {
 public:
  FabricReader(const Section& fabric, const Cluster& cluster)
      : fabric_(fabric), cluster_(cluster) {}

  FabricSpec read() {
    out_.most_nics = most_nics(cluster_);
    out_.topology = static_cast<Topology>(fabric_.choice("topology").value_or(0));
    refuse_others();
    out_.rails = fabric_.boolean("rails").value_or(false);
    out_.cross_inside = fabric_.choice("crossing").value_or(0) == 0;
    if (fabric_.has("crossing") && !out_.rails)
      fabric_.refuse("crossing", "'crossing' needs 'rails: true'");
    LinkSpec as_wide_as_a_nic;
    as_wide_as_a_nic.bytes_per_s = cluster_.inter.bytes_per_s;
    out_.link = read_plain_link(fabric_, "link", as_wide_as_a_nic);
    out_.global = read_plain_link(fabric_, "global", as_wide_as_a_nic);
    switch (out_.topology) {
      case Topology::one_switch: break;
      case Topology::fat_tree: read_fat_tree(); break;
      case Topology::dragonfly: read_dragonfly(); break;
      case Topology::torus: read_torus(); break;
    }
    return out_;
  }

  static int most_nics(const Cluster& cluster) {
    int most = cluster.nics_per_node;
    for (const NodeGroup& group : cluster.groups) most = std::max(most, group.node.nics_per_node);
    return most;
  }

 private:
  /// Keys of the other topologies.
  void refuse_others() {
    struct Use {
      const char* key;
      std::vector<Topology> topologies;
    };
    using enum Topology;
    static const Use kUses[] = {
        {"rails", {one_switch, fat_tree}},
        {"crossing", {one_switch, fat_tree}},
        {"leaf", {fat_tree}},
        {"levels", {fat_tree}},
        {"pod", {fat_tree}},
        {"oversubscription", {fat_tree}},
        {"uplinks", {fat_tree}},
        {"groups", {dragonfly}},
        {"routers", {dragonfly}},
        {"nodes_per_router", {dragonfly}},
        {"global", {dragonfly}},
        {"shape", {torus}},
    };
    const auto names = split_choices(find_key("fabric", "topology")->choices);
    const std::string& name = names[static_cast<std::size_t>(out_.topology)];
    for (const Use& use : kUses) {
      if (!fabric_.has(use.key) ||
          std::ranges::find(use.topologies, out_.topology) != use.topologies.end())
        continue;
      fabric_.refuse(use.key,
                     fmt::format("'{}' has no meaning for the topology '{}'", use.key, name));
    }
    const bool spine = fabric_.choice("crossing") == 1;
    if (out_.topology == one_switch && fabric_.has("link") && !spine) {
      fabric_.refuse("link",
                     "'link' needs 'rails: true' and 'crossing: spine', or another topology: a "
                     "switch does not block");
    }
  }

  int natural(const char* key, std::int64_t otherwise) const {
    return static_cast<int>(fabric_.integer(key).value_or(otherwise));
  }

  /// Is a required key there, and sound?
  bool given(const char* key, const char* topology) {
    if (!fabric_.has(key)) fabric_.refuse(fmt::format("a {} needs '{}'", topology, key));
    return fabric_.has(key) && !fabric_.broken(key);
  }

  void read_fat_tree() {
    const double over = fabric_.number("oversubscription").value_or(1);
    if (over < 1e-3 && !fabric_.broken("oversubscription"))
      fabric_.refuse("oversubscription", "'oversubscription' must be more than 0");
    const bool own = !std::isinf(out_.link.bytes_per_s) && says_bandwidth();
    if (own && fabric_.has("oversubscription")) {
      fabric_.refuse("oversubscription",
                     "'oversubscription' and the bandwidth of 'link' say the same; give one");
    }
    if (!given("leaf", "fat-tree") || over < 1e-3) return;
    const int leaf = natural("leaf", 1), levels = natural("levels", 2);
    if (levels > 8) return fabric_.refuse("levels", "'levels' must be at most 8");
    if (fabric_.has("pod") && levels == 2) fabric_.refuse("pod", "'pod' needs 'levels: 3' or more");
    add_levels(leaf, levels, over, own);
  }

  bool says_bandwidth() const {
    if (!fabric_.has("link")) return false;
    const Value& link = fabric_.at("link");
    return link.kind == Value::Kind::scalar || link.find("bandwidth") != nullptr;
  }

  void add_levels(int leaf, int levels, double over, bool own) {
    double ports = double{1} * leaf * (out_.rails ? 1 : out_.most_nics);
    double port_bytes_per_s = cluster_.inter.bytes_per_s;
    for (int l = 1; l < levels; ++l) {
      const double wanted = std::clamp(std::ceil(ports / over), 1.0, double{kMostUplinks});
      FatTreeLevel level;
      level.children = l == 1 ? leaf : natural("pod", leaf);
      level.uplinks = l == 1 ? natural("uplinks", std::llround(wanted)) : static_cast<int>(wanted);
      level.uplink = out_.link;
      if (!own) level.uplink.bytes_per_s = ports * port_bytes_per_s / over / level.uplinks;
      out_.levels.push_back(level);
      ports = natural("pod", leaf);  // a switch above has one cable from every switch below
      port_bytes_per_s = level.uplink.bytes_per_s;
    }
  }

  void read_dragonfly() {
    const bool known = given("groups", "dragonfly") & given("routers", "dragonfly");
    if (!known || fabric_.broken("nodes_per_router")) return;
    out_.groups = natural("groups", 1);
    out_.routers = natural("routers", 1);
    out_.nodes_per_router = natural("nodes_per_router", 1);
    const double places = double{1} * out_.groups * out_.routers * out_.nodes_per_router;
    if (places < cluster_.nodes) {
      fabric_.refuse(fmt::format("the dragonfly has places for {} nodes, the cluster has {}",
                                 places, cluster_.nodes));
    }
  }

  void read_torus() {
    if (!given("shape", "torus")) return;
    const std::string text = fabric_.text("shape").value_or("");
    const char* at = text.data();
    const char* end = at + text.size();
    double nodes = 1;
    for (bool more = true; more;) {
      int size = 0;
      const auto [stop, error] = std::from_chars(at, end, size);
      if (error != std::errc() || size < 1 || (stop != end && *stop != 'x')) {
        return fabric_.refuse(
            "shape", fmt::format("'shape' must be nodes per dimension such as 4x4x2, got '{}'",
                                 printable(text)));
      }
      out_.shape.push_back(size);
      nodes *= size;
      more = stop != end;
      at = more ? stop + 1 : end;
    }
    if (nodes != cluster_.nodes) {
      fabric_.refuse("shape", fmt::format("a torus of {} has {} nodes, the cluster has {}",
                                          printable(text), nodes, cluster_.nodes));
    }
  }

  const Section& fabric_;
  const Cluster& cluster_;
  FabricSpec out_;
};

}  // namespace

FabricSpec read_fabric(const Section& cluster, const Cluster& c) {
  if (cluster.has("fabric") && !cluster.broken("fabric"))
    return FabricReader(Section(cluster, "fabric"), c).read();
  FabricSpec fabric;
  fabric.most_nics = FabricReader::most_nics(c);
  return fabric;
}

}  // namespace penstock
