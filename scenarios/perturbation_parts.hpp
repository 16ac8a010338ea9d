// Reader of `perturbations`: what disturbs a run.
#pragma once

#include "models/perturbation.hpp"
#include "program/vocabulary.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Reads and checks all but the names of links, which are known once the run's channels are.
/// `devices`: of the Program; 0: not known, so not checked.
PerturbationSpec read_perturbations(const Section& section, int devices, Transfers transfers,
                                    Diagnostics& diagnostics);

}  // namespace penstock
