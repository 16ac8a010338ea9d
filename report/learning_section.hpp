// SPDX-License-Identifier: Apache-2.0
// A section that shows how scenarios learn: the loss against updates, samples and simulated
// seconds. Each line is the mean over several seeds, within a band from the lowest to the highest
// of them.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

/// One point of a line: where it stands on the three axes, and the loss over the seeds.
struct LearnedPoint {
  double update = 0, samples = 0, simulated_s = 0;
  double mean = 0, least = 0, most = 0;
};

struct LearnedLine {
  std::string name;
  std::vector<LearnedPoint> points;
};

struct LearningSection {
  SectionText text;
  std::string quantity;  ///< "loss", "loss on held-out data"
  std::vector<LearnedLine> lines;
};

/// Returns the section as JSON text for `Report::sections`.
std::string section_text(const LearningSection& learning);

}  // namespace penstock
