// SPDX-License-Identifier: Apache-2.0
// Texts that are shipped with the program (scripts for shells, the manual page, what the keys'
// reference says beside its tables), with places that the tables of the program fill.
#pragma once

#include <map>
#include <string>

namespace penstock {

/// Returns the file at `path` of the folder that is shipped, with the line `@name@` (or that part
/// of one) replaced by the text of this name. Throws InputError where the file cannot be read.
std::string shipped_text(const std::string& path, const std::map<std::string, std::string>& parts);

}  // namespace penstock
