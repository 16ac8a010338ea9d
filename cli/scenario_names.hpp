// SPDX-License-Identifier: Apache-2.0
// Shipped scenarios by their name: `penstock simulate gpt-2.2b-2bw`, from any directory.
//
// A name is a word without a folder and without the ending of a file. A file that is called so goes
// first; the commands themselves know only files.
#pragma once

#include "cli/options.hpp"

namespace penstock {

/// The file of what is shipped in a folder ("scenarios", "models") under this name.
std::string shipped_file(const std::string& folder, const std::string& name);

/// Puts the file of a shipped scenario in the place of its name wherever `command` takes a
/// scenario. Throws InputError, with a suggestion, for a name that is neither file nor scenario.
void name_scenario_files(const CommandSpec& command, Arguments& arguments);

}  // namespace penstock
