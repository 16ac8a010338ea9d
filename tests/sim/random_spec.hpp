// Random scenarios for properties that hold for all.
#pragma once

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
  const auto all = schedules();
  const Schedule& schedule = all[pick(0, static_cast<std::uint32_t>(all.size() - 1))];
  spec.schedule = schedule.name;
  do {
    spec.shape.depth = schedule.whole_model ? 1 : pick(1, 12);
    spec.shape.batches = pick(1, 4);
    const bool stash = schedule.update == UpdateRule::stash;
    if (stash) spec.shape.batches = pick(1, 40);
    spec.shape.microbatches_per_update = stash ? 1 : pick(1, 24);
    spec.shape.chunks = pick(0, 2) == 0 ? pick(1, 4) : schedule.chunks.usual;
    spec.shape.memory_limit = schedule.usual_limit * (pick(0, 1) == 0 ? 1 : 1.5);
  } while (!schedule.refuse(spec.shape).empty());
  spec.width = static_cast<int>(pick(1, 2));
  const bool one_stage = spec.shape.chunks == 1 && schedule.layout != Layout::mirrored;
  const std::uint32_t stages =
      schedule.layout == Layout::mirrored ? spec.shape.depth : spec.shape.stages();
  if (spec.shape.depth <= 4 && one_stage && pick(0, 2) == 0) {
    for (std::uint32_t s = 0; s < spec.shape.depth; ++s)
      spec.shape.widths.push_back(static_cast<int>(pick(1, 4)));
    if (!schedule.refuse(spec.shape).empty()) spec.shape.widths.clear();
  }
  constexpr ReductionAlgorithm kAlgorithms[] = {
      ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical, ReductionAlgorithm::tree,
      ReductionAlgorithm::server};
  spec.reduction.priced = pick(0, 3) == 0;
  spec.reduction.algorithm = kAlgorithms[pick(0, 3)];
  spec.detached = schedule.update == UpdateRule::double_buffer && pick(0, 1) == 1;
  if (pick(0, 1) == 1) {
    spec.reduction.buckets.assign(spec.shape.depth,
                                  {{0.25, 0.25}, {0.5, 0.25}, {0.75, 0.25}, {1, 0.25}});
  }
  do {
    spec.transfers = static_cast<Transfers>(pick(0, 3));
  } while (schedule.pairs && spec.transfers == Transfers::coupled);
  spec.global_step = schedule.flushes() && pick(0, 3) == 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    StageCosts c = unit_costs(log_uniform(1e-6, 1e-1), log_uniform(1e-6, 1e-1));
    c.backward_input_s = c.backward_s * 0.75;
    c.backward_weight_s = c.backward_s - c.backward_input_s;
    c.overlap_saving_s = std::min(c.forward_s, c.backward_s) * pick(0, 1) / 4;
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
