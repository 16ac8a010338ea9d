// SPDX-License-Identifier: Apache-2.0
// Random scenarios for properties that hold for all.
#pragma once

#include "tests/random_shape.hpp"
#include "tests/rig.hpp"

#include <cmath>
#include <random>

namespace penstock {

/// A random uncontended scenario: any schedule, uneven stages, any transfer rule, FIFO links.
inline RigSpec random_spec(std::mt19937_64& random) {
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  };
  const auto log_uniform = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random));
  };
  RigSpec spec;
  const Schedule& schedule = random_schedule(random);
  spec.schedule = schedule.name;
  spec.shape = random_shape(schedule, random, 12, 24);
  if (schedule.update == UpdateRule::stash) spec.shape.batches = pick(1, 40);
  spec.width = static_cast<int>(pick(1, 2));
  const bool one_stage = spec.shape.chunks == 1 && schedule.layout != Layout::mirrored;
  if (spec.shape.depth <= 4 && one_stage && pick(0, 2) == 0) {
    std::vector<int> replicas;
    for (std::uint32_t s = 0; s < spec.shape.depth; ++s)
      replicas.push_back(static_cast<int>(pick(1, 4)));
    spec.shape.replicas = PerStage<int>(std::move(replicas));
    if (!schedule.refuse(spec.shape).empty()) spec.shape.replicas = 1;
  }
  constexpr ReductionAlgorithm kAlgorithms[] = {
      ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical, ReductionAlgorithm::tree,
      ReductionAlgorithm::server, ReductionAlgorithm::all_to_all};
  // Mirrored devices reduce over links that their messages use, too.
  spec.reduction.priced = pick(0, 3) == 0 || schedule.layout == Layout::mirrored;
  spec.reduction.algorithm = kAlgorithms[pick(0, 4)];
  spec.detached = schedule.update == UpdateRule::double_buffer && pick(0, 1) == 1;
  if (pick(0, 1) == 1) divide_reduction(spec);
  spec.transfers = random_transfers(schedule, spec.shape, random);
  if (schedule.flushes()) spec.step_sync = static_cast<StepSync>(pick(0, 2));
  for (std::uint32_t s = 0; s < stages_of(schedule, spec.shape); ++s) {
    StageCosts c = unit_costs(log_uniform(1e-6, 1e-1), log_uniform(1e-6, 1e-1));
    c[OpKind::backward_input].seconds = c[OpKind::backward].seconds * 0.75;
    c[OpKind::backward_weight].seconds =
        c[OpKind::backward].seconds - c[OpKind::backward_input].seconds;
    c.overlap_saving_s =
        std::min(c[OpKind::forward].seconds, c[OpKind::backward].seconds) * pick(0, 1) / 4;
    if (schedule.whole_backward)
      c.backward_microbatches = static_cast<int>(spec.shape.microbatches_per_update);
    c.step_s = pick(0, 1) * log_uniform(1e-6, 1e-2);
    c.reduce_grad_s = log_uniform(1e-6, 1e-2);
    // Whole bytes on every edge of rings of 2, 3 and 4.
    c.reduced_bytes = 48 * static_cast<std::int64_t>(log_uniform(1, 1e8));
    c.output_bytes = pick(0, 9) == 0 ? 0 : static_cast<std::int64_t>(log_uniform(1, 1e9));
    spec.costs.push_back(c);
  }
  spec.link.latency_s = pick(0, 2) == 0 ? 0 : log_uniform(1e-6, 1e-2);
  if (pick(0, 4) != 0) spec.link.bytes_per_s = log_uniform(1e8, 1e12);
  spec.link.fifo = pick(0, 1) == 1;
  return spec;
}

}  // namespace penstock
