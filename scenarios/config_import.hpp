// SPDX-License-Identifier: Apache-2.0
// Configurations of nanotron (YAML) and torchtitan (TOML, or a launch script's flags) as scenarios,
// with a comment line for each option (import_notes.hpp). No option is an error.
#pragma once

#include "scenarios/shell_words.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// `cluster`: see JobCluster; `model`: a name, or a file, that goes before its sizes. Throws
/// InputError where the text is no YAML, or none of nanotron's, where it leaves out a size of the
/// model, and where that is no Llama.
std::string scenario_of_nanotron(const std::string& text, const std::string& origin,
                                 const std::string& cluster, const std::string& model = {});

/// `text`: a job's TOML, or a script with flags such as --parallelism.pipeline_parallel_degree.
/// A script's --job.config_file is read, where it lies beside `origin`; flags go over it.
/// `defined`: variables of the script; `model`: a name, or a file, that goes before its flavor.
/// Throws InputError where neither has an option of torchtitan's, where that file is not there,
/// where its flavor is not known and no model is given, and where numbers depend on variables that
/// are not known.
std::string scenario_of_torchtitan(const std::string& text, const std::string& origin,
                                   const std::string& cluster,
                                   const ScriptSurroundings& defined = {},
                                   const std::string& model = {});

}  // namespace penstock
