// SPDX-License-Identifier: Apache-2.0
// One row of a sweep: a point, its status and its numbers.
#pragma once

#include "results/fields.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Returns a text for a cell, without line feeds and other characters that move a cursor.
std::string one_line(std::string text);

struct Row {
  enum class Status : std::uint8_t {
    ok,
    unknown,     ///< the run fits as far as is modelled; `why` names what the model leaves out
    infeasible,  ///< the run was simulated, and does not fit or never ends
    refused,     ///< the scenario cannot be simulated; `simulate` calls that an error
    failed,      ///< the point's worker crashed or ran out of time
  };

  std::uint64_t point = 0;
  Status status = Status::ok;
  std::string why;  ///< one line; empty when ok
  /// The devices of the cluster, where the point was refused because these are too few; else 0.
  std::int64_t too_few_devices = 0;
  /// The forward time of all stages per sample, where the model gives times; 0 where they follow
  /// from its shape.
  double given_forward_s_per_sample = 0;
  std::string scenario, engine, schedule, transfers, width, replication;
  /// The value of each of measures(); NaN makes an empty cell.
  std::vector<double> numbers = std::vector<double>(measures().size(), std::nan(""));
};

/// Returns a row as bytes for pipes; `decode` returns exactly the row that was encoded.
std::string encode(const Row& row);
Row decode(std::string_view bytes);

}  // namespace penstock
