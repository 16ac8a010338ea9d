#include "scenarios/schedule_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

void refuse_without_meaning(const Section& pipeline, const Schedule& schedule,
                            Diagnostics& diagnostics) {
  const auto refuse = [&](const char* key, bool has_meaning, const char* who) {
    if (!pipeline.has(key) || has_meaning) return;
    diagnostics.add(pipeline.at(key), fmt::format("'{}' has a meaning for {} only, not for '{}'",
                                                  key, who, schedule.name));
  };
  refuse("group", schedule.groups, "interleaved-1f1b");
  refuse("checkpoint", schedule.checkpoints, "torchgpipe");
  refuse("memory_limit", schedule.usual_limit > 0,
         "schedules that search (`penstock schedule list`)");
  refuse("correction", schedule.corrects, "pipemare");
  if (schedule.checkpoints && pipeline.has("recompute"))
    diagnostics.add(pipeline.at("recompute"),
                    fmt::format("'{}' recomputes as 'checkpoint' says: always, except_last "
                                "(default) or never",
                                schedule.name));
}

void read_memory_limit(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics) {
  const auto limits = pipeline.list("memory_limit").value_or(std::vector<double>{});
  if (limits.empty()) return;
  if (std::ranges::min(limits) <= 0) {
    diagnostics.add(pipeline.at("memory_limit"),
                    "'memory_limit' must be more than 0, such as 1 for the memory of 1F1B");
    return;
  }
  if (pipeline.at("memory_limit").kind != Value::Kind::list) {
    scenario.shape.memory_limit = limits.front();
    return;
  }
  scenario.shape.memory_limits = limits;
  if (limits.size() == scenario.shape.depth || pipeline.broken("stages")) return;
  diagnostics.add(pipeline.at("memory_limit"),
                  fmt::format("'memory_limit' lists {} devices, the pipeline has {}", limits.size(),
                              scenario.shape.depth));
  scenario.shape.memory_limits.clear();
}

double transfer_s(const Scenario& scenario) {
  if (scenario.lowering.transfers == Transfers::free) return 0;
  std::int64_t bytes = 0;
  for (const StageCosts& c : scenario.costs) bytes = std::max(bytes, c.output_bytes);
  // A private link between every two devices is crossed once; of others the bound is known.
  const LinkSpec link =
      scenario.cluster.link ? *scenario.cluster.link : slowest_way(scenario.cluster);
  return link.latency_s + static_cast<double>(bytes) / link.bytes_per_s;
}

}  // namespace

void read_schedule_options(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics) {
  ScheduleShape& shape = scenario.shape;
  const Schedule* schedule = scenario.schedule;
  const std::uint32_t usual = schedule == nullptr ? 1 : schedule->chunks.usual;
  shape.chunks = static_cast<std::uint32_t>(pipeline.integer("chunks").value_or(usual));
  if (schedule != nullptr)
    shape.own_stages = static_cast<std::uint32_t>(schedule->positions.size());
  shape.group = static_cast<std::uint32_t>(pipeline.integer("group").value_or(0));
  shape.checkpoint = static_cast<Checkpoint>(
      pipeline.choice("checkpoint").value_or(static_cast<int>(Checkpoint::except_last)));
  shape.correction = pipeline.boolean("correction").value_or(true);
  if (schedule == nullptr) return;
  // The two stages of a device are the two directions' own: p virtual stages in all.
  const Chunks& admitted = schedule->chunks;
  if (schedule->layout == Layout::mirrored && shape.chunks >= admitted.least &&
      shape.chunks <= admitted.most)
    shape.chunks = 1;
  read_memory_limit(pipeline, scenario, diagnostics);
  refuse_without_meaning(pipeline, *schedule, diagnostics);
  if (schedule->checkpoints)
    scenario.recompute = shape.checkpoint == Checkpoint::never ? Recompute::none : Recompute::full;
}

void tell_costs(Scenario& scenario) {
  const bool bytes_known = std::ranges::any_of(
      scenario.costs, [](const StageCosts& c) { return c.activation_bytes > 0; });
  scenario.shape.times.clear();
  for (const StageCosts& c : scenario.costs) {
    StageTimes& t = scenario.shape.times.emplace_back();
    t.forward = c.forward_s;
    t.backward_input = c.backward_input_s;
    t.backward_weight = c.backward_weight_s;
    if (!bytes_known) continue;
    t.activation = static_cast<double>(c.activation_bytes);
    t.activation_after_input = static_cast<double>(c.activation_after_input_bytes);
  }
  scenario.shape.transfer = transfer_s(scenario);
}

void cost_whole_backwards(Scenario& scenario) {
  const auto m = static_cast<int>(scenario.shape.microbatches_per_update);
  const auto join = [m](std::vector<StageCosts>& costs) {
    for (StageCosts& c : costs) {
      c.backward_microbatches = m;
      for (double* of_one : {&c.backward_s, &c.backward_input_s, &c.backward_weight_s})
        *of_one *= m;
      for (const OpKind kind :
           {OpKind::backward, OpKind::backward_input, OpKind::backward_weight}) {
        Recipe& recipe = c.recipes[static_cast<std::size_t>(kind)];
        recipe.times *= m;
        for (Segment& segment : recipe.segments) segment.bytes *= m;
      }
    }
  };
  join(scenario.costs);
  for (std::vector<StageCosts>& costs : scenario.unlike.costs) join(costs);
}

void add_stored(std::vector<StageCosts>& costs, const std::vector<StageCosts>& stored) {
  for (std::size_t s = 0; s < costs.size(); ++s) {
    costs[s].recompute_s = costs[s].backward_s - stored[s].backward_s;
    costs[s].stored_activation_bytes = stored[s].activation_bytes;
    costs[s].stored_workspace_bytes = stored[s].backward_workspace_bytes;
  }
}

}  // namespace penstock
