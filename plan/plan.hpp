// SPDX-License-Identifier: Apache-2.0
// What every planner answers, and what it is asked.
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
  int first_layer = 0, last_layer = 0;  ///< 0-based, inclusive; of a graph with branches: states
  int replicas = 1;
  std::vector<int> devices;  ///< of all replicas
  double time_s = 0;         ///< per microbatch, over the replicas, as the planner counts it
  double memory_bytes = 0;   ///< per device, as the planner counts it; 0: it does not
  std::string first_name, last_name;  ///< of the layers
};

/// What `simulate` says of a plan.
struct SimulatedPlan {
  double samples_per_s = 0;  ///< 0: it does not run, or does not fit
  std::string why_not{};     ///< then
};

struct Plan {
  std::string planner;
  std::vector<PlannedStage> stages;
  std::int64_t microbatch_size = 1;
  std::int64_t microbatches = 1;  ///< per weight update
  Recompute recompute = Recompute::none;
  std::string schedule;
  double time_per_stage_s = 0;               ///< between two microbatches, over all replicas
  double throughput_samples_per_s = 0;       ///< as the planner predicts it
  double speedup = 0;                        ///< over one device
  double data_parallel_speedup = 0;          ///< of data parallelism over all devices; 0: not known
  double latency_s = 0;                      ///< of a whole update; 0: the planner has none
  std::string limited_by;                    ///< what keeps it from being faster
  std::optional<SimulatedPlan> simulated{};  ///< none: nobody was asked

  int depth() const { return static_cast<int>(stages.size()); }
  /// Replicas of the first stage: of all of them where they are alike.
  int width() const { return stages.empty() ? 0 : stages.front().replicas; }
  bool uneven() const;
  int devices_used() const;
  /// Counts the samples of all replicas; for PipeDream, one minibatch of each.
  std::int64_t samples_per_update() const;
};

/// Groups of `width` devices, or of groups of the level below, that talk over this bandwidth.
struct PlanLevel {
  int width = 1;
  double bytes_per_s = 0;
};

/// A model as the planners ask for it, at any microbatch size.
class PlanModel {
 public:
  virtual ~PlanModel() = default;
  /// Cuts behind each layer, in execution order.
  virtual std::vector<LayerState> chain(double microbatch, Recompute recompute) const = 0;
  /// Cuts of a graph with branches, of a chain the same as `chain`; none when they are more than
  /// `most`.
  virtual std::vector<LayerState> states(double microbatch, std::size_t most) const = 0;
  /// Weights, gradients and optimizer state of all layers.
  virtual double state_bytes() const = 0;
  /// Kept for the backward by all layers without recomputation, and the input of one layer.
  virtual double kept_bytes(double microbatch) const = 0;
  virtual double layer_input_bytes(double microbatch) const = 0;
  /// Whether all layers are alike, as those of a transformer are.
  virtual bool alike() const = 0;
  /// Why nothing is known of such microbatches: "" where it is. The others ask for no such one.
  virtual std::string refuse(double /*microbatch*/, Recompute /*recompute*/) const { return ""; }
};

struct PlanRequest {
  const PlanModel* model = nullptr;
  std::vector<PlanLevel> levels;       ///< innermost first
  std::optional<double> memory_bytes;  ///< per device; none: not limited
  bool straight = false;               ///< no stage is replicated
  bool transfers = true;               ///< the planner counts messages between stages
  std::int64_t microbatch_size = 1;    ///< where the planner does not choose it
  std::int64_t batch = 1;              ///< samples per weight update, over all devices
  int stages = 0;                      ///< where the planner does not choose it; 0: all devices
  bool by_size = false;                ///< torchgpipe: balance bytes instead of times
  std::size_t most_plans = 1;
  double until_s =
      std::numeric_limits<double>::infinity();  ///< by steady_s(): then no more is simulated
  /// Asks `simulate`, with the costs that the planners have, for a plan whose layers are those of a
  /// chain; with `alone` of one replica on links that nobody shares, which is quick and seldom
  /// slower. Not set: planners have their own formulas alone.
  std::function<SimulatedPlan(const Plan&, bool alone)> simulate{};

  int devices() const;
  double memory_or_unlimited() const;
  bool in_time() const;
};

/// Plans, best first; none when nothing fits, and why.
struct PlanResult {
  std::vector<Plan> plans;
  std::vector<std::string> notes;
  std::string infeasible_because;
  double single_device_s = 0;  ///< one microbatch on one device
};

/// A way to plan. Adding one is a file and a row in `planners()`.
struct Planner {
  std::string_view name;
  std::string_view paper;
  std::string_view summary;
  bool batch_matters;  ///< its plans depend on the samples per update
  bool simulates;      ///< it chooses by what `simulate` says, where the request can ask
  /// Precondition: the model has costs of the request's microbatch without recomputation.
  PlanResult (*plan)(const PlanRequest&);
};

/// Its answer, with what `simulate` says of each plan where the request can ask; where the model
/// refuses the request's microbatch, that there is no plan, and why.
PlanResult ask(const Planner& planner, const PlanRequest& request);

const std::vector<Planner>& planners();
/// Null when there is none of this name.
const Planner* find_planner(std::string_view name);

/// Fills devices of the stages one after the other: replicas are neighbours.
void place_in_order(Plan& plan);

/// Fills devices of alike stages pipeline by pipeline: replica r of stage s is r * depth + s.
void place_by_pipeline(Plan& plan);

/// "15-1", or "8x4" where all stages have as many replicas.
std::string replicas_text(const Plan& plan);

/// All divisors of n, ascending. Requires n >= 1.
std::vector<std::int64_t> divisors_of(std::int64_t n);

/// "0-7", "0-3 8-11", "5".
std::string ranges_text(const std::vector<int>& numbers);

/// Stages of these numbers of layers, times over the replicas; devices are left to be filled.
/// Precondition: the numbers add up to the chain's.
std::vector<PlannedStage> stages_of(const std::vector<LayerState>& chain,
                                    const std::vector<int>& layers, int replicas);

}  // namespace penstock
