// From the document of a scenario to what it means.
#pragma once

#include "scenarios/library.hpp"
#include "scenarios/scenario.hpp"

namespace penstock {

/// Checks and resolves a document whose overrides are applied. Files that it names are looked for
/// in `folder`, too. Throws InputError with everything that is wrong.
Scenario build_scenario(const Value& document, std::string folder, Documents& documents,
                        Diagnostics& diagnostics);

}  // namespace penstock
