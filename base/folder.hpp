// SPDX-License-Identifier: Apache-2.0
// What is in a folder. Not std::filesystem's iterators: those of GCC's library (12) take memory
// where an exception must not leave them, so a program that has none left is aborted instead of
// told.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// Names, sorted; none where there is no such folder. Throws SystemError when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

/// Regular files in it and in folders below it, as paths, sorted. Throws SystemError.
std::vector<std::string> files_below(const std::string& folder);

/// Removes it and the files in it, as far as that goes; takes no memory.
void remove_folder(const char* folder) noexcept;

}  // namespace penstock
