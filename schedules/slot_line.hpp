// SPDX-License-Identifier: Apache-2.0
// The slots of one device while passes are moved to earlier ones: which are free, and what the
// device holds after each. Private to repeated_block.cpp.
#pragma once

#include "schedules/blocks.hpp"
#include "schedules/held_tree.hpp"

#include <optional>
#include <span>

namespace penstock {

/// A pass in a slot.
struct Placed {
  Op op;
  std::uint32_t slot = 0;
};

class SlotLine {
 public:
  /// `fills_weights`: Ws are not among the passes; they take every slot that is free after an I.
  SlotLine(const SlotWidths& widths, std::span<const Placed> passes, bool fills_weights);

  /// The most activations held after any slot.
  std::int32_t peak() const;
  /// Keeps a pass where it is.
  void settle(const Placed& pass);
  /// Moves a pass to the earliest slot from `earliest` on that is free of the passes settled so
  /// far, with no more than `limit` activations held at any time; stays where it is when there is
  /// none. Passes are settled in the order of their slots.
  void move(Placed& pass, std::uint32_t earliest, std::int32_t limit);

 private:
  enum class Use : std::uint8_t {
    idle,
    forward,
    backward,
    backward_input,
    backward_weight,
    going_on,  ///< a later slot of a pass
  };
  struct State {
    std::int32_t held = 0;      ///< activations
    std::uint32_t waiting = 0;  ///< Ws that could run
    std::uint32_t left = 0;     ///< slots of the W that runs

    bool operator==(const State&) const = default;
  };

  static Use use_of(OpKind kind);
  HeldTree::Change change(Use use) const;
  std::uint32_t size() const { return static_cast<std::uint32_t>(uses_.size()); }
  void put_pass(const Placed& pass);
  void take_pass(const Placed& pass);
  void set(std::uint32_t slot, Use use);
  bool room_for_weight(std::uint32_t slot) const;
  State after(State before, std::uint32_t slot) const;
  State before(std::uint32_t slot) const { return slot == 0 ? State{} : states_[slot - 1]; }
  void move_listed(Placed& pass, std::uint32_t earliest, std::int32_t limit);
  void move_filling(Placed& pass, std::uint32_t earliest, std::int32_t limit);
  std::uint32_t first_beyond(std::int32_t limit, std::uint32_t from, std::uint32_t past) const;
  void update(std::uint32_t from, std::uint32_t past);
  std::uint32_t free_from(std::uint32_t slot);
  std::uint32_t next_free(std::uint32_t slot, std::uint32_t width);

  SlotWidths widths_;
  bool fills_weights_;
  std::vector<Use> uses_;
  /// Empty where Ws that fill take several slots each: those need room ahead, which is no HeldTree.
  std::optional<HeldTree> tree_;
  std::vector<State> states_;             ///< after each slot, where there is no tree
  std::int32_t held_ = 0;                 ///< after all settled passes, where no Ws fill
  std::vector<std::uint32_t> unsettled_;  ///< from each slot: the next that may be free
};

}  // namespace penstock
