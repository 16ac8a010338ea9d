// SPDX-License-Identifier: Apache-2.0
// Optimizer post-validation (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR'24, section 4):
// who hands whom the partial norm of the gradients.
//
// A step that clips gradients, or looks for NaNs, needs the norm of all of them: an all-reduce, at
// which all devices wait (StepSync::global). Instead a partial norm goes through the pipeline. With
// own(s) the start that position s's STEP would have by itself, and latency(s) that of the link
// from position s-1 to s,
//   start(0) = own(0)
//   start(s) = max(own(s), start(s-1) + latency(s))
// and the whole norm goes back while the next batch warms up; a step that it proves wrong is taken
// back and made again. Here none is: such steps are rare, and the way back holds up nobody.
//
// A device makes one STEP for all of its stages, whose gradients it adds to the norm at once: the
// norm goes from position to position (Placement::norm_from), also where the stages go back and
// forth. Every replica of a pipeline has the reduced gradients and a norm of its own. A norm is
// some bytes: its message takes the latency of the forward channel, no bandwidth, waits behind no
// other message, and neither end is held.
#pragma once

#include "program/program.hpp"

namespace penstock {

/// Bytes of a partial norm.
inline constexpr std::int64_t kNormBytes = 8;

class NormChain {
 public:
  explicit NormChain(const Program& program);
  /// Does a device's op wait for a partial norm?
  bool takes(const Op& op, int device) const {
    return op.kind == OpKind::step && !from_.empty() &&
           from_[static_cast<std::size_t>(device)] >= 0;
  }
  /// The STEP that hands its norm to a STEP that takes one.
  std::uint32_t giver(const Op& step, int device) const;
  /// Calls `visit(step, device)` for the STEPs that take the norm of a device's op, if it is a
  /// STEP.
  template <class Visit>
  void for_each_taker(const Op& op, int device, const Visit& visit) const {
    if (op.kind != OpKind::step || from_.empty()) return;
    const std::uint32_t update = program_->local(op);
    for (const int taker : takers_[static_cast<std::size_t>(device)])
      visit(steps_[static_cast<std::size_t>(taker)][update], taker);
  }

 private:
  const Program* program_;
  std::vector<int> from_;  // per device; empty: there is no post-validation
  std::vector<std::vector<int>> takers_;
  std::vector<std::vector<std::uint32_t>> steps_;  // per device, by update
};

}  // namespace penstock
