// SPDX-License-Identifier: Apache-2.0
// How many ops an engine will play. Where replicas move in lockstep, `fluid` plays one of them
// (sim/lockstep.hpp).
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// Returns the number of ops that the engine plays of a scenario.
inline std::uint64_t played_ops(const Scenario& s, EngineChoice engine) {
  const bool in_lockstep = engine != EngineChoice::exact && s.mesh.width.alike() &&
                           !s.mesh.divided && !s.schedule->asynchronous && !s.documents &&
                           s.schedule->layout != Layout::mirrored && s.unlike.kind.empty();
  return count_ops(s.shape) / (in_lockstep ? static_cast<std::uint64_t>(s.mesh.width.at(0)) : 1);
}

}  // namespace penstock
