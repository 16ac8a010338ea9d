// SPDX-License-Identifier: Apache-2.0
// The queues of a search, and the order in which their nodes are opened.
#pragma once

#include "plan/search/candidate.hpp"

#include <limits>
#include <queue>
#include <string>
#include <vector>

namespace penstock {

struct SearchNode {
  /// `schedule` stands for families that differ in their arrangement, by a rough bound; `all_cuts`
  /// for the cuts of a family of which one was looked into.
  enum Level : std::uint8_t { shape, schedule, family, all_cuts, cut, relaxed } level = shape;
  double bound = 0;  ///< a lower bound on the cost
  std::size_t number = 0;
  Candidate candidate;
  double memory_bytes = 0;  ///< a lower bound on the memory of the fullest device
  double estimate = 0;  ///< an estimate of the cost: the bound, or more where no plan is that good
  /// For each stage, whether the node also stands for candidates that recompute more in it, as long
  /// as it is not known that this candidate fits; they take longer. Empty where the node stands for
  /// this candidate alone.
  std::vector<bool> more{};
  bool sample = false;  ///< whether it is one of the candidates that stand for all of a family
  int tries = 0;        ///< how often it was changed to make it fit
};

/// Orders nodes: the least estimate first; among equals the finer node, then the later cut (which
/// is nearer to one that fits), else the earlier node.
struct LaterNode {
  bool operator()(const SearchNode& a, const SearchNode& b) const {
    if (a.estimate != b.estimate) return a.estimate > b.estimate;
    if (a.level != b.level) return a.level < b.level;
    return a.level == SearchNode::cut ? a.number < b.number : a.number > b.number;
  }
};
using SearchQueue = std::priority_queue<SearchNode, std::vector<SearchNode>, LaterNode>;

/// Removes the first node of a queue and returns it.
inline SearchNode take_node(SearchQueue& queue) {
  SearchNode node = queue.top();
  queue.pop();
  return node;
}

/// A family of which not all cuts are visited, and a lower bound on their cost.
struct OpenFamily {
  double least = 0;
  PlanFamily family;
};

/// The least bound of all that will not be visited, and the family that has it.
struct LeastOpen {
  double least = std::numeric_limits<double>::infinity();
  std::string held_by{};

  void add_bound(double bound, const PlanFamily& family) {
    if (bound >= least) return;
    least = bound;
    held_by = family.describe();
  }
};

/// Returns whether what costs at least `bound` is no better than `than`.
inline bool is_hopeless(double bound, double than) {
  // Bounds and costs are sums in different orders: what is equal on paper differs by rounding.
  constexpr double kRounding = 1e-9;
  return bound >= than * (1 - kRounding);
}

}  // namespace penstock
