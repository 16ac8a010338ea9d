// SPDX-License-Identifier: Apache-2.0
// The manual page, from the table of commands: what `--help` says of each of them, and what belongs
// to none of them (exit codes, environment, files).
#pragma once

#include <string>

namespace penstock {

/// In roff, with the macros of man(7).
std::string man_page();

}  // namespace penstock
