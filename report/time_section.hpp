// SPDX-License-Identifier: Apache-2.0
// Where the devices' time goes: computing, exchanges that nothing hides, every cause of idle time.
// Stacked, in one bar for all devices together and in one for each row of them.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

/// Devices that do the same: one, or those of all replicas of a stage.
struct TimeRow {
  std::string name;  ///< "device 3", "stage 1"
  int devices = 1;
};

struct TimePart {
  std::string kind;  ///< chooses the colour (page/bars.js): "compute", "tensor", "warmup" ...
  std::string name;
  std::vector<double> seconds;  ///< of one device of each row
};

struct TimeSection {
  SectionText text;
  double makespan_s = 0;
  std::vector<TimeRow> rows;
  std::vector<TimePart> parts;  ///< those that are nowhere more than 0 are left out
};

std::string section_text(const TimeSection& time);

}  // namespace penstock
