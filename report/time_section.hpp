// SPDX-License-Identifier: Apache-2.0
// A section that shows where the devices' time goes: computing, exchanges that nothing hides, and
// idle time by cause, stacked in one bar for all devices together and in one bar for each row of
// devices.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

/// Devices that do the same: one device, or the replicas of a stage.
struct TimeRow {
  std::string name;  ///< "device 3", "stage 1"
  int devices = 1;
};

struct TimePart {
  std::string kind;  ///< what chooses the colour (page/bars.js): "compute", "tensor", "warmup" ...
  std::string name;
  std::vector<double> seconds;  ///< for each row, those of one of its devices
};

struct TimeSection {
  SectionText text;
  double makespan_s = 0;
  std::vector<TimeRow> rows;
  std::vector<TimePart> parts;  ///< parts that are 0 in every row are left out of the page
};

/// Returns the section as JSON text for `Report::sections`.

std::string section_text(const TimeSection& time);

}  // namespace penstock
