// SPDX-License-Identifier: Apache-2.0
#include "program/latest_versions.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock {

LatestVersions::LatestVersions(const OpLists& ops, const Timeline& timeline)
    : made_(static_cast<std::size_t>(ops.devices())) {
  std::vector<std::pair<std::int64_t, std::size_t>> updates;
  for (int d = 0; d < ops.devices(); ++d) {
    for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g) {
      if (ops[g].kind != OpKind::step) continue;
      updates.emplace_back(std::llround(timeline.op(g).end_s * 1e9), static_cast<std::size_t>(d));
    }
  }
  std::ranges::sort(updates);
  for (std::uint32_t i = 0; i < updates.size(); ++i) made_[updates[i].second].push_back(i);
}

std::uint32_t LatestVersions::version(int device, std::uint32_t update) const {
  const auto& made = made_[static_cast<std::size_t>(device)];
  return update == 0 ? 0 : made[update - 1] + 1;
}

std::uint32_t LatestVersions::staleness(std::size_t device, std::size_t update) const {
  const auto before = version(static_cast<int>(device), static_cast<std::uint32_t>(update));
  return made_[device][update] - before;
}

std::uint32_t LatestVersions::staleness_max(int device) const {
  const auto d = static_cast<std::size_t>(device);
  std::uint32_t most = 0;
  for (std::size_t u = 0; u < made_[d].size(); ++u) most = std::max(most, staleness(d, u));
  return most;
}

double LatestVersions::staleness_mean() const {
  double sum = 0, count = 0;
  for (std::size_t d = 0; d < made_.size(); ++d) {
    for (std::size_t u = 1; u < made_[d].size(); ++u, ++count) sum += staleness(d, u);
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace penstock
