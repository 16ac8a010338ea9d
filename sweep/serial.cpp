#include "base/error.hpp"
#include "sweep/evaluate.hpp"

#include <limits>

namespace penstock {

struct Evaluator::Parts {
  std::vector<std::string> files;
  std::vector<Override> overrides;
  EngineChoice engine;
};

Evaluator::Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
                     EngineChoice engine)
    : parts_(new Parts{files, overrides, engine}) {}
Evaluator::~Evaluator() = default;

Row Evaluator::evaluate(const Point& point) const {
  Row row;
  row.point = point.number;
  row.measures.fill(std::numeric_limits<double>::quiet_NaN());
  try {
    auto changes = parts_->overrides;
    changes.insert(changes.end(), point.changes.begin(), point.changes.end());
    const Scenario scenario = load_scenario(parts_->files[point.scenario], changes);
    const Simulation s = simulate(scenario, parts_->engine);
    const Result r = summarize(s);
    row.scenario = scenario.name;
    row.engine = s.engine;
    row.schedule = s.program.schedule;
    row.measures[0] = s.program.placement.depth();
    row.measures[6] = r.makespan_s;
    row.measures[7] = r.iteration_time_s.value_or(std::numeric_limits<double>::quiet_NaN());
    row.measures[8] = r.samples_per_s;
    row.measures[15] = r.bubble_fraction;
    if (!r.infeasible_because.empty()) {
      row.status = Row::Status::infeasible;
      row.why = r.infeasible_because[0];
    }
  } catch (const InputError& error) {
    row.status = Row::Status::refused;
    row.why = error.diagnostics()[0].message;
  }
  return row;
}

bool Evaluator::needs_process(const Point&) const { return parts_->engine != EngineChoice::exact; }

}  // namespace penstock
