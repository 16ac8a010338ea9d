// SPDX-License-Identifier: Apache-2.0
// A scenario as the command line of Megatron-LM's pretrain_gpt.py.
#pragma once

#include "scenarios/scenario.hpp"

namespace penstock {

/// It has 1F1B, interleaved where a device has several chunks; without a pipeline, every schedule
/// that flushes is the same.
bool megatron_runs(const Schedule& schedule, std::uint32_t depth);

/// One flag a line, with its value. Throws InputError with everything that Megatron-LM does not do.
std::string megatron_arguments(const Scenario& scenario);

/// What the scenario says and no flag does, a key each, with its value where that is one.
std::vector<std::string> left_out_of_megatron(const Scenario& scenario);

}  // namespace penstock
