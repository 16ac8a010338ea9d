// SPDX-License-Identifier: Apache-2.0
// penstock replay: executes a scenario for real, and shows what was measured as `simulate` shows
// what is predicted.
#include "base/exit_codes.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"
#include "cli/execution.hpp"
#include "cli/output.hpp"
#include "cli/running.hpp"
#include "hw/executor_process.hpp"
#include "hw/run_plan_file.hpp"
#include "traces/byte_sink.hpp"
#include "traces/chrome_writer.hpp"
#include "traces/recording.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct MemoryNeed {
  double needed, available;
};
/// Returns the bytes that weights and optimizer of a model take alone, and those of this machine.
MemoryNeed memory_need(const Scenario& scenario) {
  constexpr double kBytes = 16;  // fp32 weight, gradient and two moments
  const double needed = kBytes * static_cast<double>(scenario.transformer->parameters()) *
                        static_cast<double>(scenario.mesh.most());
  double available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string key, unit; in >> key >> available >> unit;) {
    if (key == "MemAvailable:") break;
  }
  return {needed, available * 1024};
}

/// Does a model of these costs fit into the memory of this machine?
void require_memory(const Simulation& s, const RunPlan& plan) {
  // penstock-run says what cannot be executed on any machine.
  if (plan.compute != Compute::transformer || plan.model.family == Family::llama) return;
  const auto [needed, available] = memory_need(s.scenario);
  if (needed < available) return;
  throw InputError(
      s.scenario.origin,
      fmt::format("executing {} needs more than {} for weights, gradients and optimizer alone, "
                  "this machine has {} free; use --compute stand-in, or a smaller model",
                  plan.model.name, format_bytes(needed), format_bytes(available)));
}

/// Chooses what computes beside a virtual clock, where nobody has said: durations are stated, so a
/// small stand-in does, but for GPUs that share a stage, of which one would execute nothing.
ComputeChoice logical_compute(const Scenario& scenario) {
  const bool shared =
      scenario.mesh.size(Axis::tensor) > 1 || scenario.mesh.divided || scenario.mesh.expert > 1;
  const bool real = shared && scenario.mesh.replica_sharers() == 1 && !scenario.transfers_divided &&
                    scenario.transformer && scenario.transformer->family != Family::llama;
  if (!real) return ComputeChoice::stand_in;
  const auto [needed, available] = memory_need(scenario);
  return needed < available ? ComputeChoice::automatic : ComputeChoice::stand_in;
}

/// A virtual clock can say only what `exact` can.
void require_exact(const Simulation& s) {
  if (const std::string why = why_not_exact(s.input()); !why.empty()) {
    throw InputError("--clock virtual",
                     fmt::format("a virtual clock cannot share links: {}; use --clock wall", why));
  }
}

std::vector<std::string> executor_arguments(const Arguments& arguments, const std::string& program,
                                            const std::string& record) {
  std::vector<std::string> out{program, "--record", record};
  for (const char* name : {"backend", "clock", "precision", "link", "deadline", "check", "pace"}) {
    if (!arguments.flag(name)) continue;
    out.push_back(std::string("--") + name);
    out.push_back(arguments.value(name));
  }
  if (arguments.flag("processes")) out.emplace_back("--processes");
  return out;
}

/// The measured timeline and memory in place of predicted ones.
Result measured_result(Simulation& s, const RecordedRun& run) {
  RecordedTimeline recorded = to_timeline(s.program.ops, *s.table, run);
  s.timeline = std::make_unique<Timeline>(std::move(recorded.timeline));
  Result result = summarize(s);
  for (const RecordedDevice& d : run.devices) {
    MemoryPeak& peak = result.devices.at(static_cast<std::size_t>(d.device)).memory;
    peak = {d.peak, d.peak_at_s, peak.op};
  }
  return result;
}

std::string closing_lines(const RecordedRun& run, const Recording& recording) {
  std::string text = fmt::format("\nexecuted on {}, {} clock", recording.backend, recording.clock);
  for (const char* key : {"processor", "gpu", "links"}) {
    if (const auto it = recording.description.find(key); it != recording.description.end())
      text += ", " + it->second;
  }
  const bool stand_in = recording.compute == "stand_in";
  if (stand_in)
    text += "\nwhat computed: stand-in stages (two 32 x 32 layers), not the model itself";
  if (run.weights_moved == false)
    text += "\nsome weights NEVER MOVED, so nothing is known of their updates";
  if (run.weights_equal)
    text += fmt::format("\nthe weights {} those of a sequential run, bit for bit",
                        *run.weights_equal ? "equal" : "DIFFER from");
  if (!run.losses.empty() && !stand_in)
    text += fmt::format("\nloss of the first microbatch {:.4f}, of the last {:.4f}",
                        run.losses.front().loss, run.losses.back().loss);
  return text + "\n";
}

void add_fields(Json& json, const RecordedRun& run, const Recording& recording) {
  json["backend"] = recording.backend;
  json["clock"] = recording.clock;
  json["compute"] = recording.compute;
  json["weights_equal"] = run.weights_equal ? Json(*run.weights_equal) : Json(nullptr);
  json["weights_digest"] = run.weights_digest ? Json(*run.weights_digest) : Json(nullptr);
  json["description"] = recording.description;
  json["losses"] = Json::array();
  for (const RecordedLoss& l : run.losses) json["losses"].push_back(l.loss);
}

/// The Chrome trace of a run that was stopped: what ran, without memory, and why it ended.
void write_partial_trace(const Simulation& s, const RecordedRun& run, const std::string& path) {
  const WhatRan ran(s.program, *s.table, to_timeline(s.program.ops, *s.table, run));
  const TimelineView view = ran.view();
  const MemoryInput memory{view.program.ops, view.table, view.timeline, s.scenario.costs,
                           s.more_versions};
  const ChromeTrace trace{view,
                          memory,
                          [&](const Op& op) { return s.program.version(op); },
                          {{"scenario", s.scenario.name},
                           {"schedule", s.program.schedule},
                           {"complete", "false"},
                           {"stopped_because", run.stopped_because}},
                          "",
                          false};
  write_chrome_trace(trace, path);
}

/// Complete or not there, as it is (compressed or not).
void copy_whole(const std::string& from, const std::string& to) {
  const std::string part = fmt::format("{}.part{}", to, ::getpid());
  try {
    fs::copy_file(from, part, fs::copy_options::overwrite_existing);
    fs::rename(part, to);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw SystemError(fmt::format("cannot write '{}': {}", to, error.code().message()));
  }
}

/// Where the executor records to: the user's file is written when there is something to say, so
/// that what an earlier run left there is never taken for this one's.
std::string keep(const std::string& recorded, const Arguments& arguments) {
  if (!arguments.flag("record")) return recorded;
  std::string kept = arguments.value("record");
  copy_whole(recorded, kept);
  return kept;
}

std::string record_name(const Arguments& arguments) {
  const bool small = arguments.value("record", "").ends_with(".gz");
  return small ? "recording.json.gz" : "recording.json";
}

int show(const Arguments& arguments, Simulation& s, const Recording& recording, int status) {
  const RecordedRun& run = recording.runs.back();
  s.measured = true;
  s.engine = fmt::format("{} ({} clock)", recording.backend, recording.clock);
  const Result result = measured_result(s, run);
  if (arguments.flag("trace")) write_trace(s, arguments.value("trace"));
  const OutputOptions options{arguments.flag("events"), arguments.flag("reproducible"),
                              results_width()};
  const std::string format = arguments.value("format", "table");
  if (format == "table") {
    put_result(arguments, to_table(s, result, options) + closing_lines(run, recording));
    return status;
  }
  Json json = to_json(s, result, options);
  add_fields(json, run, recording);
  put_result(arguments, format == "csv" ? to_csv({summary_row(json)}) : json.dump(2) + "\n");
  return status;
}

}  // namespace

int run_replay(const Arguments& arguments) {
  const Scenario scenario = load_scenario(arguments.positional[0], overrides_of(arguments));
  Simulation s = prepare(scenario);
  const bool logical = arguments.value("clock", "wall") == "virtual";
  if (logical) require_exact(s);
  ComputeChoice compute = compute_of(arguments);
  if (logical && compute == ComputeChoice::automatic) compute = logical_compute(scenario);
  RunPlan plan = run_plan_of(s, compute);
  plan.origin = scenario.origin;
  if (arguments.value("backend", "host") == "host") require_memory(s, plan);

  const TemporaryFolder folder;
  const std::string record = folder.file(record_name(arguments));
  write_file(folder.file("program.json"), to_text(plan));
  const int status =
      run_executor(executor_arguments(arguments, folder.file("program.json"), record));
  if (!fs::exists(record)) return status;
  const std::string kept = keep(record, arguments);
  const Recording recording = parse_recording(read_back(kept), kept);
  const RecordedRun& run = recording.runs.back();
  if (run.complete) return show(arguments, s, recording, status);
  if (arguments.flag("trace")) write_partial_trace(s, run, arguments.value("trace"));
  return status == exit_ok ? exit_failed : status;
}

}  // namespace penstock
