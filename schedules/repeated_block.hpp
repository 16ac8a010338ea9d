// SPDX-License-Identifier: Apache-2.0
// A building block repeated for m microbatches: which pass of which device is in which slot, and
// the transformations of that table (blocks.hpp has the idea). Private to blocks.cpp.
//
// The greedy reorder walks the passes by slot and moves each to the earliest free slot after what
// it waits for, if no device then holds more than any did. Between the first microbatch's last
// backward and the last microbatch's first forward nothing moves: there the block repeats. Without
// slots of their own, Ws are placeholders in a first round, one for each I in turn; then they are
// taken out and the end is reordered once more, with Ws in whatever is free; last, every free slot
// takes a W, those of later stages first. (The paper's released code orders V-Half and V-Min so.)
#pragma once

#include "schedules/slot_line.hpp"

namespace penstock {

class RepeatedBlock {
 public:
  /// Precondition: the block has no problems.
  RepeatedBlock(const BuildingBlock& block, std::uint32_t microbatches);

  /// With no more activations on a device than `limit`, or than any holds as the block repeats
  /// where that is more.
  void reorder(Reorder how, std::int32_t limit);
  void append_to(OpLists& order) const;

 private:
  /// What moves: passes while the pipeline fills and drains, only while it drains, or all.
  enum class Part : std::uint8_t { both_ends, end, all };
  struct Where {
    std::uint32_t device, index;
  };

  void repeat(OpKind kind, const std::vector<std::uint32_t>& slots);
  std::vector<Where> by_slot() const;
  void move_passes(Part part, std::int32_t limit);
  void squeeze();
  void add_placeholders();
  void take_out_weights();
  std::vector<Op> with_every_weight(const std::vector<Placed>& device) const;

  BuildingBlock block_;
  std::vector<std::uint32_t> position_;  // of each virtual stage
  std::uint32_t microbatches_;
  bool weights_fill_;                         // the block has no slots for W
  std::vector<std::vector<Placed>> devices_;  // by slot
};

}  // namespace penstock
