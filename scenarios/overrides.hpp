// `--set key=value`: changes to a document before it is read.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Applies the overrides in order; what is wrong with them goes to `diagnostics`.
void apply_overrides(Value& document, const std::vector<Override>& overrides,
                     Diagnostics& diagnostics);

}  // namespace penstock
