// Clusters: nodes of GPUs, what joins the GPUs of a node, what joins the nodes; and the Network of
// links that messages between two GPUs cross. Bandwidth is per direction; latency never occupies a
// link. GB and GiB differ.
// A cluster may also be a graph. Its messages take the route of fewest edges; of several, the one
// whose first edge is listed first, then its second edge, and so on. The latencies of a route add
// up; both directions of a full-duplex edge are links of their own.
#pragma once

#include "models/device.hpp"

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

/// How the GPUs of a node are joined.
enum class Attachment : std::uint8_t {
  pairs,  ///< a link of its own between every two GPUs (an NVLink mesh)
  port,   ///< each GPU has one port to a switch (NVSwitch)
};

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

struct Cluster {
  std::string name;
  DeviceSpec device;
  int nodes = 1;
  int devices_per_node = 1;
  std::optional<LinkSpec>
      link;  ///< abstract: a private link between every two devices, and per channel
  std::optional<NetworkGraph> network;  ///< abstract: which links join which devices
  Attachment attachment = Attachment::pairs;
  LinkSpec intra;
  LinkSpec inter;  ///< one NIC; the fabric between the NICs is non-blocking
  int nics_per_node = 1;

  int devices() const { return nodes * devices_per_node; }
  int node_of(int gpu) const { return gpu / devices_per_node; }
};

/// The first two devices between which a cluster's graph has no route; none when all are joined.
std::optional<std::pair<int, int>> unjoined_devices(const Cluster& cluster);

/// One direction of a wire (or both, half duplex): what messages share.
struct NetworkLink {
  std::string name;
  double bytes_per_s;
  bool fifo;
};

struct Route {
  std::vector<int> links;  ///< indices into Network::links()
  double latency_s = 0;
};

/// The links of a cluster, made as routes are asked for.
class Network {
 public:
  explicit Network(const Cluster& cluster);
  /// The way of messages from GPU `from` to GPU `to`; `backward` tells gradient channels from
  /// activation channels, which matters only where each channel has its own capacity. Precondition:
  /// the two are joined.
  Route route(int from, int to, bool backward);
  const std::vector<NetworkLink>& links() const { return links_; }

 private:
  int link(const std::string& name, const LinkSpec& spec);
  Route shortest(int from, int to);
  int link_of(const NetworkGraph::Edge& edge, bool back);
  std::string vertex_name(int vertex) const;

  const Cluster* cluster_;
  std::map<int, std::vector<int>> edges_at_;  ///< of the graph, by vertex, in order of listing
  std::vector<NetworkLink> links_;
  std::map<std::string, int> index_;
};

}  // namespace penstock
