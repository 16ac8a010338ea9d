// SPDX-License-Identifier: Apache-2.0
// The parts of a report's page, which embed.py compiles into the program. Each part is a list of
// pieces, to be joined, because compilers limit the length of a string.
#pragma once

#include <string_view>
#include <vector>

namespace penstock::embedded {

/// Returns the pieces of the style sheet.
std::vector<std::string_view> style();
/// Returns the pieces of the chart library (ECharts).
std::vector<std::string_view> library();
/// Returns the pieces of our own JavaScript.
std::vector<std::string_view> page();

/// Hashes of the two scripts, "sha256-...", as the page's Content-Security-Policy names them.
extern const std::string_view kLibraryHash, kPageHash;

}  // namespace penstock::embedded
