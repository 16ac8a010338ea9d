// A launch script or argument list of Megatron-LM as a scenario.
#pragma once

#include "scenarios/shell_words.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// The scenario as YAML, with a comment line for each flag: what it became, that it changes nothing
/// that is predicted, that it cannot be modelled, or that it is not known. No flag is an error.
/// `cluster`: see JobCluster; its GPUs are used where the script does not count them. `defined`:
/// variables of the script. Throws InputError where the text has no Megatron-LM flag, and where
/// numbers depend on variables that are not known, all at once.
std::string scenario_of_megatron(std::string_view text, const std::string& origin,
                                 const std::string& cluster, const ShellVariables& defined = {});

}  // namespace penstock
