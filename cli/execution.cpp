// SPDX-License-Identifier: Apache-2.0
#include "cli/execution.hpp"

#include "base/error.hpp"
#include "results/execution.hpp"
#include "sim/bucket_times.hpp"
#include "sim/durations.hpp"

#include <map>
#include <tuple>

namespace penstock {
namespace {

std::vector<Channel> channels_of(const Simulation& s) {
  std::vector<Channel> channels;
  for (const Transfer& c : s.traffic->messages())
    channels.push_back({c.source, c.destination, c.backward, c.latency_s, c.bytes_per_s});
  return channels;
}

/// Each device is executed by `ranks(device)` of its GPUs.
template <class Ranks>
ReductionPlan reduction_of(const Simulation& s, const Ranks& ranks) {
  ReductionPlan reduction;
  reduction.algorithm = s.scenario.reduction.algorithm;
  reduction.servers = s.scenario.reduction.servers;
  for (const auto& parts : parts_by_position(s.input())) {
    auto& here = reduction.parts.emplace_back();
    for (const auto& [ready, share, seconds, stage] : parts)
      here.push_back({ready, share, seconds, stage});
  }
  for (std::size_t d = 0; d < s.scenario.mesh.gpus.size(); ++d) {
    const std::vector<int>& gpus = s.scenario.mesh.gpus[d];
    for (int rank = 0; rank < ranks(static_cast<int>(d)); ++rank) {
      reduction.gpus.push_back(gpus[static_cast<std::size_t>(rank)]);
      reduction.nodes.push_back(s.scenario.cluster.node_of(reduction.gpus.back()));
    }
  }
  return reduction;
}

/// Returns the seconds that an op of a stage computes between sending tokens to experts and getting
/// back what these made.
double experts_s(const StageCosts& costs, OpKind kind, bool stored) {
  const OpCost& cost = stored && costs.stored ? (*costs.stored)[kind] : costs[kind];
  const std::vector<Segment>& segments = cost.recipe.segments;
  const auto sends = std::ranges::find_if(
      segments, [](const Segment& s) { return s.exchanges() && s.axis == Axis::expert; });
  const auto is_behind = [&](const Segment& s) {
    return !s.exchanges() && s.after == sends - segments.begin();
  };
  const auto experts = std::ranges::find_if(segments, is_behind);
  return experts == segments.end() ? 0 : experts->share * cost.seconds;
}

std::vector<ExchangeSeconds> exchanges_of(const Simulation& s) {
  std::vector<ExchangeSeconds> all;
  const Durations durations(s.input());
  const Placement& placement = s.program.placement;
  for (int d = 0; d < placement.devices(); ++d) {
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(d))) {
      for (const bool stored : {false, true}) {
        const std::uint8_t flags = stored ? std::uint8_t{Op::stored} : std::uint8_t{0};
        const auto seconds = [&](OpKind kind, std::uint8_t more = 0) {
          return durations.beyond_compute_s({.stage = static_cast<std::uint16_t>(stage),
                                             .kind = kind,
                                             .flags = static_cast<std::uint8_t>(flags | more)},
                                            d, 0);
        };
        const ExchangeSeconds e{d,
                                stage,
                                stored,
                                seconds(OpKind::forward),
                                seconds(OpKind::backward),
                                seconds(OpKind::backward_input),
                                seconds(OpKind::backward_weight),
                                seconds(OpKind::forward, Op::gathers),
                                experts_s(s.scenario.costs[stage], OpKind::forward, stored),
                                experts_s(s.scenario.costs[stage], OpKind::backward, stored),
                                experts_s(s.scenario.costs[stage], OpKind::backward_input, stored)};
        if (e.forward > 0 || e.backward > 0 || e.gathering > 0) all.push_back(e);
      }
    }
  }
  return all;
}

/// Returns what pairs of ops exchange while one of them computes.
std::vector<PairExchangeSeconds> pair_exchanges_of(const Simulation& s) {
  std::map<std::tuple<int, int, int, bool, bool, bool>, double> all;
  const Durations durations(s.input());
  const OpLists& ops = s.program.ops;
  for (int d = 0; d < ops.devices(); ++d) {
    for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g) {
      if (!ops[g].has(Op::paired)) continue;
      Op op = ops[g], other = ops[g + 1];
      const double both_s = durations.beyond_compute_s(op, d, g);
      op.flags &= static_cast<std::uint8_t>(~Op::paired);
      if (both_s ==
          durations.beyond_compute_s(op, d, g) + durations.beyond_compute_s(other, d, g + 1))
        continue;
      all[{d, op.stage, other.stage, op.has(Op::stored), other.has(Op::stored),
           other.kind == OpKind::backward_input}] = both_s;
    }
  }
  std::vector<PairExchangeSeconds> list;
  for (const auto& [key, seconds] : all) {
    const auto [device, stage, other, stored, other_stored, input_alone] = key;
    list.push_back({device, static_cast<std::uint32_t>(stage), static_cast<std::uint32_t>(other),
                    stored, other_stored, input_alone, seconds});
  }
  return list;
}

}  // namespace

ComputeChoice compute_of(const Arguments& arguments) {
  const std::string name = arguments.value("compute", "auto");
  return name == "real"       ? ComputeChoice::real
         : name == "stand-in" ? ComputeChoice::stand_in
                              : ComputeChoice::automatic;
}

RunPlan run_plan_of(const Simulation& s, ComputeChoice compute, bool perturbed) {
  const bool real = s.scenario.transformer && compute != ComputeChoice::stand_in &&
                    s.scenario.training.problem == TrainingSpec::Problem::model;
  require_executable(s.scenario, perturbed, real);
  RunPlan plan;
  plan.name = s.scenario.name;
  plan.scenario = s.scenario.text();
  plan.program = s.program;
  plan.costs = s.scenario.costs;
  plan.channels = channels_of(s);
  if (real) {
    const Mesh& mesh = s.scenario.mesh;
    plan.division = {mesh.size(Axis::tensor), s.scenario.sequence_parallel};
    if (mesh.divided) plan.division.replicas = mesh.widths(s.scenario.shape.depth);
    plan.division.expert = std::max(1, mesh.expert);
  }
  plan.reduction = reduction_of(s, [&](int device) { return ranks_of_device(plan, device); });
  plan.exchange_s = exchanges_of(s);
  plan.pair_exchange_s = pair_exchanges_of(s);
  if (!s.scenario.sharding.gathers_in_reduction()) plan.sharding = s.scenario.sharding;
  plan.microbatch_size = s.scenario.microbatch_size;
  plan.recompute = s.scenario.recompute;
  plan.optimizer = s.scenario.optimizer;
  plan.training = s.scenario.training;
  if (plan.training.problem != TrainingSpec::Problem::model) {
    plan.compute = plan.training.problem == TrainingSpec::Problem::linear ? Compute::linear
                                                                          : Compute::quadratic;
    return plan;
  }
  if (compute == ComputeChoice::real && !s.scenario.transformer) {
    throw InputError("--compute real",
                     "the model is given by its costs; there is nothing real to compute");
  }
  if (!s.scenario.transformer || compute == ComputeChoice::stand_in) return plan;
  plan.compute = Compute::transformer;
  plan.model = *s.scenario.transformer;
  plan.layers = s.scenario.layers;
  return plan;
}

}  // namespace penstock
