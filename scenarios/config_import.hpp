// Configurations of nanotron (YAML) and torchtitan (TOML, or a launch script's flags) as scenarios,
// with a comment line for each option (import_notes.hpp). No option is an error.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// `cluster`: one that has a name, whose nodes are counted by the degrees; empty: H100 nodes of
/// eight, which a line says. Throws InputError where the text is no YAML, or none of nanotron's.
std::string scenario_of_nanotron(const std::string& text, const std::string& origin,
                                 const std::string& cluster);

/// `text`: a job's TOML, or a script with flags such as --parallelism.pipeline_parallel_degree.
/// Throws InputError where neither has an option of torchtitan's.
std::string scenario_of_torchtitan(const std::string& text, const std::string& origin,
                                   const std::string& cluster);

}  // namespace penstock
