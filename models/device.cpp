// SPDX-License-Identifier: Apache-2.0
#include "models/device.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

std::int64_t DeviceSpec::capacity_bytes() const {
  if (memory_bytes == 0) return 0;
  return static_cast<std::int64_t>(static_cast<double>(memory_bytes - reserved_bytes) *
                                   (1 - allocator_slack) * (1 - headroom));
}

double DeviceSpec::efficiency_at(double hidden_size) const {
  if (efficiency.empty()) return 1;
  const auto above = std::ranges::find_if(
      efficiency, [&](const EfficiencyPoint& point) { return point.hidden_size >= hidden_size; });
  if (above == efficiency.begin()) return efficiency.front().share_of_peak;
  if (above == efficiency.end()) return efficiency.back().share_of_peak;
  const EfficiencyPoint& low = *(above - 1);
  const double t =
      std::log(hidden_size / low.hidden_size) / std::log(above->hidden_size / low.hidden_size);
  return low.share_of_peak + t * (above->share_of_peak - low.share_of_peak);
}

}  // namespace penstock
