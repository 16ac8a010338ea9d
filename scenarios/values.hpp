// What is wrong with the values of a scenario each by itself, whatever the others are: a word that
// is no choice, a number that is none, a name that nobody knows, a file that is not there. What
// does not go together (48 layers in 5 stages) is found when the scenario is resolved.
//
// Every file that the scenario names, and those that these name, is read on the way.
#pragma once

#include "scenarios/library.hpp"

namespace penstock {

/// Of a scenario, or of a part of one.
void check_values(const Value& scenario, Library& library, Diagnostics& diagnostics);

/// The schedule of this name; null, with a diagnostic, where there is none.
const Schedule* schedule_named(const Value& name, Diagnostics& diagnostics);

}  // namespace penstock
