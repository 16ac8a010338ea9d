// SPDX-License-Identifier: Apache-2.0
// What other programs' words mean here, as tables: scenarios/import/*.yaml, each of which says at
// its head what its tables hold. A file is read when it is first asked for, and then stays.
#pragma once

#include "scenarios/document.hpp"
#include "scenarios/import_notes.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// Returns the table `table` of scenarios/import/`importer`.yaml. Throws InputError where the file
/// cannot be read.
const Value& import_table(const std::string& importer, const std::string& table);

/// Returns whether a list of words has this one.
bool lists(const Value& list, std::string_view word);

/// Returns what a map says of `key`; empty where it says nothing.
std::string_view said_of(const Value& map, std::string_view key);

/// Returns the importer's tables `ignored`, `ignored_beginnings` and `unmodelled`.
KnownOptions known_options(const std::string& importer);

}  // namespace penstock
