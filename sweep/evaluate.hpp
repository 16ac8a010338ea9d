// From a point to its row, as fast as it goes: the scenario's files are read once, and what only
// `simulate` prints (critical path, communication, what would help, links) is not computed.
#pragma once

#include "results/simulation.hpp"
#include "scenarios/documents.hpp"
#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <memory>

namespace penstock {

/// In `why`, before the layers of a split that would fit (results/fitting_split.hpp).
inline constexpr std::string_view kOtherSplit = "; it would fit with split: ";

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

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
