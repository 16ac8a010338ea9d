// A schedule drawn in the terminal: a row per device, time to the right.
#pragma once

#include "cli/simulation.hpp"

namespace penstock {

/// At most `columns` wide. Each op is a cell as wide as its time; digits are the microbatch (of
/// its batch, from 1), forwards plain, backwards in letters when they fit: "F1", "B1".
std::string draw_schedule(const Simulation& simulation, const Result& result, int columns);

}  // namespace penstock
