// SPDX-License-Identifier: Apache-2.0
// Plans of published planners as scenarios of a problem, so that one simulator answers for all.
//
// PipeDream's plans keep a weight version per microbatch in flight, their replicas take turns and
// may differ in number from stage to stage; a stage of DAPPLE divides each microbatch among its
// replicas, where the samples allow it, else they take turns, too (of the batch, as much as every
// replica can have equally often); both name their devices. A plan of PipeDream's with one
// stage is data parallelism.
#pragma once

#include "plan/plan.hpp"
#include "plan/search/candidate.hpp"

namespace penstock {

/// The plan as it would be run. Precondition: it has stages, counted in layers of a chain.
Choice choice_of(const Plan& plan);

/// The same with as many microbatches as make updates of the problem's batch, of PipeDream, which
/// updates once per microbatch, with as large ones; none where its replicas, which take turns,
/// cannot. Throws InputError where the choice is no scenario.
std::optional<Choice> with_batch_of(const Problem& problem, Choice choice);

/// What plans are asked by: `simulate`, with the engine that their links need. `problem` must
/// outlive it.
std::function<SimulatedPlan(const Plan&, bool alone)> simulator(const Problem& problem);

/// A model that is cut in its order of execution only, as scenarios are: states are its chain.
class ChainModel : public PlanModel {
 public:
  /// `model` must outlive it.
  explicit ChainModel(const PlanModel& model) : model_(model) {}

  std::vector<LayerState> chain(double microbatch, Recompute recompute) const override {
    return model_.chain(microbatch, recompute);
  }
  std::vector<LayerState> states(double microbatch, std::size_t most) const override {
    std::vector<LayerState> chain = model_.chain(microbatch, Recompute::none);
    if (chain.size() > most) chain.clear();
    return chain;
  }
  double state_bytes() const override { return model_.state_bytes(); }
  double kept_bytes(double microbatch) const override { return model_.kept_bytes(microbatch); }
  double layer_input_bytes(double microbatch) const override {
    return model_.layer_input_bytes(microbatch);
  }
  bool alike() const override { return model_.alike(); }
  std::string refuse(double microbatch, Recompute recompute) const override {
    return model_.refuse(microbatch, recompute);
  }

 private:
  const PlanModel& model_;
};

}  // namespace penstock
