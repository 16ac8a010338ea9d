// SPDX-License-Identifier: Apache-2.0
// `--set key=value`, and values of the code's own: changes to a document before it is read.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Applies the overrides in order; what is wrong with them goes to `diagnostics`.
void apply_overrides(Value& document, const std::vector<Override>& overrides,
                     Diagnostics& diagnostics);
/// The same of values.
void apply_overrides(Value& document, const Settings& settings, Diagnostics& diagnostics);

/// The full path of a key as `--set` takes it, by the names of the table ({"pipeline", "stages"}
/// for `depth`). Throws InputError about `origin`, with a suggestion.
std::vector<std::string> key_path(const std::string& key, const std::string& origin);

/// The row of the table for a path; null where there is none (a curve's points, a rate's type).
const KeyRow* key_row(const std::vector<std::string>& path);

/// What a document has at a path, under whichever name; null when it has nothing there.
const Value* value_at(const Value& document, const std::vector<std::string>& path);

}  // namespace penstock
