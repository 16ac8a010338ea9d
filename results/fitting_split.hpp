// SPDX-License-Identifier: Apache-2.0
// `split: balanced` balances time. Where that does not fit, the nearest split that does: layers
// leave the device that lacks the most memory, one after the other, for the least busy device that
// has room for one more.
#pragma once

#include "results/simulation.hpp"

#include <optional>
#include <string>

namespace penstock {

/// Layers of each virtual stage as a scenario says them, "[18, 21, 21, 20]", by the exact engine.
/// None: the scenario fits as it is, none was found, or it is no model of layers, or too large a
/// run to repeat (100,000 ops).
std::optional<std::string> fitting_split(const Scenario& scenario);

/// The same where nobody listed the layers; else none.
std::optional<std::string> fitting_split_unless_listed(const Scenario& scenario);

/// Where nobody listed the layers and they do not fit: notes that split.
void note_fitting_split(const Scenario& scenario, Result& result);

}  // namespace penstock
