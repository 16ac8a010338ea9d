// From a point to its row, as fast as it goes: the scenario's files are read once, and what only
// `simulate` prints (critical path, communication, what would help, links) is not computed.
#pragma once

#include "results/simulation.hpp"
#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <functional>
#include <memory>

namespace penstock {

/// The row of a simulated scenario: the numbers of `simulate --format csv`.
Row row_of(const Simulation& simulation);

/// The scenarios of a sweep, read once. Thread-safe.
class Evaluator {
 public:
  /// Throws InputError when a file cannot be read or is no YAML.
  Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
            EngineChoice engine);
  ~Evaluator();

  /// Whatever is wrong with the point is in the row. Simulates with simgrid once per process; see
  /// `begin`.
  Row evaluate(const Point& point) const;

  /// The same for what simgrid does in a process of its own: where the point needs that (the engine
  /// is simgrid, or `auto` and `exact` cannot represent it), `rest` is set, the row is not
  /// complete, and `rest()` in a child of this process simulates and returns it. All that comes
  /// before, the loading of SimGrid too, was done here.
  Row begin(const Point& point, std::function<Row()>& rest) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
