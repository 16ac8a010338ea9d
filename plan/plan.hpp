// SPDX-License-Identifier: Apache-2.0
// The request to a planner, and its answer.
//
// A plan cuts the layers of a model into stages, gives each stage its replicas and devices, and
// says how large a microbatch is, whether layers are recomputed, and which schedule runs it. Its
// times are those of the planner's own cost model, which differ from planner to planner; plans of
// different planners are compared by simulating them.
#pragma once

#include "models/transformer.hpp"
#include "plan/layer_states.hpp"
#include "program/vocabulary.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

struct PlannedStage {
  int first_layer = 0, last_layer = 0;  ///< 0-based, inclusive; states, in a graph with branches
  int replicas = 1;
  std::vector<int> devices;  ///< the devices of all replicas
  double time_s = 0;         ///< per microbatch, over the replicas, as the planner counts it
  double memory_bytes = 0;   ///< per device, as the planner counts it; 0 where it does not
  std::string first_name, last_name;  ///< the names of the first and the last layer
};

/// What `simulate` says of a plan.
struct SimulatedPlan {
  double samples_per_s = 0;  ///< 0 where it does not run or does not fit
  std::string why_not{};     ///< why it does not run or fit
};

struct Plan {
  std::string planner;
  std::vector<PlannedStage> stages;
  std::int64_t microbatch_size = 1;
  std::int64_t microbatches = 1;  ///< per weight update
  Recompute recompute = Recompute::none;
  std::string schedule;
  double time_per_stage_s = 0;          ///< between two microbatches, over all replicas
  double throughput_samples_per_s = 0;  ///< as the planner predicts it
  double speedup = 0;                   ///< over one device
  double data_parallel_speedup = 0;     ///< that of data parallelism over all devices; 0: not known
  double latency_s = 0;                 ///< the time of a whole update; 0: the planner has none
  std::string limited_by;               ///< what keeps it from being faster
  std::optional<SimulatedPlan> simulated{};  ///< none where it was not simulated

  int depth() const { return static_cast<int>(stages.size()); }
  /// Returns the replicas of the first stage, which are those of all stages unless the plan is
  /// uneven.
  int width() const { return stages.empty() ? 0 : stages.front().replicas; }
  bool uneven() const;
  int devices_used() const;
  /// Returns the samples of an update over all replicas; for PipeDream, one minibatch of each.
  std::int64_t samples_per_update() const;
};

/// A level of the network: groups of `width` devices, or of groups of the level below, that are
/// joined by links of this bandwidth.
struct PlanLevel {
  int width = 1;
  double bytes_per_s = 0;
};

/// A model as planners see it: layers with costs, at any microbatch size.
class PlanModel {
 public:
  virtual ~PlanModel() = default;
  /// Returns the cuts behind each layer, in execution order.
  virtual std::vector<LayerState> chain(double microbatch, Recompute recompute) const = 0;
  /// Returns the cuts of a graph with branches, or those of `chain` for a chain; none when there
  /// are more than `most`.
  virtual std::vector<LayerState> states(double microbatch, std::size_t most) const = 0;
  /// Returns the bytes of weights, gradients and optimizer state of all layers.
  virtual double state_bytes() const = 0;
  /// Returns the bytes that all layers keep for the backward without recomputation, and those of a
  /// layer's input.
  virtual double kept_bytes(double microbatch) const = 0;
  virtual double layer_input_bytes(double microbatch) const = 0;
  /// Returns whether all layers are alike, as those of a transformer are.
  virtual bool alike() const = 0;
  /// Returns why nothing is known of such microbatches, or "". The other functions require that it
  /// is "".
  virtual std::string refuse(double /*microbatch*/, Recompute /*recompute*/) const { return ""; }
};

struct PlanRequest {
  const PlanModel* model = nullptr;
  std::vector<PlanLevel> levels;       ///< innermost first
  std::optional<double> memory_bytes;  ///< per device; none: not limited
  bool straight = false;               ///< whether no stage may be replicated
  bool transfers = true;               ///< whether the planner counts messages between stages
  std::int64_t microbatch_size = 1;    ///< used where the planner does not choose it
  std::int64_t batch = 1;              ///< samples per weight update, over all devices
  int stages = 0;        ///< used where the planner does not choose it; 0: all devices
  bool by_size = false;  ///< whether torchgpipe balances bytes instead of times
  std::size_t most_plans = 1;
  /// The time, by steady_s(), after which nothing more is simulated.
  double until_s = std::numeric_limits<double>::infinity();
  /// Simulates a plan, whose layers are those of a chain, with the costs that planners have. With
  /// `alone` it simulates one replica on links that nobody shares, which is quick and seldom
  /// slower. Where it is not set, planners use only their own formulas.
  std::function<SimulatedPlan(const Plan&, bool alone)> simulate{};

  int devices() const;
  double memory_or_unlimited() const;
  bool in_time() const;
};

/// The answer of a planner: plans, best first, or why there are none.
struct PlanResult {
  std::vector<Plan> plans;
  std::vector<std::string> notes;
  std::string infeasible_because;
  double single_device_s = 0;  ///< the time of one microbatch on one device
};

/// A way to plan. Adding one is a file and a row in `planners()`.
struct Planner {
  std::string_view name;
  std::string_view paper;
  std::string_view summary;
  bool batch_matters;  ///< whether its plans depend on the samples per update
  bool simulates;      ///< whether it chooses by simulation, where the request has `simulate`
  /// Returns its answer. Requires that the model has costs of the request's microbatch without
  /// recomputation.
  PlanResult (*plan)(const PlanRequest&);
};

/// Returns a planner's answer; each plan is simulated where the request has `simulate`. Where the
/// model refuses the request's microbatch, the answer has no plan and says why.
PlanResult ask(const Planner& planner, const PlanRequest& request);

const std::vector<Planner>& planners();
/// Returns the planner of a name, or null when there is none.
const Planner* find_planner(std::string_view name);

/// Sets the devices of the stages, one stage after the other, so that replicas are neighbours.
void place_in_order(Plan& plan);

/// Sets the devices of the stages pipeline by pipeline: replica r of stage s has device r * depth +
/// s. Requires that all stages have as many replicas.
void place_by_pipeline(Plan& plan);

/// Returns the replicas of the stages as "15-1", or as "8x4" where all have as many.
std::string replicas_text(const Plan& plan);

/// Returns all divisors of n, ascending. Requires n >= 1.
std::vector<std::int64_t> divisors_of(std::int64_t n);

/// Returns ascending numbers as ranges: "0-7", "0-3 8-11", "5".
std::string ranges_text(const std::vector<int>& numbers);

/// Returns stages of these numbers of layers, with times divided by the replicas and without
/// devices. Requires that the numbers add up to those of the chain.
std::vector<PlannedStage> stages_of(const std::vector<LayerState>& chain,
                                    const std::vector<int>& layers, int replicas);

}  // namespace penstock
