// SPDX-License-Identifier: Apache-2.0
// Topologies: what the GPUs of a node hang on (NVLink pairs, mesh or switch, a PCIe tree, NICs),
// what joins the NICs (one switch, rails, a fat tree, a dragonfly, a torus), and graphs given edge
// by edge. The route of a message is computed from the numbers of its ends, not searched for,
// except in graphs. It is one way: a message is never striped over several rails or uplinks.
// Bandwidth is per direction; latency never occupies a link. `intra` and `inter` have the latency
// of a message from port to port; every other link adds its own each time it is crossed.
#pragma once

#include "models/device.hpp"
#include "models/kernels/collective_laws.hpp"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct LinkSpec {
  double latency_s = 0;
  double bytes_per_s = std::numeric_limits<double>::infinity();
  bool full_duplex = true;  ///< false: both directions share one capacity
  bool fifo = false;        ///< messages of several channels one after the other, not side by side
};

/// One direction of a wire (or both, half duplex): what messages share.
struct NetworkLink {
  std::string name;
  double bytes_per_s;
  bool fifo;
};

/// The links that a message crosses, in order. Links of one name are one link.
class LinkPath {
 public:
  /// A port that many wires meet behind: "NAME out" or "NAME in".
  void port(const std::string& name, const LinkSpec& spec, bool out);
  /// A wire between two ends: "FROM->TO".
  void wire(const std::string& from, const std::string& to, const LinkSpec& spec);
  /// A wire between ends with a number, half duplex under one name whoever sends.
  void wire(const std::string& kind, int from, int to, const LinkSpec& spec);

  std::vector<NetworkLink> links;
  double latency_s = 0;
};

/// How the GPUs of a node are joined.
enum class Attachment : std::uint8_t {
  pairs,  ///< a link of its own between every two GPUs
  port,   ///< each GPU has one port to a switch (NVSwitch)
  mesh,   ///< links between some of the GPUs (NVLink), the PCIe tree between the others
  pcie,   ///< the PCIe tree alone
};

/// GPUs below PCIe switches, switches below sockets: consecutive GPUs share a switch, consecutive
/// switches a socket.
struct PcieTree {
  int devices_per_switch = 1;
  int sockets = 1;
  LinkSpec link;    ///< of a GPU to its switch
  LinkSpec uplink;  ///< of a switch to its socket, shared by what hangs on the switch
  LinkSpec host;    ///< between every two sockets
};

/// Where the NICs of a node hang.
enum class NicPlace : std::uint8_t {
  direct,       ///< its GPUs reach a NIC without any shared link
  pcie_switch,  ///< on the PCIe switches, evenly
  host,         ///< on the sockets, evenly
};

/// NVLinks between two GPUs of a node, each with the bandwidth of `intra`.
struct MeshLink {
  int from = 0, to = 0, count = 1;
};

/// A server: its GPUs and what joins them to each other and to the network.
struct NodeSpec {
  DeviceSpec device;
  int devices_per_node = 1;
  Attachment attachment = Attachment::pairs;
  LinkSpec intra;
  std::vector<MeshLink> mesh;    ///< at most one entry for two GPUs
  std::optional<PcieTree> pcie;  ///< needed by `mesh` with gaps, `pcie`, and NICs not `direct`
  LinkSpec inter;                ///< one NIC
  int nics_per_node = 1;
  NicPlace nic_place = NicPlace::direct;
  std::vector<MeasuredCollective> measured;  ///< on these links; empty: by links and latencies

  /// The NIC of a GPU, by its number in the node: shared evenly by consecutive GPUs.
  int nic_of(int local) const { return local * nics_per_node / devices_per_node; }
  int first_gpu_of(int nic) const { return nic * devices_per_node / nics_per_node; }
};

/// A node of a cluster: what it is, its number, and the number of its first GPU.
struct NodePlace {
  const NodeSpec& spec;
  int number;
  int first_gpu;
};

/// Adds the route between two GPUs of a node, numbered in the node. Precondition: they differ.
void cross_node(const NodePlace& node, int from, int to, LinkPath& path);
/// Adds the route between a GPU, numbered in the node, and the memory of its socket. Precondition:
/// the node has a PCIe tree.
void cross_to_host(const NodePlace& node, int gpu, bool out, LinkPath& path);
/// Adds the route of a GPU's messages through a NIC of its node, outwards or inwards. The latency
/// of the NICs counts half at each end.
void leave_node(const NodePlace& node, int gpu, int nic, LinkPath& path);
void enter_node(const NodePlace& node, int gpu, int nic, LinkPath& path);

/// The first two GPUs of a mesh with neither a link nor a PCIe tree between them.
std::optional<std::pair<int, int>> unjoined_in_mesh(const NodeSpec& node);

enum class Topology : std::uint8_t {
  one_switch,  ///< does not block
  fat_tree,    ///< an extended generalized fat tree, routed D-mod-k
  dragonfly,   ///< groups of routers, every two of a group and every two groups joined; minimal
  torus,       ///< a node per router; dimension by dimension, the shorter way round
};

/// Switches of one level below the top of a fat tree (Ohring et al., 1995, "On generalized fat
/// trees").
struct FatTreeLevel {
  int children = 1;  ///< level 1: nodes per leaf; above: subtrees per subtree
  int uplinks = 1;   ///< of a switch, each to a switch of its own
  LinkSpec uplink;
};

/// What joins the NICs of the nodes.
struct FabricSpec {
  Topology topology = Topology::one_switch;
  /// NIC i of every node hangs on switches of rail i: one_switch and fat_tree.
  bool rails = false;
  /// Rails: messages to a GPU of another rail change it inside the sending node (NCCL's PXN), not
  /// over the spine.
  bool cross_inside = true;
  int most_nics = 1;                 ///< of a node
  std::vector<FatTreeLevel> levels;  ///< fat tree, from the leaves
  int groups = 1;                    ///< dragonfly
  int routers = 1;                   ///< dragonfly: per group
  int nodes_per_router = 1;          ///< dragonfly
  std::vector<int> shape;            ///< torus: nodes per dimension
  LinkSpec link;    ///< rails: a rail switch's to the spine; dragonfly: inside groups; torus
  LinkSpec global;  ///< dragonfly: between groups

  /// Links that the longest route through it has, NICs not counted.
  int most_hops() const;
};

/// One NIC of one node.
struct FabricEnd {
  int node = 0, nic = 0;
};

/// Adds the route from NIC to NIC, behind both. Precondition: different nodes.
/// D-mod-k (Zahavi, 2010, "D-Mod-K Routing Providing Non-Blocking Traffic for Shift Permutations on
/// Real Life Fat Trees"): uplink floor(d / product of the uplinks below) mod uplinks, where d is
/// the destination's number.
void cross_fabric(const FabricSpec& fabric, FabricEnd from, FabricEnd to, LinkPath& path);

/// A network given edge by edge. Vertices below the number of devices are devices.
struct NetworkGraph {
  struct Edge {
    int from = 0, to = 0;
    LinkSpec link;  ///< its bandwidth is that from `from` to `to`
    double bytes_per_s_back = std::numeric_limits<double>::infinity();  ///< full duplex only
  };
  std::vector<std::string> switches;  ///< names of the vertices after the devices
  std::vector<Edge> edges;            ///< at most one between two vertices
};

/// Ways through a graph: of fewest edges; of several, the one whose first edge is listed first,
/// then its second edge, and so on. One search per sending device, kept.
class GraphPaths {
 public:
  GraphPaths(const NetworkGraph& graph, int devices);
  bool joined(int from, int to);
  /// Precondition: the two are joined.
  LinkPath path(int from, int to);

 private:
  const std::vector<int>& came_by(int from);
  int place(int vertex) const;
  std::string vertex_name(int vertex) const;
  void cross(const NetworkGraph::Edge& edge, bool back, LinkPath& path) const;

  const NetworkGraph* graph_;
  int devices_;
  std::map<int, int> places_;               ///< of the vertices that have edges, densely
  std::vector<std::vector<int>> edges_at_;  ///< by place, in order of listing
  std::map<int, std::vector<int>> found_;   ///< by sender: by place, the edge that led there
};

}  // namespace penstock
