// SPDX-License-Identifier: Apache-2.0
// The critical path of a simulated run, and what shared links cost it.
//
// A message on the path is slowed by `contended_s` = (arrival - departure) - (bytes/bandwidth +
// latency), and on FIFO links by the time it stands in line behind others; a reduction by what its
// chain of parts takes beyond its time alone. The link named is the one of its route that others
// used most meanwhile: the largest sum of (overlap * their share of the bandwidth); of a reduction
// whose own flows stand in line at FIFO links, the one they occupy longest.
#pragma once

#include "sim/engine.hpp"
#include "traces/metrics.hpp"

namespace penstock {

/// What the parts of each position's reduction take alone: what `critical_path` asks for.
ReductionParts reduction_parts(const SimulationInput& input);

/// The critical path with `contended_s` and `link` (an index into the traffic's links). Where links
/// degrade (perturbations.links), what that costs on contended channels is part of `contended_s`.
std::vector<PathSegment> contended_path(const SimulationInput& input, const Timeline& timeline);

}  // namespace penstock
