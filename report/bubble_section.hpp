// What each device did with the run's time: busy, and every cause of its idle time, stacked.
#pragma once

#include "report/section.hpp"
#include "traces/metrics.hpp"

#include <vector>

namespace penstock {

struct BubbleSection {
  SectionText text;
  double makespan_s = 0;
  std::vector<DeviceMetrics> devices;
};

std::string section_text(const BubbleSection& bubble);

}  // namespace penstock
