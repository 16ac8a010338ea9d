// SPDX-License-Identifier: Apache-2.0
#include "sweep/evaluate.hpp"

#include "base/error.hpp"
#include "results/expected_error.hpp"
#include "results/fitting_split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

namespace penstock {
namespace {

/// One number where all stages have as many replicas.
std::string width_text(const std::vector<int>& widths) {
  const Json width = width_json(widths);
  return width.is_array() ? fmt::format("{}", fmt::join(widths, " ")) : width.dump();
}

/// What is known before anything runs.
void describe(const Scenario& scenario, Row& row) {
  row.scenario = scenario.name;
  row.schedule = scenario.schedule->name;
  row.transfers = to_string(scenario.lowering.transfers);
  row.width = width_text(scenario.widths());
  row.replication = scenario.mesh.divided ? "split" : "round-robin";
  for (std::size_t m = 0; m < measures().size(); ++m)
    if (measures()[m].before_run()) row.numbers[m] = measures()[m].value({scenario});
}

void measure(const Simulation& s, const Result& r, Row& row) {
  for (std::size_t m = 0; m < measures().size(); ++m)
    row.numbers[m] = measures()[m].value({s.scenario, &s, &r});
}

/// What is wrong with the input, without the lines it stands in.
std::string messages(const InputError& error) {
  std::string text;
  for (const Diagnostic& d : error.diagnostics()) text += (text.empty() ? "" : "; ") + d.message;
  return one_line(text);
}

Row empty_row(std::uint64_t point) {
  Row row;
  row.point = point;
  return row;
}

/// Does `work`, and puts what went wrong into the row.
template <class Work>
void guarded(Row& row, const Work& work) {
  const auto end = [&](Row::Status status, const std::string& why) {
    row.status = status;
    row.why = one_line(why);
  };
  try {
    work();
  } catch (const InputError& error) {
    end(Row::Status::refused, messages(error));
    for (const Diagnostic& d : error.diagnostics())
      if (d.reason == Reason::too_few_devices) row.too_few_devices = d.devices;
  } catch (const std::exception& error) {
    end(Row::Status::failed, what_of(error));
  }
}

void finish(Simulation& simulation, EngineChoice engine, Row& row) {
  run_engine(simulation, engine);
  const std::uint64_t point = row.point;
  row = row_of(simulation);
  row.point = point;
}

std::string name_of(const std::string& file) { return std::filesystem::path(file).stem().string(); }

}  // namespace

Row row_of(const Simulation& simulation) {
  Row row = empty_row(0);
  const Result result = outline(simulation);
  describe(simulation.scenario, row);
  row.engine = simulation.engine;
  row.given_forward_s_per_sample = simulation.scenario.given_forward_s_per_sample().value_or(0);
  measure(simulation, result, row);
  row.why = !result.infeasible_because.empty() ? result.infeasible_because.front()
                                               : result.stalled_because;
  row.status = row.why.empty() ? Row::Status::ok : Row::Status::infeasible;
  const Scenario& scenario = simulation.scenario;
  if (result.stalled_because.empty() && !scenario.fits_in_truth(row.why.empty())) {
    row.status = Row::Status::unknown;
    row.why = one_line("without " + scenario.left_out());
  }
  return row;
}

struct Evaluator::Parts {
  std::vector<std::string> names;  // of the files, for rows of what could not be read
  std::vector<ScenarioTemplate> scenarios;
  std::vector<Override> overrides;
  EngineChoice engine;
  ProgramCache programs;

  Scenario scenario(const Point& point) const {
    std::vector<Override> all = overrides;
    all.insert(all.end(), point.changes.begin(), point.changes.end());
    return scenarios.at(point.scenario).resolve(all);
  }
};

Evaluator::Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
                     EngineChoice engine, const std::shared_ptr<Documents>& documents)
    : parts_(std::make_unique<Parts>()) {
  for (const std::string& file : files) {
    parts_->scenarios.emplace_back(file, documents);
    parts_->names.push_back(name_of(file));
  }
  parts_->overrides = overrides;
  parts_->engine = engine;
}

Evaluator::~Evaluator() = default;

Row Evaluator::row(const Point& point) const {
  Row row = empty_row(point.number);
  row.scenario = parts_->names.at(point.scenario);
  guarded(row, [&] {
    Scenario scenario = parts_->scenario(point);
    describe(scenario, row);
    Simulation prepared = prepare(std::move(scenario), &parts_->programs);
    const EngineChoice engine = engine_for(prepared, parts_->engine);
    if (engine != EngineChoice::exact) row.engine = kEngineNames[static_cast<std::size_t>(engine)];
    try {
      finish(prepared, engine, row);
    } catch (const SystemError&) {
      if (engine != EngineChoice::simgrid) throw;  // its process died, which may be bad luck once
      finish(prepared, engine, row);
    }
  });
  return row;
}

std::string Evaluator::expected_error(const Point& point) const {
  try {
    const auto error = penstock::expected_error(parts_->scenario(point));
    return error ? expected_error_text(*error) : "";
  } catch (const InputError&) {
    return "";
  }
}

std::optional<std::string> Evaluator::fitting_split(const Point& point) const {
  try {
    return fitting_split_unless_listed(parts_->scenario(point), AdviceEffort::full);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace penstock
