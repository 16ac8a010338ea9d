// The section pipeline.reduction: how gradients are reduced over the replicas, and in which parts.
#pragma once

#include "models/gradient_buckets.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

#include <optional>

namespace penstock {

/// Which buckets `overlap: backward` was asked for.
struct BucketRequest {
  bool overlapped = false;
  std::optional<std::int64_t> count;  ///< equal ones
  std::optional<double> least_bytes;  ///< by layer; of stages whose layers are unknown equal ones
};

/// Reads the section into the scenario, whose schedule is known. `reduction` is the section, or an
/// empty one.
BucketRequest read_reduction(const Section& reduction, Scenario& scenario,
                             Diagnostics& diagnostics);

/// The buckets of a stage. `layers`: its layers in the order of the forward pass; empty when they
/// are unknown. `bytes`: its gradient.
std::vector<GradientBucket> buckets_of(const BucketRequest& request,
                                       const std::vector<LayerGradient>& layers, double bytes);

/// With a distributed optimizer the reduced bytes are half of the gradients and half of the
/// weights; the weights are gathered when they have been updated: in a part of their own, behind
/// all others.
void gather_weights_last(const ParameterBytes& bytes,
                         std::vector<std::vector<GradientBucket>>& buckets);

}  // namespace penstock
