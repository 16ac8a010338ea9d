// SPDX-License-Identifier: Apache-2.0
// Shorthand of tests: where the devices of a Program are.
#pragma once

#include "scenarios/scenario.hpp"

namespace penstock {

/// The first GPU of every device.
inline std::vector<int> first_gpus(const Scenario& s) {
  std::vector<int> first;
  for (const std::vector<int>& gpus : s.mesh.gpus) first.push_back(gpus.front());
  return first;
}

}  // namespace penstock
