// SPDX-License-Identifier: Apache-2.0
// What a search holds in its queues, in the order in which it is looked into.
#pragma once

#include "plan/search/candidate.hpp"

#include <limits>
#include <queue>
#include <string>
#include <vector>

namespace penstock {

struct SearchNode {
  /// `schedule`: families that differ in their arrangement, by a rough bound; `all_cuts`: those of
  /// a family of which one was looked into.
  enum Level : std::uint8_t { shape, schedule, family, all_cuts, cut, relaxed } level = shape;
  double bound = 0;  ///< on the cost
  std::size_t number = 0;
  Candidate candidate;
  double memory_bytes = 0;  ///< a bound
  double estimate = 0;      ///< of the cost: its bound, or more where there is none as good
  /// Per stage: the node also stands for candidates that recompute more in this one, as long as it
  /// is not known that this one fits; they take longer. Empty: for this one alone.
  std::vector<bool> more{};
  bool sample = false;  ///< one of a family some of whose candidates stand for all
  int tries = 0;        ///< of it, until it fits
};

/// The least estimate first; among equals the finer, then of cuts the later (which is nearer to
/// something that fits), else the earlier.
struct LaterNode {
  bool operator()(const SearchNode& a, const SearchNode& b) const {
    if (a.estimate != b.estimate) return a.estimate > b.estimate;
    if (a.level != b.level) return a.level < b.level;
    return a.level == SearchNode::cut ? a.number < b.number : a.number > b.number;
  }
};
using SearchQueue = std::priority_queue<SearchNode, std::vector<SearchNode>, LaterNode>;

inline SearchNode take_node(SearchQueue& queue) {
  SearchNode node = queue.top();
  queue.pop();
  return node;
}

/// A family that is not visited as a whole, and the least that any of it costs.
struct OpenFamily {
  double least = 0;
  PlanFamily family;
};

/// The least bound of what will not be visited.
struct LeastOpen {
  double least = std::numeric_limits<double>::infinity();
  std::string held_by{};

  void add_bound(double bound, const PlanFamily& family) {
    if (bound >= least) return;
    least = bound;
    held_by = family.describe();
  }
};

/// Is what costs at least `bound` no better than `than`?
inline bool is_hopeless(double bound, double than) {
  // Bounds and costs are sums in different orders: what is equal on paper differs by rounding.
  constexpr double kRounding = 1e-9;
  return bound >= than * (1 - kRounding);
}

}  // namespace penstock
