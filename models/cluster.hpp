// SPDX-License-Identifier: Apache-2.0
// Clusters: nodes of GPUs, equal or in groups of different ones, and what joins them; and the
// Network of links that messages between two GPUs cross. GPUs are numbered node by node. GB and GiB
// differ. How messages travel: models/topology.hpp.
#pragma once

#include "models/topology.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

/// Consecutive nodes that are alike.
struct NodeGroup {
  int nodes = 1;
  NodeSpec node;
};

/// The node that a Cluster is itself is that of all nodes; with groups, that of the first one.
struct Cluster : NodeSpec {
  std::string name;
  int nodes = 1;
  std::vector<NodeGroup> groups;  ///< empty: all nodes are alike; else `nodes` is their sum
  std::optional<LinkSpec>
      link;  ///< abstract: a private link between every two devices, and per channel
  std::optional<NetworkGraph> network;  ///< abstract: which links join which devices
  FabricSpec fabric;                    ///< behind the NICs

  int devices() const;
  int node_of(int gpu) const;
  NodePlace node(int number) const;
  const DeviceSpec& device_of(int gpu) const { return node(node_of(gpu)).spec.device; }
};

/// "A100-80", or "A100-80, V100-16" for different ones.
std::string device_names(const Cluster& cluster);

/// The first two devices between which a cluster's graph has no route; none when all are joined.
std::optional<std::pair<int, int>> unjoined_devices(const Cluster& cluster);

/// Links of nodes (what their GPUs hang on) and links between them (NICs and what is behind). Those
/// of abstract clusters are neither.
enum class LinkClass : std::uint8_t { all, within_nodes, between_nodes };

/// Multiplies the bandwidth of every link of a class.
void scale_bandwidth(Cluster& cluster, double factor, LinkClass links = LinkClass::all);

/// Leaves a share of every device's memory free.
void keep_free(Cluster& cluster, double headroom);

/// A link that takes at least as long as any message of the cluster without other traffic.
LinkSpec slowest_route(const Cluster& cluster);

struct Route {
  std::vector<int> links;  ///< indices into Network::links()
  double latency_s = 0;
};

/// The links of a cluster, made as routes are asked for.
class Network {
 public:
  explicit Network(const Cluster& cluster);
  /// The route of messages from GPU `from` to GPU `to`; `backward` tells gradient channels from
  /// activation channels, which matters only where each channel has its own capacity. Precondition:
  /// the two are joined.
  Route route(int from, int to, bool backward);
  /// Returns the price of such a collective among so many ranks that was measured in the node of
  /// this GPU; none where nothing was measured.
  std::optional<CollectivePrice> measured(Collective what, int ranks, int gpu) const;
  bool has_unlike_nodes() const { return !cluster_->groups.empty(); }
  bool same_node(int a, int b) const { return cluster_->node_of(a) == cluster_->node_of(b); }
  /// The route of copies between a GPU and the memory of its host. Precondition: its node has a
  /// PCIe tree.
  Route host_route(int gpu, bool out);
  const std::vector<NetworkLink>& links() const { return links_; }

 private:
  LinkPath path(int from, int to, bool backward);
  Route numbered(LinkPath path);

  const Cluster* cluster_;
  std::optional<GraphPaths> graph_;
  std::vector<NetworkLink> links_;
  std::map<std::string, int> index_;
};

}  // namespace penstock
