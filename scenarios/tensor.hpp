// How the GPUs of a stage, and the replicas' optimizers, share a model: the keys tensor,
// sequence_parallel and distributed_optimizer.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Reads the keys into the scenario, whose model and width are known, and reports what the model
/// cannot be divided into.
void read_tensor(const Section& pipeline, const std::optional<Section>& model, bool abstract,
                 Scenario& scenario, Diagnostics& diagnostics);

/// What a user should know of a stage shared by several GPUs.
void note_tensor(Scenario& scenario);

/// For the costs of a model by shape.
StageCostOptions cost_options(const Scenario& scenario);

}  // namespace penstock
