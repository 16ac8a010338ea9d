// SPDX-License-Identifier: Apache-2.0
// Predicted against measured, a point per row and a panel per quantity: both axes logarithmic, with
// the line on which both agree and two that are 10 % off.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

struct ScatterPoint {
  std::string name;  ///< of the row
  double measured = 0, predicted = 0;
};

struct ScatterGroup {
  std::string name;  ///< the class of its rows
  std::vector<ScatterPoint> points;
};

struct ScatterPanel {
  std::string quantity;  ///< "time of an iteration"
  std::string unit;      ///< as of Column
  std::vector<ScatterGroup> groups;
};

struct ScatterSection {
  SectionText text;
  std::vector<ScatterPanel> panels;
};

/// Points without two numbers above 0, which have no place on these axes, are left out.
std::string section_text(const ScatterSection& scatter);

}  // namespace penstock
