// A launch script or argument list of Megatron-LM as a scenario.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// The scenario as YAML, with a comment line for each flag: what it became, that it changes nothing
/// that is predicted, that it cannot be modelled, or that it is not known. No flag is an error.
/// `cluster`: one that has a name, whose nodes are counted by the script or the degrees; empty:
/// H100 nodes of eight, which a line says. Throws InputError where the text has no Megatron-LM
/// flag.
std::string scenario_of_megatron(std::string_view text, const std::string& origin,
                                 const std::string& cluster);

}  // namespace penstock
