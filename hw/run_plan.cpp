// SPDX-License-Identifier: Apache-2.0
#include "hw/run_plan.hpp"

#include "base/error.hpp"

#include "program/op_costs.hpp"
#include "program/walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace penstock {

double duration_s(const RunPlan& plan, std::uint32_t g) {
  const Program& p = plan.program;
  if (p.ops[g].kind != OpKind::reduce_grad) return computing_s(p.ops, p.placement, plan.costs, g);
  if (plan.reduction.parts.empty()) return 0;
  double seconds = 0;
  for (const ReducedPart& part : parts_at(plan, p.placement.positions()[p.ops[g].stage]))
    seconds += part.seconds;
  return seconds;
}

double exchange_s(const RunPlan& plan, int device, std::uint32_t g) {
  const auto own_s = [&](const Op& op) {
    const auto stated = std::ranges::find_if(plan.exchange_s, [&](const ExchangeSeconds& e) {
      return e.device == device && e.stage == op.stage && e.stored == op.has(Op::stored);
    });
    if (stated == plan.exchange_s.end()) return 0.0;
    switch (op.kind) {
      case OpKind::forward: return op.has(Op::gathers) ? stated->gathering : stated->forward;
      case OpKind::backward: return stated->backward;
      case OpKind::backward_input: return stated->backward_input;
      case OpKind::backward_weight: return stated->backward_weight;
      default: return 0.0;
    }
  };
  const Op& op = plan.program.ops[g];
  for (const PairExchangeSeconds& e : plan.pair_exchange_s) {
    if (!op.has(Op::paired)) break;
    const Op& other = plan.program.ops[g + 1];
    if (e.device == device && e.stage == op.stage && e.stored == op.has(Op::stored) &&
        e.backward_stage == other.stage && e.backward_stored == other.has(Op::stored) &&
        e.input_alone == (other.kind == OpKind::backward_input))
      return e.seconds;
  }
  return own_s(op) + (op.has(Op::paired) ? own_s(plan.program.ops[g + 1]) : 0);
}

int rank_at(const RunPlan& plan, int device, int place) {
  if (plan.division.replicas.empty()) return device * plan.division.tensor + place;
  int first = 0;
  for (int d = 0; d < device; ++d) first += ranks_of_device(plan, d);
  return first + place;
}

RankPlace place_of_rank(const RunPlan& plan, int rank) {
  const int tensor = plan.division.tensor;
  if (plan.division.replicas.empty()) return {rank / tensor, rank % tensor};
  int device = 0;
  for (; rank >= ranks_of_device(plan, device); ++device) rank -= ranks_of_device(plan, device);
  return {device, rank};
}

namespace {

/// Returns the ranks of a position in the order of its replicas.
std::vector<int> ranks_at(const RunPlan& plan, std::uint32_t position) {
  const Placement& placement = plan.program.placement;
  std::vector<int> ranks;
  for (int r = 0; r < placement.widths()[position]; ++r) {
    const int device = placement.device_at(static_cast<std::uint32_t>(r), position);
    for (int place = 0; place < ranks_of_device(plan, device); ++place)
      ranks.push_back(rank_at(plan, device, place));
  }
  return ranks;
}

/// Returns a rank's number among those of its position.
std::size_t number_at_position(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

std::vector<int> expert_group(const RunPlan& plan, int rank) {
  if (!has_experts_apart(plan)) return {rank};
  const Placement& placement = plan.program.placement;
  const std::vector<int> all =
      ranks_at(plan, placement.position_of(place_of_rank(plan, rank).device));
  const auto n = static_cast<std::size_t>(plan.division.expert);
  const auto first =
      all.begin() + static_cast<std::ptrdiff_t>(number_at_position(all, rank) / n * n);
  return {first, first + static_cast<std::ptrdiff_t>(n)};
}

std::vector<int> expert_sharers(const RunPlan& plan, int rank) {
  if (!has_experts_apart(plan)) return {rank};
  const Placement& placement = plan.program.placement;
  const std::uint32_t position = placement.position_of(place_of_rank(plan, rank).device);
  const auto n = static_cast<std::size_t>(plan.division.expert);
  const std::size_t part = number_at_position(ranks_at(plan, position), rank) % n;
  std::vector<int> sharers;
  for (const std::uint32_t p : std::set<std::uint32_t>{position, placement.mirror_of(position)}) {
    const std::vector<int> all = ranks_at(plan, p);
    for (std::size_t i = part; i < all.size(); i += n) sharers.push_back(all[i]);
  }
  return sharers;
}

int share_of_rank(const RunPlan& plan, int rank) {
  const auto [device, place] = place_of_rank(plan, rank);
  const auto part = static_cast<int>(number_at_position(expert_group(plan, rank), rank));
  return place + ranks_of_device(plan, device) * part;
}

std::vector<int> shares_of_stage(const RunPlan& plan, std::uint32_t stage) {
  const Placement& placement = plan.program.placement;
  std::set<int> shares;
  if (!has_experts_apart(plan)) {
    for (int place = 0; place < ranks_of_device(plan, placement.device_of(stage, 0)); ++place)
      shares.insert(place);
  } else {
    for (const int rank : ranks_at(plan, placement.positions()[stage]))
      shares.insert(share_of_rank(plan, rank));
  }
  return {shares.begin(), shares.end()};
}

std::vector<MessagePart> message_parts(const RunPlan& plan, int rank, int other_device) {
  const auto [device, place] = place_of_rank(plan, rank);
  const int tensor = plan.division.tensor;
  const std::int64_t own = plan.microbatch_size / replicas_of_device(plan, device);
  const std::int64_t others = plan.microbatch_size / replicas_of_device(plan, other_device);
  const std::int64_t begin = own * (place / tensor), end = begin + own;
  std::vector<MessagePart> parts;
  for (int r = 0; r < replicas_of_device(plan, other_device); ++r) {
    const std::int64_t first = std::max(begin, others * r);
    const std::int64_t last = std::min(end, others * (r + 1));
    if (first < last)
      parts.push_back(
          {rank_at(plan, other_device, r * tensor + place % tensor), first - begin, last - first});
  }
  return parts;
}

std::vector<ReducedPart> parts_at(const RunPlan& plan, std::uint32_t position) {
  if (plan.reduction.parts.empty()) return {ReducedPart{}};
  return plan.reduction.parts[position];
}

std::vector<GradientRange> ranges_of(
    const std::vector<ReducedPart>& parts,
    const std::vector<std::pair<std::uint32_t, std::int64_t>>& elements) {
  // Where no part names a stage, all stages are one.
  struct OfStage {
    std::int64_t first = 0, end = 0, elements = 0;
    double shares = 0, taken = 0;
    std::size_t left = 0;
  };
  std::map<std::uint16_t, OfStage> stages;
  std::uint16_t last = GradientBucket::kAllStages;
  for (const ReducedPart& part : parts)
    if (part.stage != GradientBucket::kAllStages) last = part.stage;
  const auto owner = [&](const ReducedPart& part) {
    return part.stage == GradientBucket::kAllStages ? last : part.stage;
  };
  std::int64_t before = 0;
  for (const auto& [stage, n] : elements) {
    const bool apart = last != GradientBucket::kAllStages;
    OfStage& s = stages[apart ? static_cast<std::uint16_t>(stage) : last];
    if (apart) s.first = before;
    before += n;
    s.end = before;
    s.elements = s.end - s.first;
  }
  for (const ReducedPart& part : parts) {
    OfStage& s = stages[owner(part)];
    s.shares += part.share;
    ++s.left;
  }
  std::vector<GradientRange> ranges;
  for (const ReducedPart& part : parts) {
    OfStage& s = stages[owner(part)];
    s.taken += part.share;
    const double rest = s.shares > 0 ? 1 - s.taken / s.shares : 0;
    const std::int64_t first =
        --s.left == 0 ? s.first : s.first + std::llround(static_cast<double>(s.elements) * rest);
    ranges.push_back({std::clamp(first, s.first, s.end), s.end});
    s.end = ranges.back().first;
  }
  return ranges;
}

namespace {

/// Returns the steps of a collective of ranks, which are the GPUs that the plan says.
std::vector<CollectiveStep> steps_of(const RunPlan& plan, const std::vector<int>& ranks,
                                     Collective what, ReductionAlgorithm algorithm,
                                     std::int64_t elements, bool one_node) {
  const ReductionPlan& r = plan.reduction;
  const auto of = [](const std::vector<int>& numbers, int rank) {
    return numbers[static_cast<std::size_t>(rank)];
  };
  std::map<int, int> rank_of;  // by GPU
  std::vector<int> gpus;
  for (const int rank : ranks) {
    gpus.push_back(one_node || r.gpus.empty() ? rank : of(r.gpus, rank));
    rank_of[gpus.back()] = rank;
  }
  const auto node_of = [&](int gpu) {
    return one_node || r.nodes.empty() ? 0 : of(r.nodes, rank_of.at(gpu));
  };
  std::vector<CollectiveStep> steps =
      collective_steps(what, algorithm, gpus, node_of, elements, r.servers);
  for (CollectiveStep& step : steps) {
    step.gpu = rank_of.at(step.gpu);
    step.peer = rank_of.at(step.peer);
  }
  return steps;
}

}  // namespace

std::vector<CollectiveStep> reduction_steps(const RunPlan& plan, const std::vector<int>& devices,
                                            std::int64_t elements, int tensor_rank,
                                            Collective what) {
  if (what == Collective::all_reduce && plan.sharding.sharded()) {
    const auto part = [&](Collective half) {
      return reduction_steps(plan, devices, elements, tensor_rank, half);
    };
    std::vector<CollectiveStep> steps = part(Collective::reduce_scatter);
    const std::vector<CollectiveStep> more = part(Collective::all_gather);
    steps.insert(steps.end(), more.begin(), more.end());
    return steps;
  }
  std::vector<int> ranks;
  for (const int d : devices) {
    for (int r = 0; r < replicas_of_device(plan, d); ++r)
      ranks.push_back(rank_at(plan, d, r * plan.division.tensor + tensor_rank));
  }
  return steps_of(plan, ranks, what, plan.reduction.algorithm, elements, false);
}

std::vector<CollectiveStep> expert_reduction_steps(const RunPlan& plan, int rank,
                                                   std::int64_t elements) {
  return steps_of(plan, expert_sharers(plan, rank), Collective::all_reduce,
                  plan.reduction.algorithm, elements, false);
}

std::vector<std::vector<ReducedRange>> reduced_ranges(const std::vector<ReducedPart>& parts,
                                                      const std::vector<StageElements>& elements) {
  std::vector<std::pair<std::uint32_t, std::int64_t>> others;
  std::int64_t experts = 0;
  for (const auto& [stage, all, of_experts] : elements) {
    others.emplace_back(stage, all - of_experts);
    experts += of_experts;
  }
  std::vector<std::vector<ReducedRange>> reduced;
  for (const auto& [first, end] : ranges_of(parts, others)) {
    auto& pieces = reduced.emplace_back();
    if (experts == 0) pieces.push_back({first, end});
    std::int64_t before = 0, of_others = 0;
    for (const auto& [stage, all, of_experts] : elements) {
      const std::int64_t shift = before + of_experts - of_others,
                         next = of_others + all - of_experts;
      const std::int64_t from = std::max(first, of_others), until = std::min(end, next);
      if (experts > 0 && from < until) pieces.push_back({from + shift, until + shift});
      before += all;
      of_others = next;
    }
  }
  std::int64_t before = 0;
  for (const auto& [number, all, of_experts] : elements) {
    std::size_t last = parts.size() - 1;
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (parts[k].stage == number) last = k;
    if (of_experts > 0) reduced[last].push_back({before, before + of_experts, true});
    before += all;
  }
  return reduced;
}

std::vector<CollectiveStep> exchange_steps(const RunPlan& plan, int rank, Collective what,
                                           std::int64_t elements) {
  const int tensor = plan.division.tensor;
  std::vector<int> ranks(static_cast<std::size_t>(tensor));
  std::iota(ranks.begin(), ranks.end(), rank - place_of_rank(plan, rank).place % tensor);
  // One ring, where ranks end with a part of the rows each: part k with the k-th one.
  return steps_of(plan, ranks, what, ReductionAlgorithm::ring, elements,
                  what != Collective::all_reduce);
}

std::vector<std::uint32_t> stages_on(const RunPlan& plan, int device) {
  const Placement& placement = plan.program.placement;
  return placement.stages_at(placement.position_of(device));
}

std::uint32_t microbatches_of_update(const Program& program, std::uint32_t stage) {
  return program.per_update(stage) * program.placement.width_of(stage);
}

std::uint32_t means_of_update(const RunPlan& plan, std::uint32_t stage) {
  const std::vector<int>& replicas = plan.division.replicas;
  const int parts = replicas.empty() ? 1 : replicas[plan.program.placement.positions().back()];
  return microbatches_of_update(plan.program, stage) * static_cast<std::uint32_t>(parts);
}

bool reduces_beside(const RunPlan& plan, std::uint32_t stage) {
  const Program& program = plan.program;
  const Placement& placement = program.placement;
  if (!program.detached_reductions || program.asynchronous) return false;
  return placement.width_of(stage) > 1 || placement.mirrored() || program.reduces_within;
}

std::vector<int> adders_of(const RunPlan& plan, int device) {
  const Barriers replica_groups(plan.program);
  const std::uint32_t replica_group = replica_groups.replica_group_of(device);
  std::vector<int> devices;
  for (std::uint32_t i = 0; i < replica_groups.replica_group_size(replica_group); ++i)
    devices.push_back(replica_groups.replica_group_member(replica_group, i));
  return devices;
}

namespace {

void add_norm_channels(RunPlan& plan) {
  for (int d = 0; d < plan.program.placement.devices(); ++d) {
    const int from = plan.program.placement.norm_from(d);
    const auto forward = std::ranges::find_if(plan.channels, [&](const Channel& c) {
      return c.source == from && c.destination == d && !c.backward &&
             c.kind == Transfer::Kind::message;
    });
    if (forward == plan.channels.end()) continue;  // the norm begins here
    Channel norms = *forward;
    norms.kind = Transfer::Kind::norm;
    norms.bytes_per_s = std::numeric_limits<double>::infinity();
    plan.channels.push_back(norms);
  }
}

/// Of gradients, or what takes as little time in the plan.
void add_gradient_channel(RunPlan& plan, int source, int destination, bool inside_ops = false) {
  plan.channels.push_back({.source = source,
                           .destination = destination,
                           .backward = inside_ops,
                           .bytes_per_s = std::numeric_limits<double>::infinity(),
                           .kind = Transfer::Kind::reduction});
}

}  // namespace

RunPlan with_server_channels(RunPlan plan, const std::vector<int>& devices) {
  for (const int d : devices) {
    add_gradient_channel(plan, d, 0);
    add_gradient_channel(plan, 0, d);
  }
  return plan;
}

int channel_between(const RunPlan& plan, int from, int to, bool backward, Transfer::Kind kind) {
  const auto found = std::ranges::find_if(plan.channels, [&](const Channel& c) {
    return c.source == from && c.destination == to && c.backward == backward && c.kind == kind;
  });
  invariant(found != plan.channels.end(), "the plan lacks a channel its program uses");
  return static_cast<int>(found - plan.channels.begin());
}

RunPlan with_update_channels(RunPlan plan) {
  if (plan.program.step_sync == StepSync::post_validation) add_norm_channels(plan);
  const std::vector<Channel> between_devices = std::exchange(plan.channels, {});
  for (const Channel& channel : between_devices) {
    for (int place = 0; place < ranks_of_device(plan, channel.source); ++place) {
      const int rank = rank_at(plan, channel.source, place);
      for (const MessagePart& part : message_parts(plan, rank, channel.destination)) {
        Channel& own = plan.channels.emplace_back(channel);
        own.source = rank;
        own.destination = part.peer;
      }
    }
  }
  std::set<std::pair<int, int>> pairs, of_ops;
  const auto add_steps = [](const std::vector<CollectiveStep>& steps, auto& to) {
    for (const CollectiveStep& step : steps)
      if (step.kind == CollectiveStep::Kind::send) to.insert({step.gpu, step.peer});
  };
  const bool apart = has_experts_apart(plan);
  for (int d = 0; d < plan.program.placement.devices(); ++d) {
    for (int t = 0; t < plan.division.tensor; ++t)
      add_steps(reduction_steps(plan, adders_of(plan, d), 1, t), pairs);
    for (int r = 0; r < replicas_of_device(plan, d); ++r) {
      for (const Collective what : {Collective::all_reduce, Collective::all_gather})
        add_steps(exchange_steps(plan, rank_at(plan, d, r * plan.division.tensor), what, 1),
                  apart ? of_ops : pairs);
    }
  }
  for (int rank = 0; apart && rank < ranks_of(plan); ++rank) {
    add_steps(expert_reduction_steps(plan, rank, 1), pairs);
    for (const int peer : expert_group(plan, rank))
      if (peer != rank) of_ops.insert({rank, peer});
  }
  for (const auto& [source, destination] : of_ops)
    add_gradient_channel(plan, source, destination, true);
  for (const auto& [source, destination] : pairs) {
    add_gradient_channel(plan, source, destination);
    if (plan.sharding.sharded()) add_gradient_channel(plan, source, destination, true);
  }
  return plan;
}

std::string why_too_large(const TransformerSpec& m, std::int64_t microbatch_size,
                          std::int64_t layers) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // so that no product below overflows
  for (const std::int64_t n :
       {std::int64_t{m.num_layers}, m.hidden_size, m.num_attention_heads, m.num_query_groups,
        m.ffn_hidden_size, m.vocab_size, m.seq_length, microbatch_size}) {
    if (n < 1 || n > kMost) return fmt::format("a size of the model is {}, not 1 to {}", n, kMost);
  }
  const Experts experts = m.experts.value_or(Experts{.width = 1});
  if (experts.width < 1 || experts.width > kMost || experts.shared_width < 0 ||
      experts.shared_width > kMost)
    return fmt::format("an expert is {} wide, not 1 to {}",
                       experts.width < 1 ? experts.width : experts.shared_width, kMost);
  constexpr double kMostBytes = 0x1p44;
  const double rows = static_cast<double>(microbatch_size * m.seq_length);
  const double widest =
      static_cast<double>(std::max({3 * m.hidden_size, m.ffn_hidden_size, m.vocab_size,
                                    experts.shared_width, experts.count * experts.width}));
  const double scores = rows * static_cast<double>(m.seq_length * m.num_attention_heads);
  const double matrix = widest * static_cast<double>(m.hidden_size);
  const double bytes = std::max({rows * widest, scores, matrix}) * 16;
  const bool fits = layers <= 65536 && bytes * static_cast<double>(layers) <= kMostBytes;
  return fits ? "" : "the model is larger than any machine";
}

}  // namespace penstock
