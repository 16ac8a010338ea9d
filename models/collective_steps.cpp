// SPDX-License-Identifier: Apache-2.0
#include "models/collective_steps.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace penstock {
namespace {

using Kind = CollectiveStep::Kind;
using Members = std::vector<int>;

struct ElementRange {
  std::int64_t first, end;

  /// The k-th of n parts that are as even as possible.
  ElementRange part(std::int64_t k, std::int64_t n) const {
    const std::int64_t all = end - first;
    return {first + all * k / n, first + all * (k + 1) / n};
  }
};

/// Members in a circle, with the elements that go round.
struct Circle {
  Members order;
  ElementRange elements;
};

class Steps {
 public:
  /// One sends, and the other receives in its turn.
  void move(int from, int to, ElementRange e, Kind kind) {
    send(from, to, e);
    receive(from, to, e, kind);
  }
  void send(int from, int to, ElementRange e) {
    list.push_back({from, Kind::send, to, e.first, e.end});
  }
  void receive(int from, int to, ElementRange e, Kind kind) {
    list.push_back({to, kind, from, e.first, e.end});
  }

  /// Circles of one size side by side: at each step everybody sends a chunk to the next one, and
  /// the chunk of its own place comes to rest there (reduce-scatter), or begins there (all-gather).
  void go_round(const std::vector<Circle>& circles, Kind kind) {
    const auto n = std::ssize(circles.front().order);
    for (std::int64_t t = 0; t + 1 < n; ++t) {
      const auto each = [&](const auto& visit) {
        for (const auto& [order, elements] : circles) {
          for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t chunk = (i - t - (kind == Kind::add ? 1 : 0) + n) % n;
            visit(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>((i + 1) % n)],
                  elements.part(chunk, n));
          }
        }
      };
      // Nobody waits for the one before it, or chunks would go round one after the other.
      each([&](int from, int to, ElementRange e) { send(from, to, e); });
      each([&](int from, int to, ElementRange e) { receive(from, to, e, kind); });
    }
  }

  std::vector<CollectiveStep> list;
};

// What flows up and down a tree or a chain does so in pieces, so that its edges are busy at once.
constexpr int kPieces = 8;

/// To the root, and back to all; `edges` lead from the leaves to the root.
struct RootedSum {
  std::vector<TreeEdge> edges;
  ElementRange elements;
};

void sum_at_root(Steps& steps, const RootedSum& sum, int piece) {
  for (const auto& [child, parent] : sum.edges)
    steps.move(child, parent, sum.elements.part(piece, kPieces), Kind::add);
}

void spread_from_root(Steps& steps, const RootedSum& sum, int piece) {
  for (std::size_t i = sum.edges.size(); i-- > 0;)
    steps.move(sum.edges[i].parent, sum.edges[i].child, sum.elements.part(piece, kPieces),
               Kind::take);
}

void add_tree(Steps& steps, const Members& gpus, ElementRange all) {
  const auto trees = binary_trees(gpus);
  int height = 0;
  for (std::size_t reached = 1; reached < gpus.size(); reached *= 2) ++height;
  // The first piece is at the root when as many others are on their way as the tree is high.
  const int late = std::min(height, kPieces);
  for (int t = 0; t < kPieces + late; ++t) {
    for (int half = 0; half < 2; ++half) {
      const RootedSum sum{trees[static_cast<std::size_t>(half)], all.part(half, 2)};
      if (t < kPieces) sum_at_root(steps, sum, t);
      if (t >= late) spread_from_root(steps, sum, t - late);
    }
  }
}

/// ElementRange of which each of these takes an equal part.
std::vector<Circle> circles_of(const std::vector<Members>& orders, ElementRange all) {
  std::vector<Circle> circles;
  for (std::size_t i = 0; i < orders.size(); ++i)
    circles.push_back({orders[i], all.part(static_cast<std::int64_t>(i), std::ssize(orders))});
  return circles;
}

/// Nodes with different numbers of members: to the first of each, round these, and back.
void add_leaders(Steps& steps, const std::vector<Members>& nodes, ElementRange all) {
  Members firsts;
  std::vector<RootedSum> chains;
  for (const Members& node : nodes) {
    firsts.push_back(node.front());
    auto& edges = chains.emplace_back(RootedSum{{}, all}).edges;
    for (std::size_t i = node.size(); i-- > 1;) edges.push_back({node[i], node[i - 1]});
  }
  for (int piece = 0; piece < kPieces; ++piece)
    for (const RootedSum& chain : chains) sum_at_root(steps, chain, piece);
  for (const Kind kind : {Kind::add, Kind::take}) steps.go_round({{firsts, all}}, kind);
  for (int piece = 0; piece < kPieces; ++piece)
    for (const RootedSum& chain : chains) spread_from_root(steps, chain, piece);
}

void add_server(Steps& steps, const Members& gpus, ElementRange all, int servers) {
  const std::int64_t parts = std::clamp<std::int64_t>(servers, 1, std::ssize(gpus));
  for (const Kind kind : {Kind::add, Kind::take}) {
    const auto each = [&](const auto& visit) {
      for (std::int64_t s = 0; s < parts; ++s) {
        const int server = gpus[static_cast<std::size_t>(s)];
        for (const int gpu : gpus) {
          if (gpu == server) continue;
          const bool there = kind == Kind::add;
          visit(there ? gpu : server, there ? server : gpu, all.part(s, parts));
        }
      }
    };
    // A server sends others their parts before it waits for its own.
    each([&](int from, int to, ElementRange e) { steps.send(from, to, e); });
    each([&](int from, int to, ElementRange e) { steps.receive(from, to, e, kind); });
  }
}

void add_exchange(Steps& steps, const Members& gpus, ElementRange all) {
  for (const int from : gpus)
    for (const int to : gpus)
      if (from != to) steps.send(from, to, all);
  for (std::size_t own = 0; own < gpus.size(); ++own) {
    // Those before it are added up first, so that all members add in one order.
    for (std::size_t i = 0; i < gpus.size(); ++i)
      if (i != own) steps.receive(gpus[i], gpus[own], all, i + 1 < own ? Kind::pile : Kind::add);
  }
}

/// A reduce-scatter (add) or an all-gather (take) in the nodes and along the rails between them.
void add_hierarchical(Steps& steps, const std::vector<Members>& nodes, ElementRange all,
                      Kind kind) {
  std::vector<Circle> inside;
  for (const Members& node : nodes) inside.push_back({node, all});
  const std::vector<Circle> between = circles_of(rails_of(nodes), all);
  steps.go_round(kind == Kind::add ? inside : between, kind);
  steps.go_round(kind == Kind::add ? between : inside, kind);
}

}  // namespace

std::vector<CollectiveStep> collective_steps(Collective what, ReductionAlgorithm algorithm,
                                             std::vector<int> gpus, const NodeOf& node_of,
                                             std::int64_t elements, int servers) {
  invariant(what != Collective::all_to_all, "an all-to-all has no steps");
  Steps steps;
  if (gpus.size() < 2) return {};
  std::ranges::sort(gpus);
  const ElementRange all{0, elements};
  const bool sums_all = what == Collective::all_reduce;
  const std::vector<Members> nodes = nodes_of(gpus, node_of);
  const bool levels = algorithm == ReductionAlgorithm::hierarchical && nodes.size() > 1 &&
                      nodes.size() < gpus.size();
  if (sums_all && algorithm == ReductionAlgorithm::tree) {
    add_tree(steps, gpus, all);
  } else if (sums_all && algorithm == ReductionAlgorithm::server) {
    add_server(steps, gpus, all, servers);
  } else if (sums_all && algorithm == ReductionAlgorithm::all_to_all) {
    add_exchange(steps, gpus, all);
  } else if (sums_all && levels && !has_rails(nodes)) {
    add_leaders(steps, nodes, all);
  } else {
    for (const Kind kind : {Kind::add, Kind::take}) {
      if (what == (kind == Kind::add ? Collective::all_gather : Collective::reduce_scatter))
        continue;
      if (levels && has_rails(nodes))
        add_hierarchical(steps, nodes, all, kind);
      else
        steps.go_round(circles_of(ring_orders(gpus, node_of), all), kind);
    }
  }
  return std::move(steps.list);
}

}  // namespace penstock
