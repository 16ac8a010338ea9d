// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "models/topology.hpp"

#include <algorithm>
#include <deque>

namespace penstock {
namespace {

constexpr int kUnseen = -2;
constexpr int kStart = -1;  // by no edge: the search began there

}  // namespace

GraphPaths::GraphPaths(const NetworkGraph& graph, int devices) : graph_(&graph), devices_(devices) {
  const auto add = [&](int vertex, int edge) {
    const auto [it, added] = places_.try_emplace(vertex, static_cast<int>(places_.size()));
    if (added) edges_at_.emplace_back();
    edges_at_[static_cast<std::size_t>(it->second)].push_back(edge);
  };
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    add(graph.edges[e].from, static_cast<int>(e));
    add(graph.edges[e].to, static_cast<int>(e));
  }
}

/// -1 for a vertex without edges.
int GraphPaths::place(int vertex) const {
  const auto it = places_.find(vertex);
  return it == places_.end() ? -1 : it->second;
}

/// By place, the edge over which a breadth-first search came there.
const std::vector<int>& GraphPaths::came_by(int from) {
  const auto [it, added] = found_.try_emplace(from, edges_at_.size(), kUnseen);
  std::vector<int>& came_by = it->second;
  if (!added || place(from) < 0) return came_by;
  came_by[static_cast<std::size_t>(place(from))] = kStart;
  std::deque<int> next{from};
  for (; !next.empty(); next.pop_front()) {
    for (const int e : edges_at_[static_cast<std::size_t>(place(next.front()))]) {
      const auto& edge = graph_->edges[static_cast<std::size_t>(e)];
      const int other = edge.from == next.front() ? edge.to : edge.from;
      int& by = came_by[static_cast<std::size_t>(place(other))];
      if (by != kUnseen) continue;
      by = e;
      next.push_back(other);
    }
  }
  return came_by;
}

bool GraphPaths::joined(int from, int to) {
  if (from == to) return true;
  const int at = place(to);
  return at >= 0 && came_by(from)[static_cast<std::size_t>(at)] != kUnseen;
}

std::string GraphPaths::vertex_name(int vertex) const {
  if (vertex < devices_) return std::to_string(vertex);
  return graph_->switches[static_cast<std::size_t>(vertex - devices_)];
}

void GraphPaths::cross(const NetworkGraph::Edge& edge, bool back, LinkPath& path) const {
  const std::string from = vertex_name(edge.from), to = vertex_name(edge.to);
  if (!back || !edge.link.full_duplex) return path.wire(from, to, edge.link);
  LinkSpec reverse = edge.link;
  reverse.bytes_per_s = edge.bytes_per_s_back;
  path.wire(to, from, reverse);
}

LinkPath GraphPaths::path(int from, int to) {
  LinkPath path;
  // All that hang on one switch by one edge share its search: there are far fewer switches.
  const int home = place(from);
  if (from != to && home >= 0 && edges_at_[static_cast<std::size_t>(home)].size() == 1) {
    const int only = edges_at_[static_cast<std::size_t>(home)].front();
    const auto& edge = graph_->edges[static_cast<std::size_t>(only)];
    const bool back = edge.to == from;
    cross(edge, back, path);
    from = back ? edge.from : edge.to;
  }
  invariant(joined(from, to), "a message between devices that are not joined");
  std::vector<std::pair<const NetworkGraph::Edge*, bool>> steps;
  for (int at = to; at != from;) {
    const int e = came_by(from)[static_cast<std::size_t>(place(at))];
    const auto& edge = graph_->edges[static_cast<std::size_t>(e)];
    const bool back = edge.from == at;
    steps.emplace_back(&edge, back);
    at = back ? edge.to : edge.from;
  }
  for (std::size_t i = steps.size(); i-- > 0;) cross(*steps[i].first, steps[i].second, path);
  return path;
}

}  // namespace penstock
