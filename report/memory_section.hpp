// SPDX-License-Identifier: Apache-2.0
// A section that shows the memory of each device over time, against its capacity, and what the
// peaks consist of.
#pragma once

#include "report/section.hpp"
#include "traces/memory.hpp"

#include <vector>

namespace penstock {

struct MemoryLine {
  std::string name;                 ///< "device 3", "stage 1"
  std::int64_t capacity_bytes = 0;  ///< 0: unknown
  MemoryPeak peak;
  /// the op at which the peak happens, such as "2F5"; empty: it is there from the start
  std::string peak_op;
  std::vector<std::pair<double, std::int64_t>>
      samples;  ///< a time in seconds, and the bytes from then on
};

/// Returns the memory of one device over the run. Its peak is 0, and nothing is drawn, where the
/// scenario gives no sizes.
MemoryLine memory_line(const MemoryInput& input, int device, std::int64_t capacity_bytes);

struct MemorySection {
  SectionText text;
  std::vector<MemoryLine> lines;
  double end_s = 0;       ///< the end of the run
  bool over_time = true;  ///< false: the section shows only what the peaks consist of
};

/// Returns the section as JSON text for `Report::sections`. Thins the lines to `most_points` points
/// in all; of points that fall together the highest is kept.
std::string section_text(const MemorySection& memory, std::size_t most_points = 100'000);

}  // namespace penstock
