// SPDX-License-Identifier: Apache-2.0
// From a point to its row, as fast as it goes: the scenario's files are read once, and what only
// `simulate` prints (critical path, communication, what would help, links) is not computed.
#pragma once

#include "results/simulation.hpp"
#include "scenarios/documents.hpp"
#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <memory>
#include <optional>

namespace penstock {

/// The row of a simulated scenario: the numbers of `simulate --format csv`.
Row row_of(const Simulation& simulation);

/// The scenarios of a sweep, read once. Thread-safe.
class Evaluator {
 public:
  /// Throws InputError when a file cannot be read or is no YAML. Reads through `documents`.
  Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
            EngineChoice engine,
            const std::shared_ptr<Documents>& documents = std::make_shared<Documents>());
  ~Evaluator();

  /// Whatever is wrong with the point is in the row.
  Row row(const Point& point) const;

  /// Of a point that does not fit: layers with which it would, "[18, 21, 21, 20]", where nobody
  /// listed them and there are some (results/fitting_split.hpp). Takes as long as up to 64 rows.
  std::optional<std::string> fitting_split(const Point& point) const;

  /// How far off a point's time may be (results/expected_error.hpp), as a sentence; "" where its
  /// times are given.
  std::string expected_error(const Point& point) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
