// SPDX-License-Identifier: Apache-2.0
// From a specification to the set-up of a run: pure functions, each of which makes a part of it
// from the specification and the parts before, and reports what does not go together.
#pragma once

#include "models/gradient_buckets.hpp"
#include "scenarios/specification.hpp"

namespace penstock {

/// Throws InputError with everything that is wrong.
Scenario resolve(const Specification& spec);

/// Replicas by position.
PerStage<int> widths_of(const Specification& spec);

/// How gradients are reduced, and into which parts `overlap: backward` was asked to cut them.
struct ReductionRequest {
  ReductionOptions options{};
  Overlap overlap = Overlap::none;
  std::optional<std::int64_t> count{};  ///< equal ones
  std::optional<double> least_bytes{};  ///< by layer; where layers are unknown equal ones
};
/// `replicas`: the most of any position.
ReductionRequest reduction_of(const Specification& spec, int replicas);

/// Returns the request with what overlaps where the pipeline does not say it: what the stack does;
/// without a stack, data parallelism reduces beside its backward and pipelines do so after it.
ReductionRequest with_usual_overlap(ReductionRequest request, const Specification& spec);

/// The buckets of a stage. `layers`: its layers in the order of the forward pass; empty when they
/// are unknown. `bytes`: its gradient.
std::vector<GradientBucket> buckets_of(const ReductionRequest& request,
                                       const std::vector<LayerGradient>& layers, double bytes);

/// With a distributed optimizer the reduced bytes are half of the gradients and half of the
/// weights; the weights are gathered when they have been updated: in a part of their own, behind
/// all others.
std::vector<GradientBucket> with_weights_last(const ParameterBytes& bytes,
                                              std::vector<GradientBucket> buckets);

/// Everything but the GPUs of the mesh.
Parallelism parallelism_of(const Specification& spec, const PerStage<int>& width,
                           const ReductionRequest& reduction);

/// Is the number of stages what the user meant, rather than what stands in for a mistake?
bool depth_known(const Specification& spec, const ScheduleShape& shape);
/// So of the replicas and their GPUs.
bool mesh_known(const Specification& spec);
bool cluster_broken(const Specification& spec);  ///< do its sizes stand in for a mistake?

/// The shape but for the replicas, and for microbatches that follow from the global batch.
ScheduleShape shape_of(const Specification& spec);

/// Of all virtual stages. `shaped`: their number is known.
PerStage<Recomputation> recompute_of(const Specification& spec, const ScheduleShape& shape,
                                     bool shaped);
/// Where this value stands: of a list, the first such item; the list itself without one.
const Value& recompute_place(const Specification& spec, Recompute value);

/// Sets who has which experts; `job`: its mesh is known otherwise.
void set_experts(const Specification& spec, Parallelism& job);
/// Sets which tokens go to which experts, and the lengths of documents; `job`: its mesh and shape
/// are known.
void set_draws(const Specification& spec, Parallelism& job);
/// Says what the first draw has come to.
void note_draws(const Specification& spec, const Scenario& scenario, const DrawnLoads& loads);
/// Can the model, and the replicas' optimizers, be divided so?
void check_shares(const Specification& spec, const Parallelism& job);
/// Returns what those divide who have the same weights. `job`: its mesh and shape are known.
Sharding sharding_of(const Specification& spec, const Parallelism& job);
/// What a user should know of a stage shared by several GPUs.
void note_tensor(const TransformerSpec& model, const Cluster& cluster, const Mesh& mesh,
                 Diagnostics& diagnostics);

/// Reports a schedule's refusal at the key that it is about.
void add_refusal(const Refusal& refused, const Specification& spec, const ScheduleShape& shape);

/// What the stages cost.
struct CostedStages {
  std::vector<int> layers{};  ///< of each; none where they are unknown
  std::vector<StageCosts> costs{};
  UnlikeDevices unlike{};
  std::vector<std::vector<LayerGradient>> gradients{};  ///< of each one's layers, if known
};

/// Of those that recompute some microbatches and not others, both. `layers` are balanced where
/// there are none; gradients by layer are known where they overlap the backward.
CostedStages cost_stages(const Specification& spec, const Parallelism& job, const Cluster& cluster,
                         std::vector<int> layers, Overlap overlap);
/// Of a model by layers, of all microbatches alike.
CostedStages cost_pipedream_profile(const Specification& spec, const Parallelism& job,
                                    std::vector<int> layers);
/// One backward for all microbatches of an update: its costs are theirs together.
CostedStages with_whole_backwards(CostedStages stages, std::uint32_t microbatches);
/// For the costs of a model by shape.
StageCostOptions cost_options(const Parallelism& job);

/// How a microbatch differs from one with as many tokens for every GPU and whole sequences.
struct Uneven {
  double rows = 1, received = 1, skew = 0;  ///< as of ExpertParallel
  double attended = 1;                      ///< as of StageCostOptions
  auto operator<=>(const Uneven&) const = default;
};
/// What such microbatches cost on the stages of a job by its shape, whose devices are alike.
class UnevenCosts {
 public:
  /// The scenario must outlive it.
  explicit UnevenCosts(const Scenario& scenario);
  PassCosts of(std::uint32_t stage, const Uneven& uneven) const;

 private:
  StageCosts stage_costs(std::uint32_t stage, const Uneven& uneven) const;

  const Scenario& scenario_;
  std::vector<DeviceSpec> devices_;  // by virtual stage
  double pace_ = 1;
};

/// How weights are trained where the scenario is executed. `batches`: of the run.
std::pair<OptimizerSpec, TrainingSpec> training_of(const Specification& spec,
                                                   std::uint32_t batches);

/// Do a model's costs and measurements fit the stages?
void check_given_costs(const Specification& spec, const Parallelism& job);
void check_layer_profile(const Specification& spec, const Parallelism& job);
bool per_chunk(const Section& model);  ///< are one number's costs those of each chunk?
/// Are microbatches smaller than what the efficiency curves were measured with?
bool beyond_curve(const Specification& spec, const Parallelism& job);

/// What a user should know of where the costs come from and how far they reach.
void note_costs(const Specification& spec, const Scenario& scenario);
void note_profile(const Specification& spec, const Parallelism& job);

}  // namespace penstock
