// SPDX-License-Identifier: Apache-2.0
// A scenario as the configuration of a torchtitan job (github.com/pytorch/torchtitan,
// torchtitan/config/job_config.py), the counterpart of `penstock import torchtitan-config`.
#pragma once

#include "scenarios/scenario.hpp"

#include <string>

namespace penstock {

/// Returns it as TOML. Throws InputError with everything that torchtitan cannot do.
std::string torchtitan_config(const Scenario& scenario);

}  // namespace penstock
