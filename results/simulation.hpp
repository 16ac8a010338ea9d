// SPDX-License-Identifier: Apache-2.0
// A simulated scenario, and the result that is computed from it: the fields of `simulate --format
// json`.
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
/// The share of a device's memory that plans leave free, for what no model knows: fragmentation,
/// buffers of libraries, a batch longer than the others.
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
  /// Returns the weight version that an F, B, I or W uses.
  std::uint32_t weight_version(const Op& op) const {
    const std::uint32_t own = program.version(op);
    return latest ? latest->version(table->device_of(op), own) : own;
  }
  MemoryInput memory() const {
    return {program.ops,    *table,        *timeline,
            scenario.costs, more_versions, scenario.stage_parts(program.placement)};
  }
};

/// Generates, lowers and checks the program; the result has no timeline yet. The program is taken
/// from `programs` (may be null) where it was made before. Throws InputError when the schedule
/// cannot run.
Simulation prepare(Scenario scenario, ProgramCache* programs = nullptr);

/// Prepares and simulates a scenario; with `automatic`, by exact where it is valid, else by fluid.
/// Throws InputError when the chosen engine cannot represent the scenario.
Simulation simulate(Scenario scenario, EngineChoice engine, ProgramCache* programs = nullptr);

/// Prepares and simulates a scenario by the exact engine as if no link were shared. That takes a
/// hundredth of the time and serves to choose what is worth simulating.
Simulation simulate_unshared(Scenario scenario, ProgramCache* programs = nullptr);

/// Returns the engine that `choice` means. Throws InputError when that engine cannot represent the
/// scenario.
EngineChoice engine_for(const Simulation& prepared, EngineChoice choice);
/// Returns whether `choice` means the exact engine. Throws InputError as engine_for does.
inline bool uses_exact(const Simulation& prepared, EngineChoice choice) {
  return engine_for(prepared, choice) == EngineChoice::exact;
}

/// Simulates what was prepared, and sets its timeline.
void run_engine(Simulation& prepared, EngineChoice choice);

/// Returns when the updates of a run end, in seconds: on the last device with a flush, on device 0
/// without.
std::vector<double> update_ends_s(const Simulation& simulated);

/// Returns the seconds per update in the steady state; none when the run is too short for it, or
/// never ends.
std::optional<double> iteration_time_s(const Simulation& simulated);

struct DeviceResult {
  int device = 0;
  std::vector<int> stages;
  std::vector<int> layers;  ///< the layers of each stage; empty where the model is given by costs
  bool embedding = false, head = false;
  std::vector<int> gpus;  ///< the GPUs that share these stages; memory is that of each
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
  std::optional<std::uint32_t> peak_flows;  ///< the most flows at one time; none of a measured run
};

/// A change, and what it would do to the time of an iteration.
struct Sensitivity {
  std::string change;
  double iteration_time_s;
  bool of_stage = false;  ///< the change is a stage that computes faster, which no key brings about
};

/// A change of keys that helps. The batch stays the same, and so do the GPUs unless `gpus` says how
/// many.
struct Advice {
  std::string change;
  std::vector<std::string> set;  ///< the arguments of --set
  double time_ratio = 1;  ///< the time of an iteration, divided by that of the scenario as it is
  bool makes_it_fit = false;  ///< whether it fits, where the scenario as it is does not
  std::int64_t gpus = 0;      ///< the GPUs that it takes where these are more; else 0
};

struct Sensitivities {
  std::vector<Sensitivity> changes;
  std::string none_because;  ///< why no changes, or not all, were tried
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
    std::optional<Times> more;  ///< what the key adds; none where one of the two runs never ends
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

/// A number over draws of what differs by microbatch. `worst`: the most of times and bytes, the
/// least of rates.
struct Quantiles {
  double p5 = 0, p50 = 0, p95 = 0, worst = 0;
};

/// What `--samples` draws of a scenario come to.
struct SampleStudy {
  int n = 0;
  bool differ = true;  ///< false: nothing is drawn, and one stands for all
  int infeasible = 0;  ///< draws of which a device has no room for what it holds
  Quantiles iteration_time_s{}, peak_memory_bytes{}, bubble_fraction{};
  std::optional<Quantiles> tokens_per_s{};
};

/// How fast a run is.
struct Rates {
  double makespan_s = 0;
  std::optional<double> iteration_time_s;
  double samples_per_s = 0;
  double microbatches_per_s = 0;
  /// What is known of transformers alone; `tokens_per_s` is that of all GPUs together.
  std::optional<double> tokens_per_s, tokens_per_s_per_gpu, tflops_per_gpu, mfu, hfu, epoch_s;
  std::optional<double>
      mfu_causal;  ///< MFU with attention counted by half; none where every token attends to all
};

struct Result : Rates {
  std::vector<std::string> infeasible_because;  ///< why it does not fit; empty where it does
  std::string stalled_because;                  ///< why the run never ends; empty where it does
  double bubble_fraction = 0, stage_bubble_fraction = 0;
  std::array<double, kCauses> bubble{};  ///< shares of devices * makespan
  std::vector<PathSegment> critical_path;
  std::int64_t ops = 0;  ///< compute and transfers
  std::vector<DeviceResult> devices;
  std::vector<LinkResult> links;
  CommunicationByDimension communication;
  std::vector<Sensitivity> what_would_help;
  std::vector<Advice> what_to_change;  ///< best first
  bool nothing_to_change = false;      ///< changes were tried, and none helps
  std::string help_not_tried;  ///< how many of these changes were not tried, and how to try them
  std::vector<std::string> notes;
  std::optional<PerturbationStudy> perturbed;  ///< what disturbs the run, and what that costs
  std::optional<SampleStudy> samples;          ///< none: not asked for
};

/// Returns how fast the run is, and nothing about its devices, in a fraction of the time of
/// `outline`.
Rates rates(const Simulation& simulation);

/// Returns whether the run ends and every device has room for what it holds.
bool fits(const Simulation& simulation);

/// Returns the whole result but for what is studied by itself: advice and perturbations.
Result summarize(const Simulation& simulation);

/// Returns ascending devices in short: "3", "0-7", "0-22,24-39", "0,4,8,12", "0,4,..,252". With
/// `whole`, leaves out only numbers that follow from the others, such as every fourth.
std::string devices_text(const std::vector<int>& devices, bool whole = false);

/// Returns "1.1 %; `plan` leaves 5 %" where less of a device's memory is free than plans leave,
/// else "".
std::string barely_fits(std::int64_t used_bytes, std::int64_t capacity_bytes);

/// Returns whether a change is worth showing. Nobody can make a single stage faster, so such a
/// change is shown only where it matters and nothing else is known.
bool worth_saying(const Result& today, const Sensitivity& change);

/// Returns a note that runs whose costs are given are of different work, as their
/// `given_forward_s_per_sample` differ; "" where these hardly differ.
std::string work_differs(double least_s, double most_s);

/// Returns the part of the result that a row of a table needs: without critical path, links,
/// communication and notes on the timeline, and with at most one reason why it does not fit.
Result outline(const Simulation& simulation);

}  // namespace penstock
