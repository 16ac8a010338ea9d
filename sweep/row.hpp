// SPDX-License-Identifier: Apache-2.0
// One row of a sweep: a point and what became of it.
#pragma once

#include "results/fields.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Text of the user's or of an error for a cell: without line feeds and what else moves a cursor.
std::string one_line(std::string text);

struct Row {
  enum class Status : std::uint8_t {
    ok,
    unknown,     ///< fits as far as is modelled: the model is one without `why`
    infeasible,  ///< simulated, and does not fit or never ends
    refused,     ///< the scenario cannot be simulated: what `simulate` calls an error
    failed,      ///< its worker crashed or ran out of time
  };

  std::uint64_t point = 0;
  Status status = Status::ok;
  std::string why;  ///< one line; empty when ok
  /// Those of a cluster that has too few, for which this point was refused; 0: it was not for that.
  std::int64_t too_few_devices = 0;
  /// Of all stages, where the model gives times; 0: they follow from its shape.
  double given_forward_s_per_sample = 0;
  std::string scenario, engine, schedule, transfers, width, replication;
  /// By number of measures(); NaN: an empty cell.
  std::vector<double> numbers = std::vector<double>(measures().size(), std::nan(""));
};

/// As bytes, for pipes; `decode` reads back exactly what was encoded.
std::string encode(const Row& row);
Row decode(std::string_view bytes);

}  // namespace penstock
