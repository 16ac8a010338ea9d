// The meaning of a run, without a pipeline: the same stages, microbatches and weight-version rule,
// computed one after the other on one device. Its final weights are the proof that an execution did
// what its schedule promises; they are equal bit for bit, because every stage adds its gradients in
// the same order (that of its ops in the Program) and every sum has a fixed order: of twins
// (mirrored placements) the sum of each by itself, and then of the two.
#pragma once

#include "hw/executor.hpp"

namespace penstock {

struct ReferenceResult {
  std::vector<std::string> weights;  ///< per virtual stage: fp32, as bytes
  std::vector<float> losses;         ///< per microbatch
};

/// Runs the plan's updates one by one. Precondition: one replica, and the plan passed its check.
/// Holds the activations of one microbatch, or of an update where stages differ in their order.
ReferenceResult run_reference(const RunPlan& plan, Device& device, const StageFactory& make_stage);

}  // namespace penstock
