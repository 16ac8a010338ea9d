// SPDX-License-Identifier: Apache-2.0
// The points of a sweep: the product of its axes, over one or several scenarios, numbered so that a
// point follows from its number alone (nothing is stored per point, and any worker may take any
// point).
//
// The last axis varies fastest; scenarios slowest. Keys that are zipped form one axis. Points whose
// condition is false have no row.
#pragma once

#include "scenarios/scenario.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// One key, or several that move together: values[i] has a value for each key.
struct SweepAxis {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> values;
};

struct Point {
  std::uint64_t number = 0;
  std::size_t scenario = 0;       ///< the index of the scenario's file
  std::vector<Override> changes;  ///< in the order of the axes
};

}  // namespace penstock
