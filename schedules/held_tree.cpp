// SPDX-License-Identifier: Apache-2.0
#include "schedules/held_tree.hpp"

#include <algorithm>
#include <bit>

namespace penstock {

HeldTree::HeldTree(std::vector<Change> slots) : slots_(std::move(slots)) {
  const std::size_t leaves = std::bit_ceil(slots_.size() / kLeaf + 1);
  slots_.resize(leaves * kLeaf);
  nodes_.resize(2 * leaves);
  for (auto node = static_cast<std::uint32_t>(2 * leaves); node-- > 1;) renew(node);
}

inline HeldTree::Node HeldTree::both(const Node& left, const Node& right) {
  return {
      .sum = left.sum + right.sum,
      .waiting = std::max(right.waiting, left.waiting + right.sum_waiting),
      .sum_waiting = left.sum_waiting + right.sum_waiting,
      .peak = std::max(left.peak, left.sum + std::max(right.peak, left.waiting + right.peak_sum)),
      .peak_sum = std::max(left.peak_sum, left.sum + left.sum_waiting + right.peak_sum)};
}

/// One more slot at the end of a stretch.
inline void HeldTree::follow(Node& node, Change change) {
  node.sum += change.held;
  node.waiting = std::max(node.waiting + change.waiting, 0);
  node.sum_waiting += change.waiting;
  node.peak = std::max(node.peak, node.sum + node.waiting);
  node.peak_sum = std::max(node.peak_sum, node.sum + node.sum_waiting);
}

void HeldTree::renew(std::uint32_t node) {
  if (node < leaves()) {
    nodes_[node] = both(nodes_[2 * node], nodes_[2 * node + 1]);
    return;
  }
  Node leaf;
  const Change* slot = &slots_[std::size_t{node - leaves()} * kLeaf];
  for (const Change* end = slot + kLeaf; slot < end; ++slot) follow(leaf, *slot);
  nodes_[node] = leaf;
}

void HeldTree::refresh(std::uint32_t slot, std::uint32_t other) {
  std::uint32_t a = leaf_of(slot), b = leaf_of(other);
  for (; a != b; a /= 2, b /= 2) {
    renew(a);
    renew(b);
  }
  // Where both are below, most of what has changed cancels out.
  for (; a > 0; a /= 2) {
    const Node was = nodes_[a];
    renew(a);
    if (nodes_[a] == was) return;
  }
}

std::uint32_t HeldTree::first_beyond(std::int32_t limit) const {
  if (peak() <= limit) return kNowhere;
  Node before;
  std::uint32_t node = 1;
  while (node < leaves()) {
    node *= 2;
    const Node with_left = both(before, nodes_[node]);
    if (with_left.peak > limit) continue;
    before = with_left;
    ++node;
  }
  std::uint32_t slot = (node - leaves()) * kLeaf;
  for (;; ++slot) {
    follow(before, slots_[slot]);
    if (before.peak > limit) return slot;
  }
}

/// In a stretch after which `held` are: the last slot after which `limit` are or more. There is
/// one.
std::uint32_t HeldTree::last_with(std::int32_t limit, std::uint32_t node, std::int32_t held) const {
  while (node < leaves()) {
    node = 2 * node + 1;
    const std::int32_t before = held - nodes_[node].sum;
    if (before + nodes_[node].peak >= limit) continue;
    held = before;
    --node;
  }
  std::uint32_t slot = (node - leaves()) * kLeaf + kLeaf - 1;
  for (; held < limit; --slot) held -= slots_[slot].held;
  return slot;
}

std::uint32_t HeldTree::below_from(std::int32_t limit, std::uint32_t from, std::uint32_t end,
                                   std::int32_t held) const {
  for (std::uint32_t slot = end; slot % kLeaf != 0; held -= slots_[--slot].held)
    if (slot <= from || held >= limit) return std::max(slot, from);
  // From here on whole stretches, each before the one that has been looked at.
  std::uint32_t node = leaves() + end / kLeaf, stretch = 1;
  for (std::uint32_t first = end / kLeaf * kLeaf; first > from; node /= 2, stretch *= 2) {
    if (node % 2 == 0) continue;
    const Node& left = nodes_[node - 1];
    if (held - left.sum + left.peak >= limit)
      return std::max(last_with(limit, node - 1, held) + 1, from);
    held -= left.sum;
    first -= stretch * kLeaf;
  }
  return from;
}

}  // namespace penstock
