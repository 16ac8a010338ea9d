// SPDX-License-Identifier: Apache-2.0
// Schedules, scenarios, results or recordings side by side: a panel per quantity, a group of bars
// per thing that is compared.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

struct ComparisonBars {
  std::string name;            ///< "predicted", "measured"; of a panel's only bars it may be empty
  std::vector<double> values;  ///< one per name of the section; NaN: unknown
};

struct ComparisonPanel {
  std::string quantity;  ///< "iteration time"
  std::string unit;      ///< as of Column
  std::vector<ComparisonBars> bars;
};

struct ComparisonSection {
  SectionText text;
  std::vector<std::string> names;
  std::vector<ComparisonPanel> panels;
  std::vector<bool> bad = {};  ///< by name: it does not fit; empty: none
};

std::string section_text(const ComparisonSection& comparison);

}  // namespace penstock
