// SPDX-License-Identifier: Apache-2.0
// A whole command line: parses it, runs the command, turns errors into exit codes.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// Of `penstock WORDS...`: the exit code; what it says goes to the standard streams. May be called
/// again and again.
int run_command_line(const std::vector<std::string>& words);

}  // namespace penstock
