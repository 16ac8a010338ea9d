// What the stages of a scenario cost, by the shape of its model and the devices it is placed on.
#pragma once

#include "models/gradient_buckets.hpp"
#include "scenarios/scenario.hpp"

namespace penstock {

/// Sets layers (where they are to be balanced), costs and times of unlike devices of a scenario
/// that is placed; returns the gradients of each stage's layers if asked for them. The costs of a
/// stage whose replicas are on different devices are those of the slowest.
std::vector<std::vector<LayerGradient>> cost_by_shape(Scenario& scenario, bool gradients);

/// Costs that were given are those of a whole microbatch on one device.
void divide_given_costs(Scenario& scenario);

}  // namespace penstock
