// SPDX-License-Identifier: Apache-2.0
// Memory of each device over time against its capacity, and what the peaks consist of.
#pragma once

#include "report/section.hpp"
#include "traces/memory.hpp"

#include <vector>

namespace penstock {

struct MemoryLine {
  std::string name;                 ///< "device 3", "stage 1"
  std::int64_t capacity_bytes = 0;  ///< 0: unknown
  MemoryPeak peak;
  std::string peak_op;                                   ///< "2F5"; empty: what is always there
  std::vector<std::pair<double, std::int64_t>> samples;  ///< seconds, bytes from then on
};

/// Of one device. Without sizes there is nothing to draw: the peak is 0.
MemoryLine memory_line(const MemoryInput& input, int device, std::int64_t capacity_bytes);

struct MemorySection {
  SectionText text;
  std::vector<MemoryLine> lines;
  double end_s = 0;       ///< of the run
  bool over_time = true;  ///< false: only what the peaks consist of
};

/// Lines are thinned to `most_points` together, keeping the highest of those that fall together.
std::string section_text(const MemorySection& memory, std::size_t most_points = 100'000);

}  // namespace penstock
