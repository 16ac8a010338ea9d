// SPDX-License-Identifier: Apache-2.0
// A small sweep without scenarios: its points, columns, and rows made up from their numbers.
#pragma once

#include "sweep/axes.hpp"
#include "sweep/columns.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {

struct SpaceRig {
  Documents documents;
  Space space;
  Columns columns{space, documents};

  explicit SpaceRig(const std::vector<std::string>& over = {"stages=1:4", "microbatches=1:5"})
      : space({"made-up.yaml"}, parse_axes(over, {}, {}), {}, {}, documents) {}
};

/// Every seventh point does not fit, every eleventh is refused.
inline Row made_up_row(std::uint64_t number) {
  Row row;
  row.point = number;
  row.scenario = "made, \"up\"";
  row.schedule = "gpipe";
  if (number % 11 == 10) {
    row.status = Row::Status::refused;
    row.why = "48 layers do not divide evenly\ninto 5 stages";
    return row;
  }
  row.numbers[8] = 1.0 / (1 + static_cast<double>(number));
  row.numbers[23] = 1e9 * static_cast<double>(number);
  if (number % 7 == 6) {
    row.status = Row::Status::infeasible;
    row.why = "device " + std::to_string(number) + " needs 92.4 GiB, has 80.0 GiB";
  }
  return row;
}

}  // namespace penstock
