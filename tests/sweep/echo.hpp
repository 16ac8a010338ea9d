// SPDX-License-Identifier: Apache-2.0
// Points and rows without scenarios, for tests of what carries them: a row says what its point
// said.
#pragma once

#include "sweep/workers.hpp"

#include <string>

namespace penstock {

inline Row echo_of(const Point& point) {
  Row row;
  row.point = point.number;
  row.scenario = point.changes.at(0).value;
  row.numbers.assign(row.numbers.size(), 1.0 / static_cast<double>(point.number + 1));
  return row;
}

/// Points 0 to n-1.
inline NextPoint echo_points(std::uint64_t n) {
  return [n, number = std::uint64_t{0}]() mutable -> std::optional<Point> {
    if (number == n) return std::nullopt;
    const std::string value = "value-" + std::to_string(number);
    return Point{number++, 0, {{"some.key", value}}};
  };
}

}  // namespace penstock
