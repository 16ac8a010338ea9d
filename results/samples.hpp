// SPDX-License-Identifier: Apache-2.0
// A scenario over many draws of what differs from microbatch to microbatch, and of its jitter:
// quantiles of its time, its memory and its bubble.
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// Simulates so many draws, as many at a time as there are cores. Throws InputError where the
/// engine cannot represent the scenario.
SampleStudy study_samples(const Scenario& scenario, EngineChoice engine, int samples);

}  // namespace penstock
