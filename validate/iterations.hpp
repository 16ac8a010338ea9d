// Which part of a run is compared: the iterations after the warm-up, cut the same way out of a
// predicted and a measured timeline.
//
// With a flush the first two are warm-up in runs of at least four, the first in shorter ones (a
// single batch is compared as it is); see program/iterations.hpp.
#pragma once

#include "program/iterations.hpp"
#include "program/timeline.hpp"

#include <vector>

namespace penstock {

/// The steady state without what of it is warm-up in runs of machines.
SteadyUpdates compared_updates(const Program& program);

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
