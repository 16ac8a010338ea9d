// SPDX-License-Identifier: Apache-2.0
// A section that draws predicted against measured values: one panel for each quantity, one point
// for each row, on logarithmic axes, with the line on which both agree and the two lines that are
// 10 % off.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

struct ScatterPoint {
  std::string name;  ///< the name of the row
  double measured = 0, predicted = 0;
};

struct ScatterGroup {
  std::string name;  ///< the class of the rows (column `class`)
  std::vector<ScatterPoint> points;
};

struct ScatterPanel {
  std::string quantity;  ///< "time of an iteration"
  std::string unit;      ///< as in Column (table_section.hpp)
  std::vector<ScatterGroup> groups;
};

struct ScatterSection {
  SectionText text;
  std::vector<ScatterPanel> panels;
};

/// Returns the section as JSON text for `Report::sections`. Leaves out points of which a value is
/// not above 0, as these have no place on logarithmic axes.
std::string section_text(const ScatterSection& scatter);

}  // namespace penstock
