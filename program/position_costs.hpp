// What all stages of a position of the pipeline cost together: its optimizer step, its gradient
// reduction.
#pragma once

#include "program/op_lists.hpp"

namespace penstock {

template <class Number>
Number at_position(const Placement& placement, const std::vector<StageCosts>& costs,
                   std::uint32_t position, Number StageCosts::*what) {
  Number sum = 0;
  for (const std::uint32_t stage : placement.stages_at(position)) sum += costs[stage].*what;
  return sum;
}

}  // namespace penstock
