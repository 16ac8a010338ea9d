// SPDX-License-Identifier: Apache-2.0
// The parts of a report's page, made part of the program by embed.py: in pieces, as compilers limit
// the length of a string.
#pragma once

#include <string_view>
#include <vector>

namespace penstock::embedded {

std::vector<std::string_view> style();
std::vector<std::string_view> library();
std::vector<std::string_view> page();

/// As the page's Content-Security-Policy names them: "sha256-...".
extern const std::string_view kLibraryHash, kPageHash;

}  // namespace penstock::embedded
