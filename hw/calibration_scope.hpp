// SPDX-License-Identifier: Apache-2.0
// What a calibration's request asks for, measurement by measurement: so that one which was cut off
// can go on, and nobody takes a part for the whole.
#pragma once

#include "hw/calibration.hpp"

namespace penstock::scope {

struct Flow {
  int source, destination;
  bool backward;
};

inline constexpr TrafficPattern kAllTraffic[] = {
    TrafficPattern::one_way, TrafficPattern::both_ways, TrafficPattern::same_way,
    TrafficPattern::out,     TrafficPattern::into,      TrafficPattern::apart};

/// The messages that are sent at once.
std::vector<Flow> flows_of(TrafficPattern traffic);
/// Are there devices enough?
bool possible(TrafficPattern traffic, int workers);

/// Devices at work: one, and all.
std::vector<int> loads(const CalibrationRequest& request);
std::vector<StageShape> shapes(const CalibrationRequest& request);
/// None where no messages are asked for.
std::vector<TrafficPattern> traffic(const CalibrationRequest& request);

bool has_stage(const CalibrationResult& result, const StageShape& shape, int load);
bool has_links(const CalibrationResult& result, int load);

}  // namespace penstock::scope
