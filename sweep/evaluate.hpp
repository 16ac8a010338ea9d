// SPDX-License-Identifier: Apache-2.0
// Evaluates the points of a sweep fast: the scenarios' files are read once, and what only
// `simulate` prints (critical path, communication, what would help, links) is not computed.
#pragma once

#include "results/simulation.hpp"
#include "scenarios/documents.hpp"
#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <memory>
#include <optional>

namespace penstock {

/// Returns the row of a simulated scenario: the numbers of `simulate --format csv`.
Row row_of(const Simulation& simulation);

/// Evaluates points of the scenarios of a sweep, which it reads once. Thread-safe.
class Evaluator {
 public:
  /// Reads the scenarios through `documents`. Throws InputError when a file cannot be read or is no
  /// YAML.
  Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
            EngineChoice engine,
            const std::shared_ptr<Documents>& documents = std::make_shared<Documents>());
  ~Evaluator();

  /// Returns the row of a point; what is wrong with the point is in the row.
  Row row(const Point& point) const;

  /// Returns a split of the layers, "[18, 21, 21, 20]", with which a point that does not fit would;
  /// none where the layers are listed or no split fits (results/fitting_split.hpp). Takes as long
  /// as up to 64 rows.
  std::optional<std::string> fitting_split(const Point& point) const;

  /// Returns how far off a point's time may be (results/expected_error.hpp) as a sentence; "" where
  /// its times are given.
  std::string expected_error(const Point& point) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
