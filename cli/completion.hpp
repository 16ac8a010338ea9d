// SPDX-License-Identifier: Apache-2.0
// Completion for shells: one list, from the table of commands, of what may stand in which place of
// the command line, and a script in each shell's language (cli/shipped) that looks it up. Shipped
// names are those there are when it is written.
#pragma once

#include <string>

namespace penstock {

/// Returns the script for bash, zsh or fish. Throws InputError where its text is not shipped.
std::string completion_script(const std::string& shell);

}  // namespace penstock
