// From a point to its row, as fast as it goes: the scenario's files are read once, and what only
// `simulate` prints (critical path, what would help, links) is not computed.
#pragma once

#include "results/simulation.hpp"
#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <memory>

namespace penstock {

/// The scenarios of a sweep, read once. Thread-safe.
class Evaluator {
 public:
  /// Throws InputError when a file cannot be read or is no YAML.
  Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
            EngineChoice engine);
  ~Evaluator();

  /// Whatever is wrong with the point is in the row. Simulates with simgrid once per process; see
  /// `needs_process`.
  Row evaluate(const Point& point) const;

  /// Does this point have to be evaluated in a process of its own? (The engine is simgrid, or
  /// `auto` and the point needs it.) Then `evaluate` must be called in a child.
  bool needs_process(const Point& point) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
