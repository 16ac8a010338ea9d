// SPDX-License-Identifier: Apache-2.0
// A section that shows schedules, scenarios, results or recordings side by side: one panel for each
// quantity, and in it one group of bars for each thing that is compared.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

struct ComparisonBars {
  std::string name;  ///< such as "predicted"; may be empty where a panel has one set of bars
  std::vector<double>
      values;  ///< one for each of the section's names, in the panel's unit; NaN: unknown
};

struct ComparisonPanel {
  std::string quantity;  ///< "iteration time"
  std::string unit;      ///< as in Column (table_section.hpp)
  std::vector<ComparisonBars> bars;
};

struct ComparisonSection {
  SectionText text;
  std::vector<std::string> names;
  std::vector<ComparisonPanel> panels;
  std::vector<bool> bad = {};  ///< for each name: whether it does not fit; empty: all fit
};

/// Returns the section as JSON text for `Report::sections`.
std::string section_text(const ComparisonSection& comparison);

}  // namespace penstock
