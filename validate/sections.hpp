// A recording's comparison as sections of a report: predicted above measured on one time axis, and
// where the error comes from.
//
// The timelines are laid on each other at the first update after the warm-up, so that what is seen
// is the difference within these iterations, not what has added up before; the page can lay them on
// each other at any other.
#pragma once

#include "validate/validation.hpp"

#include <string>
#include <vector>

namespace penstock {

std::vector<std::string> validation_sections(const ValidationInput& input,
                                             const Validation& validation);

}  // namespace penstock
