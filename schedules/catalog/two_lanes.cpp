// SPDX-License-Identifier: Apache-2.0
#include "schedules/catalog/two_lanes.hpp"

#include <algorithm>

namespace penstock {

double bubble_of_units(const ScheduleShape& shape, double gaps, double stages_per_device,
                       std::uint32_t unit) {
  const std::uint32_t m = shape.microbatches_per_update;
  if (m % unit != 0) return kNoClaim;
  const StageTimes t = shape.time(0);
  const auto [shorter, longer] = std::minmax({t.forward, t.backward()});
  const double units = m / unit;
  const double idle = gaps * (units * longer - (units - 1) * shorter);
  return idle / (idle + stages_per_device * m * (t.forward + t.backward()));
}

}  // namespace penstock
