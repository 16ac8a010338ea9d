// SPDX-License-Identifier: Apache-2.0
#include "validate/recorded_prediction.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "traces/chrome_writer.hpp"
#include "validate/profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

/// A file's numbers are not taken on trust: every microbatch of a whole run has at least one op.
void require_recorded_length(const Recording& recording, const std::string& path) {
  constexpr std::uint64_t kStopped = 1'000'000;  // a run that was stopped may hold any part of it
  std::uint64_t most = 0;
  for (const RecordedRun& run : recording.runs)
    most = std::max<std::uint64_t>({most, run.ops.size(), run.complete ? 0 : kStopped});
  if (std::uint64_t{recording.batches} * recording.microbatches <= most) return;
  throw InputError(path, fmt::format("says {} updates of {} microbatches, and holds {} ops",
                                     recording.batches, recording.microbatches, most));
}

Scenario scenario_of(const Recording& recording, const std::string& path, const std::string& given,
                     const std::vector<Override>& changes) {
  if (given.empty() && recording.scenario.empty())
    throw InputError(path, "holds no scenario; give one after the recording");
  Scenario scenario = given.empty() ? parse_scenario(recording.scenario, path, changes)
                                    : load_scenario(given, changes);
  if (scenario.perturbations.changes_times()) {
    throw InputError(scenario.origin,
                     "'perturbations' are no part of a measured run; leave them out");
  }
  // The prediction runs as long as the recording did, whatever the scenario says.
  require_recorded_length(recording, path);
  if (recording.batches > 0) scenario.shape.batches = recording.batches;
  return scenario;
}

void require_same_shape(const Recording& recording, const Program& p, const std::string& path) {
  std::vector<std::string> wrong;
  const auto compare = [&](const char* what, const auto& recorded, const auto& predicted) {
    if (recorded != predicted)
      wrong.push_back(fmt::format("{} is {} in the recording and {} in the scenario", what,
                                  recorded, predicted));
  };
  if (!recording.schedule.empty()) compare("the schedule", recording.schedule, p.schedule);
  compare("the number of stages", recording.depth, p.placement.depth());
  compare("the number of microbatches", recording.microbatches, p.microbatches_per_update);
  if (!wrong.empty()) throw InputError(path, fmt::format("{}", fmt::join(wrong, "; ")));
}

void require_known_ops(const RecordedTimeline& run, const std::string& path) {
  if (run.unknown.empty()) return;
  const RecordedOp& first = run.unknown.front();
  throw InputError(path, fmt::format("{} are not in the scenario's schedule or stand twice; the "
                                     "first is {} on device {}",
                                     counted(static_cast<std::int64_t>(run.unknown.size()), "op"),
                                     to_string(first.op), first.device));
}

}  // namespace

RecordedPrediction::RecordedPrediction(const std::string& path, const std::string& scenario,
                                       const std::vector<Override>& changes, EngineChoice engine)
    : recording(read_recording(path)),
      simulation(simulate(scenario_of(recording, path, scenario, changes), engine)),
      simulated_(simulation.input()) {
  const Program& program = simulation.program;
  require_same_shape(recording, program, path);
  for (int d = 0; d < program.ops.devices(); ++d)
    memory_.push_back(memory_over_time(simulation.memory(), d));
  for (const RecordedRun& run : recording.runs) {
    runs_.push_back(to_timeline(program.ops, *simulation.table, run));
    require_known_ops(runs_.back(), path);
  }
}

Validation RecordedPrediction::validation() const {
  Validation out = validate(input());
  if (const auto predicted = to_string(simulation.program.transfers);
      !recording.transfers.empty() && recording.transfers != predicted)
    out.notes.push_back(fmt::format("recorded with {} transfers, predicted with {}",
                                    recording.transfers, predicted));
  if (const auto& profile = simulation.scenario.layer_profile) {
    double spread = 0;
    for (const ProfileRow& row : profile->rows()) spread = std::max(spread, row.spread);
    if (spread > kBusySpread)
      out.notes.push_back(
          fmt::format("the profile was measured on a busy machine (spread up to {}): its times may "
                      "be off by as much; calibrate again while nothing else runs",
                      format_percent(spread)));
  }
  return out;
}

void RecordedPrediction::write_trace(const std::string& path,
                                     const std::string& penstock_version) const {
  const Simulation& s = simulation;
  const auto version = [&](const Op& op) { return s.program.version(op); };
  const WhatRan run(s.program, *s.table, runs_[0]);
  const TimelineView ran = run.view();
  const ChromeTrace both[] = {
      {s.view(),
       s.memory(),
       version,
       {{"scenario", s.scenario.name},
        {"recording", recording.name},
        {"backend", recording.backend},
        {"schedule", s.program.schedule},
        {"transfers", std::string(to_string(s.program.transfers))},
        {"engine", s.engine},
        {"penstock", penstock_version}},
       "predicted "},
      {ran,
       {ran.program.ops, ran.table, ran.timeline, s.scenario.costs, s.more_versions},
       version,
       {},
       "measured ",
       false}};
  write_chrome_traces(both, path);
}

}  // namespace penstock
