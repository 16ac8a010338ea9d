// SPDX-License-Identifier: Apache-2.0
#include "hw/calibration_scope.hpp"

#include <algorithm>
#include <iterator>

namespace penstock {
namespace scope {

std::vector<Flow> flows_of(TrafficPattern traffic) {
  const Flow one{0, 1, false};
  switch (traffic) {
    case TrafficPattern::one_way: return {one};
    case TrafficPattern::both_ways: return {one, {1, 0, true}};
    case TrafficPattern::same_way: return {one, {0, 1, true}};
    case TrafficPattern::out: return {one, {0, 2, false}};
    case TrafficPattern::into: return {one, {2, 1, true}};
    case TrafficPattern::apart: return {one, {2, 3, false}};
  }
  return {};
}

bool possible(TrafficPattern traffic, int workers) {
  return std::ranges::all_of(flows_of(traffic), [&](const Flow& flow) {
    return std::max(flow.source, flow.destination) < workers;
  });
}

std::vector<int> loads(const CalibrationRequest& request) {
  return request.workers > 1 ? std::vector<int>{1, request.workers} : std::vector<int>{1};
}

std::vector<StageShape> shapes(const CalibrationRequest& request) {
  std::vector<StageShape> all;
  for (const Recompute recompute : request.recompute) {
    for (const std::int64_t size : request.microbatch_sizes) {
      for (const int layers : request.layer_counts)
        all.push_back({StageRole::middle, layers, size, recompute});
      for (const StageRole role : {StageRole::first, StageRole::last})
        all.push_back({role, request.layer_counts[0], size, recompute});
    }
  }
  return all;
}

std::vector<TrafficPattern> traffic(const CalibrationRequest& request) {
  std::vector<TrafficPattern> all;
  if (request.message_bytes.empty()) return all;
  std::ranges::copy_if(kAllTraffic, std::back_inserter(all),
                       [&](TrafficPattern t) { return possible(t, request.workers); });
  return all;
}

bool has_stage(const CalibrationResult& result, const StageShape& shape, int load) {
  return std::ranges::any_of(
      result.ops, [&](const OpMeasurement& m) { return m.stage == shape && m.load == load; });
}

bool has_links(const CalibrationResult& result, int load) {
  const auto of_load =
      std::ranges::count(result.links, load, [](const LinkMeasurement& m) { return m.load; });
  return static_cast<std::size_t>(of_load) >=
         traffic(result.request).size() * result.request.message_bytes.size();
}

}  // namespace scope

bool is_complete(const CalibrationResult& result) {
  for (const int load : scope::loads(result.request)) {
    if (!scope::has_links(result, load)) return false;
    for (const StageShape& shape : scope::shapes(result.request)) {
      if (!scope::has_stage(result, shape, load)) return false;
    }
  }
  return true;
}

}  // namespace penstock
