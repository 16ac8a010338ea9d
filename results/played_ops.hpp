// SPDX-License-Identifier: Apache-2.0
// How many ops an engine is expected to play: `fluid` plays one of replicas that move in lockstep
// (sim/lockstep.hpp).
#pragma once

#include "results/simulation.hpp"

namespace penstock {

inline std::uint64_t played_ops(const Scenario& s, EngineChoice engine) {
  const bool in_lockstep = engine != EngineChoice::exact && s.mesh.width.alike() &&
                           !s.mesh.divided && !s.schedule->asynchronous &&
                           s.schedule->layout != Layout::mirrored && s.unlike.kind.empty();
  return count_ops(s.shape) / (in_lockstep ? static_cast<std::uint64_t>(s.mesh.width.at(0)) : 1);
}

}  // namespace penstock
