// SPDX-License-Identifier: Apache-2.0
// The manual page: cli/shipped/penstock.1, with what the tables say of commands and exit codes.
#pragma once

#include <string>

namespace penstock {

/// Returns it in roff, with the macros of man(7). Throws InputError where its text is not shipped.
std::string man_page();

}  // namespace penstock
