// SPDX-License-Identifier: Apache-2.0
// One simulated scenario and what it amounts to: the fields of `simulate --format json`.
#pragma once

#include "models/goodput.hpp"
#include "program/latest_versions.hpp"
#include "scenarios/scenario.hpp"
#include "schedules/checked_program.hpp"
#include "sim/communication.hpp"
#include "sim/engine.hpp"
#include "traces/memory.hpp"
#include "traces/metrics.hpp"

#include <memory>
#include <optional>

namespace penstock {

enum class EngineChoice : std::uint8_t { automatic, exact, fluid, simgrid };
/// Of a device's memory, that plans leave free: no model knows fragments, buffers of libraries, a
/// batch longer than the others.
inline constexpr double kUsualHeadroom = 0.05;

inline constexpr std::string_view kEngineNames[] = {"auto", "exact", "fluid", "simgrid"};

/// Everything between a scenario and its timeline.
struct Simulation {
  Simulation(Scenario given, std::shared_ptr<const CheckedProgram> made)
      : scenario(std::move(given)),
        checked(std::move(made)),
        program(checked->program),
        table(&checked->table) {}

  Scenario scenario;
  std::shared_ptr<const CheckedProgram> checked;
  const Program& program;        ///< of `checked`
  const DependencyTable* table;  ///< of `checked`
  std::unique_ptr<Traffic> traffic;
  std::unique_ptr<Perturbation> perturbation;  ///< null: nothing disturbs the run
  std::unique_ptr<Timeline> timeline;
  std::optional<LatestVersions> latest;      ///< of replicas that wait for no other
  std::vector<std::uint32_t> more_versions;  ///< per stage: weight versions beyond the live one
  std::string engine;
  bool measured = false;      ///< the timeline is that of a real run
  double engine_seconds = 0;  ///< CPU, from schedule generation to the finished timeline

  SimulationInput input() const {
    return {program,
            *table,
            scenario.costs,
            *traffic,
            perturbation.get(),
            scenario.unlike.kind.empty() ? nullptr : &scenario.unlike};
  }
  TimelineView view() const { return {program, *table, *timeline}; }
  /// That an F, B, I or W uses.
  std::uint32_t weight_version(const Op& op) const {
    const std::uint32_t own = program.version(op);
    return latest ? latest->version(table->device_of(op), own) : own;
  }
  MemoryInput memory() const {
    return {program.ops,    *table,        *timeline,
            scenario.costs, more_versions, scenario.stage_parts(program.placement)};
  }
};

/// Generates, lowers and checks; there is no timeline yet. `programs`: where to look for one that
/// was made before; null: nowhere. Throws InputError when the schedule cannot run.
Simulation prepare(Scenario scenario, ProgramCache* programs = nullptr);

/// The same, and simulates. `automatic`: exact where it is valid, else fluid. Throws InputError
/// when the chosen engine cannot represent the scenario.
Simulation simulate(Scenario scenario, EngineChoice engine, ProgramCache* programs = nullptr);

/// The same by the exact engine as if no link were shared, which takes a hundredth of the time: to
/// choose what is worth simulating.
Simulation simulate_unshared(Scenario scenario, ProgramCache* programs = nullptr);

/// The engine that `choice` means. Throws InputError when that cannot represent the scenario.
EngineChoice engine_for(const Simulation& prepared, EngineChoice choice);
inline bool uses_exact(const Simulation& prepared, EngineChoice choice) {
  return engine_for(prepared, choice) == EngineChoice::exact;
}

/// Simulates what was prepared: sets its timeline.
void run_engine(Simulation& prepared, EngineChoice choice);

/// Ends of the updates of a run: of the last device with a flush, of device 0 without.
std::vector<double> update_ends_s(const Simulation& simulated);

/// Steady state; none when the run is too short for it, or never ends.
std::optional<double> iteration_time_s(const Simulation& simulated);

struct DeviceResult {
  int device = 0;
  std::vector<int> stages;
  std::vector<int> layers;  ///< of each of them; none: the model is given by costs
  bool embedding = false, head = false;
  std::vector<int> gpus;  ///< that share them; memory is that of each
  DeviceMetrics time;
  double idle_s = 0;
  MemoryPeak memory;
  std::int64_t capacity_bytes = 0;  ///< 0: unknown
  OrderFacts order;
};

struct LinkResult {
  std::string name;
  std::int64_t bytes = 0;
  double busy_fraction = 0;                 ///< bytes / (bandwidth * makespan)
  std::optional<std::uint32_t> peak_flows;  ///< at the same time, at most; none: measured
};

/// A change, and what it would do to the time of an iteration.
struct Sensitivity {
  std::string change;
  double iteration_time_s;
  bool of_stage = false;  ///< a stage that computes faster, which no key makes it do
};

/// A change of keys that helps; the batch stays, and but for `gpus` the GPUs.
struct Advice {
  std::string change;
  std::vector<std::string> set;  ///< for --set
  double time_ratio = 1;         ///< of an iteration, against the scenario as it is
  bool makes_it_fit = false;     ///< the scenario as it is does not
  std::int64_t gpus = 0;         ///< that it takes, where they are more; else 0
};

struct Sensitivities {
  std::vector<Sensitivity> changes;
  std::string none_because;  ///< why there are none, or not all
};

struct Percentiles {
  double mean, min, p5, p50, p95, max;
};

/// What a perturbation does to a run. Times are differences to the same run without the key.
struct PerturbationStudy {
  struct Times {
    double makespan_s = 0;
    std::optional<double> iteration_time_s;
  };
  struct KeyCost {
    std::string key;
    std::optional<Times> more;  ///< none where one of the two runs never ends
  };
  struct RunError {
    int run;
    std::string why;
  };
  struct Runs {
    int n = 0;
    std::optional<Percentiles> makespan_s, iteration_time_s;
    std::vector<RunError> errors;
  };
  bool changes_times = false;
  Times undisturbed;
  std::optional<Times> disturbed;  ///< with jitter, the mean over its runs; none: it never ends
  std::vector<KeyCost> costs;
  std::optional<Runs> runs;
  std::optional<Goodput> goodput;
};

struct Rates {
  double makespan_s = 0;
  std::optional<double> iteration_time_s;
  double samples_per_s = 0;
  double microbatches_per_s = 0;
  /// Of transformers; `tokens_per_s` is that of all GPUs together.
  std::optional<double> tokens_per_s, tokens_per_s_per_gpu, tflops_per_gpu, mfu, hfu, epoch_s;
  std::optional<double> mfu_causal;  ///< none: every token attends to all
};

struct Result : Rates {
  std::vector<std::string> infeasible_because;  ///< empty: it fits
  std::string stalled_because;                  ///< empty: the run ends
  double bubble_fraction = 0, stage_bubble_fraction = 0;
  std::array<double, kCauses> bubble{};  ///< shares of devices * makespan
  std::vector<PathSegment> critical_path;
  std::int64_t ops = 0;  ///< compute and transfers
  std::vector<DeviceResult> devices;
  std::vector<LinkResult> links;
  CommunicationByDimension communication;
  std::vector<Sensitivity> what_would_help;
  std::vector<Advice> what_to_change;  ///< best first
  bool nothing_to_change = false;      ///< changes were tried, none helps
  std::string help_not_tried;          ///< how many of the two were not, and how to try them
  std::vector<std::string> notes;
  std::optional<PerturbationStudy> perturbed;  ///< what disturbs the run, and what that costs
};

/// How fast it is, and nothing of its devices: a fraction of what `outline` takes.
Rates rates(const Simulation& simulation);

/// Does the run end, and has every device room for what it holds?
bool fits(const Simulation& simulation);

Result summarize(const Simulation& simulation);

/// Returns ascending devices in short: "3", "0-7", "0-22,24-39", "0,4,8,12", "0,4,..,252". `whole`:
/// leaves out only what the others tell, such as every fourth.
std::string devices_text(const std::vector<int>& devices, bool whole = false);

/// "1.1 %; `plan` leaves 5 %" where less of a device's memory is free than plans
/// leave, else "".
std::string barely_fits(std::int64_t used_bytes, std::int64_t capacity_bytes);

/// Nobody can make one stage faster alone: that is said where it matters and nothing else is known.
bool worth_saying(const Result& today, const Sensitivity& change);

/// What it means that runs whose costs are given differ in `given_forward_s_per_sample`; "" where
/// they hardly do.
std::string work_differs(double least_s, double most_s);

/// What of it a row of a table needs: neither critical path, nor links, nor communication, nor
/// notes on the timeline, and one device that does not fit; the rest is left empty.
Result outline(const Simulation& simulation);

}  // namespace penstock
