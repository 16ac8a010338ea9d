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

double DeviceSpec::product_ratio(const std::string& type, const std::string& over) const {
  const auto mine = peak_flops_per_s.find(type), other = peak_flops_per_s.find(over);
  if (mine == peak_flops_per_s.end() || other == peak_flops_per_s.end()) return 1;
  const auto my_share = product_share.find(type), other_share = product_share.find(over);
  const bool both = my_share != product_share.end() && other_share != product_share.end();
  return other->second / mine->second * (both ? other_share->second / my_share->second : 1);
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
