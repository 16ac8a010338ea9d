// SPDX-License-Identifier: Apache-2.0
// Which updates of a run are its steady state, of predicted and of measured runs alike.
//
// With a flush, iteration u lasts from the end of batch u-1 to the end of batch u, over all
// devices. Without a flush, the ends of updates on device 0 count, from the first after 2p
// microbatches to the drain, in steps of a multiple of p microbatches; where the run is too short
// for that and the widths are equal, to its end.
#pragma once

#include "program/program.hpp"
#include "program/timeline.hpp"

namespace penstock {

/// The update an op belongs to.
inline std::uint32_t update_of(const Program& program, const Op& op) {
  const std::uint32_t local = program.local(op);
  return is_compute(op.kind) ? local / program.per_update(op.stage) : local;
}

struct SteadyUpdates {
  std::uint32_t first = 0;  ///< updates before it are warm-up
  std::uint32_t end = 0;    ///< one past the last
  std::uint32_t step = 1;   ///< updates from one sample to the next
  bool whole_run = false;   ///< too short for a steady state

  bool contains(std::uint32_t update) const { return first <= update && update < end; }
  /// One past the last that is a whole number of steps after the first.
  std::uint32_t last() const { return first + (end - first) / step * step; }
};

/// At least `warm_up` updates are left out at first.
SteadyUpdates steady_updates(const Program& program, std::uint32_t warm_up);

/// Updates that a run without a flush needs for a steady state.
std::uint32_t updates_for_steady_state(const Program& program);

/// Enough of them for that, known before there is a program: of `microbatches` each, in a pipeline
/// of `depth` devices, whose stages have these numbers of replicas (none: one each).
std::uint32_t steady_batches(std::uint32_t depth, std::uint32_t microbatches,
                             const std::vector<int>& widths);

/// When an op of a measured timeline was not recorded, its end is before time 0.
inline bool happened(const Timeline& timeline, std::uint32_t g) {
  return timeline.op(g).end_s >= 0;
}

/// [0]: the start of the run; [u + 1]: the end of update u, on all devices or, without a flush, on
/// the first; NaN where an op of the update was not recorded.
std::vector<double> update_ends(const Program& program, const Timeline& timeline);

}  // namespace penstock
