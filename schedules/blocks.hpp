// SPDX-License-Identifier: Apache-2.0
// Building blocks (Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS'24).
//
// A schedule is the passes of one microbatch, each in a slot, repeated every T slots. It can run
// when no two passes of a device meet in a slot modulo T. A stage holds its activations for its
// lifespan l, from the start of F to the end of W (or B), so a device never holds more than
//     sum over its stages of ceil(l / T)                                          (equation 1)
// The pipeline is the block *repeated* for every microbatch, *squeezed* (every pass as early as the
// order on its device allows) and *reordered*: while the pipeline fills and drains, passes move to
// earlier free slots where the peak does not rise for it.
#pragma once

#include "schedules/generator.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Slots that passes take; a B is an I and a W.
struct SlotWidths {
  std::uint32_t forward = 1;
  std::uint32_t backward = 2;
  std::uint32_t backward_input = 1;
  std::uint32_t backward_weight = 1;

  std::uint32_t slots_of(OpKind kind) const;
};

/// The passes of one microbatch. Slots count from 0; every list has one entry per virtual stage.
struct BuildingBlock {
  Layout layout = Layout::snake;  ///< loop or snake
  std::uint32_t chunks = 2;       ///< v, virtual stages per device
  std::vector<std::uint32_t> forward{};
  std::vector<std::uint32_t> backward{};  ///< B; or else I and W:
  std::vector<std::uint32_t> backward_input{};
  /// Empty: each W takes the next free slot of its device after its I.
  std::vector<std::uint32_t> backward_weight{};
  std::uint32_t interval = 0;  ///< T; 0: as many slots as the passes of a device take
  SlotWidths widths{};

  std::uint32_t stages() const { return static_cast<std::uint32_t>(forward.size()); }
  std::uint32_t depth() const { return stages() / chunks; }
  bool splits_backward() const { return !backward_input.empty(); }
  /// B or I, whichever the block has.
  const std::vector<std::uint32_t>& gradients() const {
    return splits_backward() ? backward_input : backward;
  }
  /// T.
  std::uint32_t period() const;
};

/// One thing wrong with a block: a sentence that names passes, device and slots, and which of its
/// numbers to look at.
struct BlockProblem {
  static constexpr std::uint32_t kWhole = 0xFFFFFFFF;

  std::string why;
  std::string_view key;          ///< "forward", "interval", ...; "slots": how many a pass takes
  std::uint32_t stage = kWhole;  ///< whose slot of the list `key`; or all of it
};

/// What is wrong with a block; empty when nothing is. Nothing below may be asked of a block with
/// problems.
std::vector<BlockProblem> problems(const BuildingBlock& block);

/// The block with a slot for every W, those it takes when the block repeats for ever. Unchanged
/// when it has them, or has none.
BuildingBlock with_weights(const BuildingBlock& block);

/// Slots from the start of F to the end of W, or of B, per virtual stage.
std::vector<std::uint32_t> lifespans(const BuildingBlock& block);

/// Equation 1: activations of virtual stages that a device holds at most.
std::uint32_t memory_bound(const BuildingBlock& block, std::uint32_t device);

/// What becomes of a repeated block.
enum class Reorder : std::uint8_t {
  none,        ///< the order of the repeated block
  both_ends,   ///< before the first microbatch is through and after the last one has entered
  everywhere,  ///< between the two as well
  best,        ///< whichever of the three is through first with the times of the shape
};

/// Appends the order of m = microbatches_per_update microbatches, of depth() devices.
/// Passes move where no device then holds more than `limit` activations, or than any did in the
/// repeated block where that is more. Precondition: the block has no problems, and the stages of
/// the shape.
void generate_from_block(const BuildingBlock& block, const ScheduleShape& shape, OpLists& order,
                         Reorder reorder = Reorder::best, std::int32_t limit = 0);

/// A block as text: a line per device, a column per slot, e.g. "0F 1F .  1I"; below the lifespans
/// and the bound of each device. Lines longer than `columns` are cut into one drawing after the
/// other.
std::string draw(const BuildingBlock& block, std::size_t columns = std::string::npos);

/// A V of p devices (two chunks, there and back) from the slots between neighbours on the four legs
/// of a microbatch, F of the first and second chunk, I of the second and first, and those at the
/// three turns between the legs.
struct VShape {
  std::uint32_t legs[4] = {1, 1, 1, 1};
  std::uint32_t turns[3] = {1, 1, 1};
};
BuildingBlock v_block(std::uint32_t depth, const VShape& shape);

}  // namespace penstock
