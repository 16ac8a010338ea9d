// SPDX-License-Identifier: Apache-2.0
// "did you mean": the nearest known word for a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Returns the ASCII letters of the text in lower case.
std::string lower_case(std::string text);

/// The word in lower case with '-' for '_': how names are compared everywhere.
std::string folded(std::string_view text);

/// Number of insertions, deletions, substitutions and swaps of neighbours between two words.
int edit_distance(std::string_view a, std::string_view b);

/// The known word nearest to `word`, or "" when none is near enough to be a slip of the finger.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "; did you mean 'x'?" or "" when nothing is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace penstock
