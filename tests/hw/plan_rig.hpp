// SPDX-License-Identifier: Apache-2.0
// Shorthand of tests: a schedule as a plan for the executor, and a run of it in this process.
#pragma once

#include "hw/run.hpp"
#include "sim/bucket_times.hpp"
#include "tests/rig.hpp"
#include "tests/effort.hpp"

namespace penstock {

inline RunPlan plan_of(const RigSpec& spec) {
  const Rig rig(spec);
  RunPlan plan;
  plan.name = spec.schedule;
  plan.program = rig.program;
  plan.costs = rig.costs;
  for (const Transfer& c : rig.traffic->messages())
    plan.channels.push_back({c.source, c.destination, c.backward, c.latency_s, c.bytes_per_s});
  plan.reduction.algorithm = spec.reduction.algorithm;
  plan.reduction.servers = spec.reduction.servers;
  for (const auto& parts : parts_by_position(rig.input())) {
    auto& here = plan.reduction.parts.emplace_back();
    for (const auto& [ready, share, seconds, stage] : parts)
      here.push_back({ready, share, seconds, stage});
  }
  return plan;
}

/// Gradients of each stage leave in so many equal parts beside its last backward of an update,
/// those of later stages first.
inline void divide_reduction(RunPlan& plan, int parts) {
  for (std::uint32_t p = 0; p < plan.reduction.parts.size(); ++p) {
    auto& here = plan.reduction.parts[p];
    here.clear();
    const std::vector<std::uint32_t>& stages =
        plan.program.placement.stages_at(std::min(p, plan.program.placement.mirror_of(p)));
    for (std::size_t i = stages.size(); i-- > 0;)
      for (int k = 1; k <= parts; ++k)
        here.push_back({.ready = 1.0 * k / parts,
                        .share = 1.0 / (parts * static_cast<double>(stages.size())),
                        .seconds = 0,
                        .stage = static_cast<std::uint16_t>(stages[i])});
  }
}

/// A shape that a schedule admits, as near to p devices and m microbatches per update as its rules
/// let it be. PipeDream and model parallelism update after each microbatch, so they get as many
/// updates instead. Data parallelism has one stage.
inline ScheduleShape shape_of(const std::string& name, std::uint32_t p, std::uint32_t m,
                              std::uint32_t batches) {
  const Schedule* found = find_schedule(name);
  if (found == nullptr) throw InternalBug(name + " is no schedule");
  const Schedule& schedule = *found;
  if (schedule.whole_model) p = 1;
  const auto most = 2 * p + 2;
  for (std::uint32_t depth = p; depth <= most; ++depth) {
    ScheduleShape shape{.depth = depth, .batches = batches, .chunks = schedule.chunks.usual};
    for (shape.microbatches_per_update = m; shape.microbatches_per_update <= m + 4 * depth;
         ++shape.microbatches_per_update) {
      if (schedule.refuse(shape).empty()) return shape;
    }
    shape.microbatches_per_update = 1;
    shape.batches = m * batches;
    if (schedule.refuse(shape).empty()) return shape;
  }
  throw InternalBug(name + " admits no shape near the one a test asked for");
}

/// Values in turn, one for each stage of a plan.
inline PerStage<Recomputation> in_turn(const RunPlan& plan,
                                       const std::vector<Recomputation>& values) {
  std::vector<Recomputation> each;
  for (std::size_t s = 0; s < plan.costs.size(); ++s) each.push_back(values[s % values.size()]);
  return PerStage<Recomputation>(std::move(each));
}

/// A small GPT of `layers` layers per stage.
inline void make_transformer(RunPlan& plan, const PerStage<Recomputation>& recompute,
                             int layers = 1) {
  plan.compute = Compute::transformer;
  plan.recompute = recompute;
  plan.layers.assign(plan.costs.size(), layers);
  TransformerSpec& m = plan.model;
  m.num_layers = layers * static_cast<int>(plan.costs.size());
  m.hidden_size = 16;
  m.num_attention_heads = m.num_query_groups = 2;
  m.ffn_hidden_size = 32;
  m.vocab_size = 40;
  m.seq_length = 8;
  m.compute_type = "fp32";
  plan.microbatch_size = 2;
  plan.optimizer.kind = OptimizerSpec::Kind::adamw;
}

inline RecordedRun run_alone(const RunPlan& plan, const RunOptions& options) {
  SingleProcess alone;
  return execute_plan(plan, options, alone);
}

inline RunOptions virtual_clock() {
  RunOptions options;
  options.settings.clock = Clock::virtual_clock;
  options.settings.deadline_s = 30;
  return options;
}

/// By their names. With a sanitizer every other one, and not those that search for their order:
/// that takes most of the time.
inline std::vector<std::string> executed_schedules() {
  std::vector<std::string> names;
  std::size_t number = 0;
  for (const Schedule& s : schedules())
    if (!is_left_out(number++) && (!kBrief || !s.name.ends_with("search")))
      names.emplace_back(s.name);
  return names;
}

/// Rendezvous of both ends can block what has several stages on a device or splits the backward,
/// and knows no pairs.
inline bool coupled_fits(const RigSpec& spec) {
  if (spec.transfers != Transfers::coupled) return true;
  const Schedule& schedule = *find_schedule(spec.schedule);
  if (schedule.pairs) return false;
  const bool plain = schedule.chunks.usual == 1 && schedule.layout != Layout::mirrored;
  if (plain && !schedule.splits_backward) return true;
  const Rig rig(spec);
  return check(rig.program, rig.table).empty();
}

inline RunOptions unpaced() {
  RunOptions options;
  options.settings.deadline_s = 30;
  return options;
}

}  // namespace penstock
