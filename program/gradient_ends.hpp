// SPDX-License-Identifier: Apache-2.0
// Which ops complete gradients: of every update the last B or W of each stage of a device. The
// parts of a gradient reduction that belong to a stage are there when that op has got so far, long
// before the device's last backward where it has several stages (Megatron-LM reduces the gradients
// of each model chunk by itself).
#pragma once

#include "program/program.hpp"

#include <utility>
#include <vector>

namespace penstock {

class GradientEnds {
 public:
  GradientEnds() = default;
  explicit GradientEnds(const Program& program);

  /// Returns the REDUCE_GRAD before which op `g` is the last to add to its stage's gradient; kNoOp
  /// where it is not. O(log n) in the stages and updates of the run.
  std::uint32_t reduced_by(std::uint32_t g) const;
  /// Returns the op that completes a stage's gradient for a REDUCE_GRAD; kNoOp where none does.
  std::uint32_t last_of(std::uint32_t reduce, std::uint32_t stage) const;
  /// Returns the stages of a REDUCE_GRAD in the order in which their gradients are complete.
  std::vector<std::uint16_t> stages_in_order(std::uint32_t reduce) const;

 private:
  struct End {
    std::uint32_t op, reduce;
    std::uint16_t stage;
  };
  /// Returns the ends of a REDUCE_GRAD, in the order of its device.
  std::pair<std::vector<End>::const_iterator, std::vector<End>::const_iterator> ends_of(
      std::uint32_t reduce) const;

  std::vector<End> ends_;  // sorted by op and, as updates follow one another, by reduction
};

}  // namespace penstock
