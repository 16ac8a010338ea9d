// SPDX-License-Identifier: Apache-2.0
// The meaning of a run, without a pipeline: the same stages, microbatches and weight-version rule,
// computed one after the other on one device. Its final weights are the proof that an execution did
// what its schedule promises; they are equal bit for bit, because every stage adds its gradients in
// the same order (that of its ops in the Program) and every sum has a fixed order: each device that
// holds a stage sums by itself, and these sums are added as the steps of the reduction say
// (models/collective_steps.hpp). Ranks that share a stage compute in turns, from exchange to
// exchange, whose steps are taken the same way. That those add each gradient once, to the same sum
// on every device, is what their own tests show.
#pragma once

#include "hw/executor.hpp"

namespace penstock {

struct ReferenceResult {
  /// Per virtual stage, and of each the ranks that share it: fp32, as bytes.
  std::vector<std::string> weights;
  std::vector<float> losses;  ///< per microbatch
  bool moved = true;          ///< the updates changed the weights of every stage
};

/// Goes through the updates of a plan one by one. The plan must outlive it.
class SequentialRun {
 public:
  /// Precondition: the plan passed its check.
  SequentialRun(const RunPlan& plan, Device& device, const StageFactory& make_stage);
  ~SequentialRun();
  SequentialRun(const SequentialRun&) = delete;
  SequentialRun& operator=(const SequentialRun&) = delete;

  /// In turn, from 0 or from what was loaded on.
  void run_update(std::uint32_t update);
  /// The mean loss of so many held-out microbatches under the newest weights; waits.
  double evaluate(std::uint32_t microbatches);
  /// Of the run: those of all replicas where they wait for no other (RunPlan::lone_updates).
  std::uint32_t updates() const;
  /// The mean over the microbatches of an update that has run; waits.
  double loss(std::uint32_t update) const;
  /// Of all microbatches; waits.
  std::vector<float> losses() const;
  /// The newest, as ReferenceResult has them; waits.
  std::vector<std::string> weights() const;

  /// Weights, versions and moments between two updates, as bytes of this machine.
  std::string save() const;
  /// Throws InputError where they are of another plan.
  void load(std::string_view bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All updates. Precondition: as SequentialRun's.
/// Holds the activations of one microbatch, or of an update where stages differ in their order.
ReferenceResult run_reference(const RunPlan& plan, Device& device, const StageFactory& make_stage);

}  // namespace penstock
