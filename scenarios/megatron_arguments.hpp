// A scenario as the command line of Megatron-LM's pretrain_gpt.py.
#pragma once

#include "scenarios/scenario.hpp"

namespace penstock {

/// One flag a line, with its value. Throws InputError with everything that Megatron-LM does not do.
std::string megatron_arguments(const Scenario& scenario);

}  // namespace penstock
