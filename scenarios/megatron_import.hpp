// SPDX-License-Identifier: Apache-2.0
// A launch script or argument list of Megatron-LM as a scenario.
#pragma once

#include "scenarios/shell_words.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// The scenario as YAML, with a comment line for each flag: what it became, that it changes nothing
/// that is predicted, that it cannot be modelled, or that it is not known. `text`: a script, a list
/// of arguments, or a file of the same as YAML (flag_files.hpp). `cluster`: see JobCluster; its
/// GPUs are used where the script does not count them. `defined`: variables of the script, and
/// flags, which go over its own. `model`: a name or file that gives the model's sizes instead of
/// flags. Throws InputError where the text has no Megatron-LM flag, where it trains another kind of
/// model, and with all at once that it does not say and that would make it another job.
std::string scenario_of_megatron(std::string_view text, const std::string& origin,
                                 const std::string& cluster, const ScriptSurroundings& defined = {},
                                 const std::string& model = {});

}  // namespace penstock
