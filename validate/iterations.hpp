// Which part of a run is compared: the iterations after the warm-up, cut the same way out of a
// predicted and a measured timeline.
//
// With a flush, iteration u lasts from the end of batch u-1 to the end of batch u, over all
// devices; the first two are warm-up in runs of at least four, the first in shorter ones (a single
// batch is compared as it is). Without a flush, the ends of updates on device 0 count, from the
// first after 2p microbatches to the drain, in steps of a multiple of p microbatches.
#pragma once

#include "program/program.hpp"
#include "program/timeline.hpp"

#include <vector>

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
};
SteadyUpdates steady_updates(const Program& program);

/// When an op of a measured timeline was not recorded, its end is before time 0.
inline bool happened(const Timeline& timeline, std::uint32_t g) {
  return timeline.op(g).end_s >= 0;
}

/// [0]: the start of the run; [u + 1]: the end of update u, on all devices or, without a flush, on
/// the first; NaN where an op of the update was not recorded.
std::vector<double> update_ends(const Program& program, const Timeline& timeline);

/// Seconds per update, a sample every `steady.step` updates; updates that are not whole are left
/// out.
std::vector<double> iteration_samples(const Program& program, const Timeline& timeline,
                                      const SteadyUpdates& steady);

}  // namespace penstock
