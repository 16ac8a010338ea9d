// What `penstock plan` is asked: a model, the devices and how they are joined, from a profile, a
// shipped or own model on a cluster, a calibration, or a scenario.
#pragma once

#include "cli/options.hpp"
#include "cli/plan_options.hpp"
#include "plan/search/task.hpp"

namespace penstock {

/// Microbatches of an update, where no batch is given.
inline constexpr std::int64_t kBatchPerDevice = 4;

/// What the argument of `penstock plan` is.
enum class PlanInput : std::uint8_t {
  profile,  ///< a table of layers, or a graph of them
  scenario,
  calibration,  ///< what `penstock calibrate` wrote
  model,        ///< by shape: a file, a name, or a map
};

/// Throws InputError when a file cannot be read.
PlanInput input_of(const std::string& name);

/// Options of our own search alone.
inline constexpr const char* kOnlyFull[] = {"compare",
                                            "on",
                                            "objective",
                                            "schedule",
                                            "effort",
                                            "time-limit",
                                            "headroom",
                                            "uniform-recompute",
                                            "asynchronous",
                                            "price",
                                            "tokens",
                                            "write",
                                            "force",
                                            "recompute",
                                            "sequence-parallel",
                                            "distributed-optimizer"};

/// Says which options are missing, or not for such input.
void require_devices(const Arguments& arguments, PlanInput input, PlanOptions& options);

/// Throws InputError with everything that is wrong with the options. Precondition: they name a
/// published planner.
PlanTask plan_task(const Arguments& arguments);

/// A profile on the devices of --cluster, or else of one or two levels, as a scenario without
/// choices.
std::string profile_problem(const Arguments& arguments, const std::vector<PlanLevel>& levels,
                            std::optional<double> memory_bytes, std::int64_t batch);

/// A model on --cluster, or a calibration on its own, as a scenario without choices.
std::string model_problem(const Arguments& arguments, PlanInput input);

}  // namespace penstock
