// SPDX-License-Identifier: Apache-2.0
// Makes scenarios of the plans of published planners, so that one simulator answers for all.
//
// PipeDream's plans keep a weight version per microbatch in flight; their replicas take turns and
// may differ in number from stage to stage. A stage of DAPPLE divides each microbatch among its
// replicas where the samples allow it; otherwise its replicas take turns, too, with the largest
// part of the batch that all replicas can share equally. Both name their devices. A plan of
// PipeDream's with one stage is data parallelism.
#pragma once

#include "plan/plan.hpp"
#include "plan/search/candidate.hpp"

namespace penstock {

/// Returns the plan as it would be run. Requires that it has stages, counted in layers of a chain.
Choice choice_of(const Plan& plan);

/// Returns the choice with as many microbatches as make updates of the problem's batch; for
/// PipeDream, which updates after each microbatch, with as large ones. Returns none where replicas
/// that take turns cannot make such updates. Throws InputError where the choice is no scenario.
std::optional<Choice> with_batch_of(const Problem& problem, Choice choice);

/// Returns a function for PlanRequest::simulate, which uses the engine that the plan's links need.
/// `problem` must outlive it.
std::function<SimulatedPlan(const Plan&, bool alone)> simulator(const Problem& problem);

/// A model that is cut only in its order of execution, as scenarios are: its states are its chain.
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
