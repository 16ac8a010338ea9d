// SPDX-License-Identifier: Apache-2.0
// What scenarios learn: losses against updates, samples and simulated seconds, each line the mean
// of several seeds within a band from the least to the most of them.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

/// One point of a line.
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

std::string section_text(const LearningSection& learning);

}  // namespace penstock
