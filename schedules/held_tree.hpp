// SPDX-License-Identifier: Apache-2.0
// The activations a device holds after each slot of a line, as a tree over stretches of slots: a
// pass moves, and the peak is known again, in the logarithm of how far it moved.
//
// Ws that take every free slot make a queue: w wait before a slot, max(w + change, 0) after it.
// Over a stretch of slots that is max(a, w + b), and the most that is held max(c, w + d), with held
// = passes so far + w. Both forms survive when one stretch follows another. Private to
// slot_line.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

class HeldTree {
 public:
  /// What a slot adds to the activations held while all Ws wait, and to the Ws that wait.
  struct Change {
    std::int8_t held = 0;
    std::int8_t waiting = 0;
  };
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;

  explicit HeldTree(std::vector<Change> slots);

  /// The most activations held after any slot.
  std::int32_t peak() const { return nodes_[1].peak; }
  void set(std::uint32_t slot, Change change) { slots_[slot] = change; }
  /// To be called after `set` of these two slots, before anything is asked.
  void refresh(std::uint32_t slot, std::uint32_t other);
  /// The first slot after which more than `limit` are held; kNowhere when there is none.
  std::uint32_t first_beyond(std::int32_t limit) const;
  /// The first slot from `from` on such that fewer than `limit` are held after it and after all
  /// others before `end`; `held` are after the last of them. Precondition: no Ws wait.
  std::uint32_t below_from(std::int32_t limit, std::uint32_t from, std::uint32_t end,
                           std::int32_t held) const;

 private:
  /// A stretch of slots.
  struct Node {
    std::int32_t sum = 0;            ///< of the changes of held
    std::int32_t waiting = 0;        ///< a: Ws that wait after it when none does before
    std::int32_t sum_waiting = 0;    ///< b
    std::int32_t peak = -kMany;      ///< c: most held when no W waits before
    std::int32_t peak_sum = -kMany;  ///< d

    bool operator==(const Node&) const = default;
  };
  static constexpr std::int32_t kMany = 1 << 29;
  static constexpr std::uint32_t kLeaf = 8;  // slots; a leaf's are walked

  static Node both(const Node& left, const Node& right);
  static void follow(Node& node, Change change);
  std::uint32_t leaves() const { return static_cast<std::uint32_t>(nodes_.size() / 2); }
  std::uint32_t leaf_of(std::uint32_t slot) const { return leaves() + slot / kLeaf; }
  void renew(std::uint32_t node);
  std::uint32_t last_with(std::int32_t limit, std::uint32_t node, std::int32_t held) const;

  std::vector<Change> slots_;
  std::vector<Node> nodes_;  // those below node i are 2i and 2i+1; the second half are leaves
};

}  // namespace penstock
