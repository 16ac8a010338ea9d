// SPDX-License-Identifier: Apache-2.0
#include "hw/run_plan_file.hpp"

#include "base/error.hpp"
#include "hw/fields.hpp"
#include "hw/training_data.hpp"
#include "program/check.hpp"
#include "schedules/lowering.hpp"
#include "traces/byte_sink.hpp"
#include "traces/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>
#include <tuple>

namespace penstock {

// --- fields -------------------------------------------------------------------------------------

constexpr std::string_view kRuleNames[] = {"flush", "stash", "double_buffer", "latest", "listed"};
constexpr std::string_view kBackwardNames[] = {"plain", "corrected", "mixed"};
constexpr std::string_view kGatheringNames[] = {"after_step", "first_forward", "forward",
                                                "each_pass"};

constexpr const auto& names_of(Sharded) { return kShardedNames; }
constexpr const auto& names_of(Gathering) { return kGatheringNames; }
constexpr const auto& names_of(VersionRule::Kind) { return kRuleNames; }
constexpr const auto& names_of(VersionRule::Backward) { return kBackwardNames; }
constexpr const auto& names_of(Transfers) { return kTransfersNames; }
constexpr const auto& names_of(StepSync) { return kStepSyncNames; }
constexpr const auto& names_of(Compute) { return kComputeNames; }
constexpr const auto& names_of(ReductionAlgorithm) { return kReductionNames; }

/// A name for all stages ("full", "block 3"), or a list with one of each.
Json field_json(const std::same_as<PerStage<Recomputation>> auto& recompute) {
  Json names = Json::array();
  for (const Recomputation& r : recompute.values()) names.push_back(to_string(r));
  return recompute.alike() ? names[0] : names;
}

Recomputation recomputation_in(const Place& at, const Json& json) {
  const auto named = json.is_string() ? recomputation_named(json.get<std::string>()) : std::nullopt;
  if (!named) at.wrong("one of none, selective, full, block N, uniform N", json);
  return named.value_or(Recomputation());
}

void take_field(const Place& at, const Json& json, PerStage<Recomputation>& recompute) {
  if (!json.is_array()) return void(recompute = recomputation_in(at, json));
  if (json.empty()) return at.wrong("a name, or a list of names", json);
  std::vector<Recomputation> each;
  for (const Json& name : json) each.push_back(recomputation_in(at.at(each.size()), name));
  recompute = PerStage<Recomputation>(std::move(each));
}

/// What an order says of an op behind its token, in this order; sends, receives, reductions and
/// steps follow from it.
constexpr std::pair<char, Op::Flag> kMarks[] = {{'+', Op::paired}, {'=', Op::stored}};

/// `2F5` with its marks.
std::string marked(const Op& op) {
  std::string text = to_string(op);
  for (const auto& [mark, flag] : kMarks)
    if (op.has(flag)) text += mark;
  return text;
}

std::optional<Op> unmarked(std::string_view text) {
  const auto end = std::min(text.find_first_of("+="), text.size());
  auto op = parse_op(text.substr(0, end));
  std::string_view marks = text.substr(end);
  for (const auto& [mark, flag] : kMarks) {
    if (!op || !marks.starts_with(mark)) continue;
    op->flags = static_cast<std::uint8_t>(op->flags | flag);
    marks.remove_prefix(1);
  }
  return op && marks.empty() && is_compute(op->kind) ? op : std::nullopt;
}

/// A line of tokens for each position of the pipeline.
Json field_json(const OpLists& order) {
  Json lines = Json::array();
  for (int d = 0; d < order.devices(); ++d) {
    std::string line;
    for (const Op& op : order.of_device(d)) line += (line.empty() ? "" : " ") + marked(op);
    lines.push_back(line);
  }
  return lines;
}

void take_field(const Place& at, const Json& json, OpLists& order) {
  std::vector<std::string> lines;
  take_value(at, json, lines);
  for (std::size_t device = 0; device < lines.size(); ++device) {
    const std::string_view line = lines[device];
    for (std::size_t from = 0; from < line.size();) {
      const std::size_t end = std::min(line.find(' ', from), line.size());
      const std::string_view token = line.substr(from, end - from);
      if (const auto op = unmarked(token))
        order.add_op(*op);
      else if (!token.empty())
        at.at(device).problem(fmt::format("'{}' is no op that computes", token.substr(0, 60)));
      from = end + 1;
    }
    order.end_device();
  }
}

/// What a Placement is built from.
struct PlacementParts {
  std::vector<int> widths;
  std::vector<std::uint32_t> position;
  std::uint32_t mirrored_batch = 0;
};

void each_field(Like<PlacementParts> auto& p, auto&& visit) {
  VISIT_FIELDS(visit, p, widths, position, mirrored_batch);
}

Json field_json(const Placement& p) {
  return to_field(PlacementParts{p.widths(), p.positions(), p.mirrored_batch()});
}

/// Positions and replicas; checked here, because the Placement is built from them. What is wrong
/// with them; "" when nothing is.
std::string wrong_with(const PlacementParts& parts) {
  constexpr std::uint64_t kMostDevices = 16'000'000;
  const auto& [widths, position, mirrored] = parts;
  if (widths.empty() || position.empty() || std::ranges::min(widths) < 1)
    return "the placement has no devices or no stages";
  if (position.size() > 65535) return "there are more than 65535 stages";
  std::uint64_t round = static_cast<std::uint64_t>(std::ranges::max(widths)) * widths.size();
  for (const int width : widths)
    if (round <= kMostDevices) round = std::lcm(round, static_cast<std::uint64_t>(width));
  if (round > kMostDevices)
    return fmt::format("the placement has more than {} devices", kMostDevices);
  if (std::ranges::any_of(position, [&](auto at) { return at >= parts.widths.size(); }))
    return "a stage is placed outside of the pipeline";
  for (std::uint32_t at = 0; at < widths.size(); ++at)
    if (std::ranges::find(position, at) == position.end())
      return fmt::format("position {} of the pipeline has no stage", at);
  const int width = widths[0];
  const bool all_alike = std::ranges::all_of(widths, [&](int w) { return w == width; });
  if (mirrored > 0 && (!all_alike || position.size() != widths.size() || widths.size() % 2 != 0 ||
                       !std::ranges::equal(position, std::views::iota(0U, widths.size()))))
    return "a mirrored placement must have an even number of devices and one stage for each in "
           "their order";
  return "";
}

void take_field(const Place& at, const Json& json, Placement& placement) {
  PlacementParts parts;
  const std::size_t before = at.problems();
  take_value(at, json, parts);
  if (at.problems() > before) return;
  const std::string wrong = wrong_with(parts);
  if (!wrong.empty()) return at.problem(wrong);
  placement = {std::move(parts.widths), std::move(parts.position), parts.mirrored_batch};
}

void each_field(Like<VersionRule> auto& v, auto&& visit) {
  VISIT_FIELDS(visit, v, kind, delay, extra_copies, backward, forward_listed, backward_listed,
               listed_held);
}

/// All but its ops, which follow.
void each_field(Like<Program> auto& p, auto&& visit) {
  VISIT_FIELDS(visit, p, schedule, transfers, microbatches_per_update, batches, flushes);
  visit("optimizer_sync", p.step_sync);
  VISIT_FIELDS(visit, p, placement, asynchronous, detached_reductions, reduces_within, gathers,
               versions, whole_backward);
}

void each_field(Like<OpCost> auto& c, auto&& visit) {
  visit("compute_s", c.seconds);
  VISIT_FIELDS(visit, c, flops, again_flops);
}

void each_pass_field(auto& c, auto&& visit) {
  visit("forward", c[OpKind::forward]);
  visit("backward", c[OpKind::backward]);
  visit("backward_input", c[OpKind::backward_input]);
  visit("backward_weight", c[OpKind::backward_weight]);
  VISIT_FIELDS(visit, c, activation_bytes, activation_after_input_bytes, forward_workspace_bytes,
               backward_workspace_bytes, again_workspace_bytes);
}

void each_field(Like<PassCosts> auto& c, auto&& visit) { each_pass_field(c, visit); }

void each_field(Like<StageCosts> auto& c, auto&& visit) {
  each_pass_field(c, visit);
  VISIT_FIELDS(visit, c, stored, reduce_grad_s, step_s, overlap_saving_s, output_bytes,
               weight_bytes, gradient_bytes, optimizer_bytes, version_bytes, reduced_bytes,
               backward_microbatches);
}

void each_field(Like<LoneUpdate> auto& u, auto&& visit) {
  VISIT_FIELDS(visit, u, replica, version);
}

void each_field(Like<Channel> auto& c, auto&& visit) {
  VISIT_FIELDS(visit, c, source, destination, backward, latency_s);
  visit("bytes_per_s", c.bytes_per_s, {.or_unlimited = true});
}

void each_field(Like<ReducedPart> auto& p, auto&& visit) {
  visit("ready", p.ready, {0, 1});
  visit("share", p.share, {0, 1});
  VISIT_FIELDS(visit, p, seconds, stage);
}

void each_field(Like<ReductionPlan> auto& r, auto&& visit) {
  VISIT_FIELDS(visit, r, algorithm, servers, parts, gpus, nodes);
}

void each_field(Like<RankDivision> auto& d, auto&& visit) {
  visit("tensor", d.tensor, {1, 1 << 16});
  VISIT_FIELDS(visit, d, sequence, replicas);
  visit("expert", d.expert, {1, 1 << 20});
}

void each_field(Like<ExchangeSeconds> auto& e, auto&& visit) {
  visit("device", e.device, {0, 1 << 24});
  VISIT_FIELDS(visit, e, stage, stored, forward, backward, backward_input, backward_weight,
               gathering, experts_forward, experts_backward, experts_backward_input);
}

void each_field(Like<PairExchangeSeconds> auto& e, auto&& visit) {
  visit("device", e.device, {0, 1 << 24});
  VISIT_FIELDS(visit, e, stage, stored, backward_stage, backward_stored, input_alone, seconds);
}

void each_field(Like<Sharding> auto& s, auto&& visit) {
  visit("what", s.what);
  visit("group", s.group, {1, 1 << 24});
  visit("sharers", s.sharers, {1, 1 << 24});
  visit("gathering", s.gathering);
}

/// A plan whose Program is not lowered yet: the compute order of each position, of one batch where
/// the pipeline flushes.
struct OrderedPlan {
  RunPlan plan;
  OpLists order;
  std::uint64_t ops = 0;  ///< that are made from it: a wrong number makes no endless run
};

void each_field(Like<OrderedPlan> auto& ordered, auto&& visit) {
  auto& plan = ordered.plan;
  VISIT_FIELDS(visit, plan, name, origin, scenario, program);
  VISIT_FIELDS(visit, ordered, ops, order);
  VISIT_FIELDS(visit, plan, compute, microbatch_size, recompute, training, lone_updates, layers,
               router_start, optimizer);
  if (plan.compute == Compute::transformer) visit("model", plan.model);
  VISIT_FIELDS(visit, plan, channels, costs, reduction, division, exchange_s, pair_exchange_s,
               sharding);
}

namespace {

constexpr const char* kMark = "penstock_program";

// --- a file may come from anywhere: nothing in it is taken on trust ------------------------------

using Findings = std::vector<std::string>;

/// Versions that every op finds in the lists, and that never go back.
void check_listed(const Program& p, const auto& expect) {
  const auto stages = static_cast<std::size_t>(p.placement.stages());
  const std::uint64_t each = std::uint64_t{p.microbatches_per_update} * p.batches;
  const auto complete = [&](const std::vector<std::vector<std::uint32_t>>& lists) {
    return lists.size() == stages && std::ranges::all_of(lists, [&](const auto& one) {
             return one.size() == each && std::ranges::is_sorted(one);
           });
  };
  const VersionRule& rule = p.versions;
  expect(p.placement.even() && complete(rule.forward_listed) && complete(rule.backward_listed) &&
             rule.listed_held.size() == stages,
         "forward_listed, backward_listed and listed_held must have a rising version of each "
         "stage's microbatches");
}

/// Each replica's updates, with versions that are there and never go back.
void check_lone_updates(const RunPlan& plan, const auto& expect) {
  const Program& p = plan.program;
  if (plan.lone_updates.empty()) return;
  const std::uint32_t width = p.placement.width();
  std::vector<std::uint32_t> made(width, 0), latest(width, 0);
  bool right = p.asynchronous && p.placement.depth() == 1 && width > 1;
  for (std::uint32_t i = 0; right && i < plan.lone_updates.size(); ++i) {
    const LoneUpdate& u = plan.lone_updates[i];
    right = u.replica < width && u.version <= i && u.version >= latest[u.replica] &&
            ++made[u.replica] <= p.batches;
    if (right) latest[u.replica] = u.version;
  }
  expect(right && plan.lone_updates.size() == std::size_t{width} * p.batches,
         "lone_updates must have the updates of each replica, with versions made before, of an "
         "asynchronous program of one stage");
}

/// Each device that reduces knows its parts, its peers and where they are.
void check_reduction(const RunPlan& plan, const auto& expect) {
  const Placement& placement = plan.program.placement;
  const ReductionPlan& r = plan.reduction;
  const bool reduces =
      placement.mirrored() || placement.replicated() || plan.program.reduces_within;
  const auto is_whole = [](const std::vector<ReducedPart>& parts) {
    double share = 0;
    for (const ReducedPart& part : parts) share += part.share;
    std::map<std::uint16_t, double> ready;  // of a stage's parts so far
    return std::abs(share - 1) < 1e-6 && std::ranges::all_of(parts, [&](const ReducedPart& part) {
             return std::exchange(ready[part.stage], part.ready) <= part.ready;
           });
  };
  const bool complete = r.parts.size() == (reduces ? placement.widths().size() : 0);
  expect(complete,
         "reduction.parts must have those of each position of replicas or of a mirrored placement, "
         "and no other");
  expect(!complete || std::ranges::all_of(r.parts, is_whole),
         "the shares of a position's reduction.parts must add up to 1, those of a stage in the "
         "order in which they are ready");
  const auto of_its_stages = [&](std::uint32_t p) {
    const std::vector<std::uint32_t>& stages = placement.stages_at(p);
    std::set<std::uint32_t> named;
    for (const ReducedPart& part : r.parts[p])
      if (part.stage != GradientBucket::kAllStages) named.insert(part.stage);
    const std::set<std::uint32_t> all(stages.begin(), stages.end());
    return named.empty() || named == all;
  };
  bool staged = true;
  for (std::uint32_t p = 0; complete && p < r.parts.size(); ++p)
    staged = staged && of_its_stages(std::min(p, placement.mirror_of(p)));
  expect(staged, "reduction.parts that name stages must name each of their position's");
  const auto ranks = static_cast<std::size_t>(ranks_of(plan));
  const std::set<int> different(r.gpus.begin(), r.gpus.end());
  expect(r.gpus.empty() || (r.gpus.size() == ranks && different.size() == ranks),
         "reduction.gpus must have a GPU of its own for each rank");
  expect(r.nodes.empty() || r.nodes.size() == ranks,
         "reduction.nodes must have the node of each rank");
  expect(
      !complete || !placement.mirrored() ||
          [&] {
            for (std::uint32_t p = 0; p < r.parts.size(); ++p)
              if (r.parts[p].size() != r.parts[placement.mirror_of(p)].size()) return false;
            return true;
          }(),
      "two positions that hold the same stages reduce in the same reduction.parts");
}

/// Ranks divide a real model evenly.
void check_division(const RunPlan& plan, const auto& expect) {
  const RankDivision& d = plan.division;
  const TransformerSpec& m = plan.model;
  expect(d.tensor == 1 ||
             (plan.compute == Compute::transformer && m.num_attention_heads % d.tensor == 0 &&
              m.ffn_hidden_size % d.tensor == 0 && m.vocab_size >= d.tensor),
         "division.tensor must divide the heads and ffn_hidden_size of a transformer");
  expect(!d.sequence || (d.tensor > 1 && m.seq_length % d.tensor == 0),
         "division.sequence needs a division.tensor that divides seq_length");
  const bool experts = plan.compute == Compute::transformer && m.experts.has_value();
  expect(!experts || d.tensor == 1 || d.sequence,
         "division.tensor of a model with experts needs division.sequence");
  expect(d.expert == 1 || (experts && m.experts->count % d.expert == 0),
         "division.expert must divide the experts of a transformer");
  const auto& replicas = d.replicas;
  for (std::size_t p = 0; d.expert > 1 && p < plan.program.placement.widths().size(); ++p) {
    const std::int64_t ranks = std::int64_t{plan.program.placement.widths()[p]} * d.tensor *
                               (p < replicas.size() ? replicas[p] : 1);
    expect(ranks % d.expert == 0, "division.expert must divide the ranks of each position");
  }
  const auto fit = [&](int r) { return r >= 1 && plan.microbatch_size % r == 0; };
  expect(
      d.replicas.empty() || (plan.compute == Compute::transformer &&
                             d.replicas.size() == plan.program.placement.widths().size() &&
                             plan.program.reduces_within && std::ranges::all_of(d.replicas, fit)),
      "division.replicas must have a divisor of microbatch_size for each position of a "
      "transformer whose devices reduce their own gradients");
  const double most = d.replicas.empty() ? 1 : std::ranges::max(d.replicas);
  expect(most * d.tensor * plan.program.placement.devices() <= 16e6,
         "a run of more than 16,000,000 ranks is too large");
  const auto known = [&](const ExchangeSeconds& e) {
    return e.device < plan.program.placement.devices() &&
           e.stage < static_cast<std::uint32_t>(plan.program.placement.stages());
  };
  expect(std::ranges::all_of(plan.exchange_s, known),
         "exchange_s must be of stages and devices that there are");
}

/// What every later check, and the dependency table, stands on: sizes that belong together.
Findings wrong_sizes(const RunPlan& plan) {
  const Program& p = plan.program;
  const auto stages = static_cast<std::size_t>(p.placement.stages());
  Findings wrong;
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) wrong.emplace_back(what);
  };
  expect(plan.costs.size() == stages, "costs and stages differ in number");
  expect(plan.recompute.alike() || plan.recompute.values().size() == stages,
         "recompute and stages differ in number");
  using Kind = VersionRule::Kind;
  const VersionRule& rule = p.versions;
  const bool delays_all = rule.delay.size() == stages;
  expect(rule.kind == Kind::latest ? delays_all || rule.delay.empty()
                                   : delays_all || rule.kind != Kind::stash,
         "delay and stages differ in number");
  expect(rule.backward != VersionRule::Backward::corrected ||
             (rule.kind == Kind::latest && delays_all),
         "only the latest weights, with a delay of each stage, can be corrected");
  expect(rule.backward != VersionRule::Backward::mixed || rule.kind == Kind::listed,
         "only listed versions can be mixed");
  if (rule.kind == Kind::listed) check_listed(p, expect);
  const int together = p.whole_backward ? static_cast<int>(p.microbatches_per_update) : 1;
  expect(std::ranges::all_of(plan.costs,
                             [&](const auto& c) { return c.backward_microbatches == together; }),
         "backward_microbatches is not the number of microbatches of a backward");
  expect(p.step_sync == StepSync::device || p.flushes,
         "only devices that flush can step together, or validate their steps later");
  const bool mirrored = p.placement.mirrored();
  expect(!mirrored || p.placement.mirrored_batch() == p.microbatches_per_update,
         "mirrored_batch is not microbatches_per_update");
  check_lone_updates(plan, expect);
  const std::size_t before = wrong.size();
  check_division(plan, expect);
  if (wrong.size() == before) check_reduction(plan, expect);
  expect(p.microbatches_per_update > 0 && p.batches > 0,
         "microbatches_per_update and batches must be 1 or more");
  return wrong;
}

/// How many ops are made from an order that is right.
double lowered_ops(const Program& p, const OpLists& order) {
  const bool each = p.versions.kind == VersionRule::Kind::stash;  // microbatch is an update
  double ops = 0;
  for (int d = 0; d < order.devices(); ++d) {
    const double width = p.placement.widths()[static_cast<std::size_t>(d)];
    const double updates = each ? p.batches * (p.placement.round() / width) : p.batches;
    const bool reduces = width > 1 || p.placement.mirrored() || p.reduces_within;
    ops += width * (static_cast<double>(order.of_device(d).size()) * (p.flushes ? p.batches : 1) +
                    updates * (reduces ? 2 : 1));
  }
  return ops;
}

/// Every op of an order at a place where its position has it, and no more than was meant to run.
Findings wrong_order(const OrderedPlan& ordered) {
  constexpr double kMostOps = 50e6;
  const auto& [plan, order, stated] = ordered;
  const Program& p = plan.program;
  if (order.devices() != p.placement.depth()) return {"order and placement differ"};
  const double run = static_cast<double>(p.microbatches_per_update) * p.batches;
  if (run * p.placement.round() > kMostOps)
    return {fmt::format("a run of {:.15g} microbatches is too long", run * p.placement.round())};
  Findings wrong;
  for (int d = 0; d < order.devices() && wrong.size() < 20; ++d) {
    const auto width =
        static_cast<std::uint32_t>(p.placement.widths()[static_cast<std::size_t>(d)]);
    const std::uint32_t own = p.microbatches() / width / (p.flushes ? p.batches : 1);
    for (const Op& op : order.of_device(d)) {
      const bool inside = op.stage < p.placement.stages() && op.microbatch < own;
      const bool here =
          inside && p.placement.position_of(p.placement.device_of(
                        op.stage, op.microbatch * width)) == static_cast<std::uint32_t>(d);
      if (!here)
        wrong.push_back(fmt::format("{} is out of place in the order of {}", to_string(op), d));
    }
  }
  const double ops = lowered_ops(p, order);
  if (wrong.empty() && (ops != static_cast<double>(stated) || ops > kMostOps))
    wrong.push_back(fmt::format("{} ops are stated, at most {:.0f}, and the order makes {:.15g}",
                                stated, kMostOps, ops));
  return wrong;
}

bool is_complete(const Program& p, const DependencyTable& table) {
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(p.placement.stages()); ++s) {
    for (std::uint32_t k = 0; k < p.microbatches(); ++k) {
      if (table.forward(s, k) == kNoOp) return false;
      if (p.has_backward(s, k) && table.backward(s, k) == kNoOp) return false;
    }
  }
  return table.rejected().empty();
}

/// Pairs are an F and the backward that follows it, and no op takes less than no time.
void check_together(const RunPlan& plan, Findings& wrong) {
  const Program& p = plan.program;
  const auto is_pair = [&](int d, std::uint32_t g) {
    return p.ops[g].kind == OpKind::forward && g + 1 < p.ops.end(d) &&
           is_backward(p.ops[g + 1].kind) && !p.ops[g + 1].has(Op::paired) &&
           p.transfers != Transfers::coupled;
  };
  for (int d = 0; d < p.ops.devices(); ++d) {
    for (std::uint32_t g = p.ops.begin(d); g < p.ops.end(d) && wrong.size() < 20; ++g) {
      if (p.ops[g].has(Op::paired) && !is_pair(d, g)) {
        wrong.push_back(fmt::format(
            "{} can run together only with a backward that follows it, and not with coupled "
            "transfers",
            marked(p.ops[g])));
      } else if (!(duration_s(plan, g) >= 0)) {
        wrong.push_back(fmt::format("{} would take {:g} s", marked(p.ops[g]), duration_s(plan, g)));
      }
    }
  }
}

/// What F stores is there for all of its backward.
void check_stored(const Program& p, const DependencyTable& table, Findings& wrong) {
  for (std::uint32_t g = 0; g < p.ops.size() && wrong.size() < 20; ++g) {
    const Op& op = p.ops[g];
    if (!is_compute(op.kind) || op.kind == OpKind::forward) continue;
    const bool right = [&] {
      for (std::uint32_t i = 0; i < p.microbatches_of(op) && i <= op.microbatch; ++i) {
        const std::uint32_t f = table.forward(op.stage, op.microbatch - i);
        if (f != kNoOp && p.ops[f].has(Op::stored) != op.has(Op::stored)) return false;
      }
      return true;
    }();
    if (!right) wrong.push_back(fmt::format("{} stores ('=') what its F does not", marked(op)));
  }
}

/// Every message has its channel, once.
void check_channels(const RunPlan& plan, const DependencyTable& table, Findings& wrong) {
  const OpLists& ops = plan.program.ops;
  std::set<std::tuple<int, int, bool>> known;
  for (const Channel& c : plan.channels) {
    const bool joins = c.source != c.destination &&
                       std::max(c.source, c.destination) < plan.program.placement.devices();
    if (!joins || !(c.bytes_per_s > 0) ||
        !known.insert({c.source, c.destination, c.backward}).second)
      wrong.push_back(fmt::format("the {} channel from {} to {} {}",
                                  c.backward ? "backward" : "forward", c.source, c.destination,
                                  !joins                 ? "does not join two devices"
                                  : !(c.bytes_per_s > 0) ? "has no bandwidth"
                                                         : "stands twice"));
    if (wrong.size() >= 20) return;
  }
  const bool norms = plan.program.step_sync == StepSync::post_validation;
  for (int d = 0; norms && d < ops.devices() && wrong.size() < 20; ++d) {
    const int from = plan.program.placement.norm_from(d);
    if (from >= 0 && !known.contains({from, d, false}))
      wrong.push_back(
          fmt::format("the partial norm has no forward channel from {} to {}", from, d));
  }
  for (std::uint32_t g = 0; g < ops.size() && wrong.size() < 20; ++g) {
    if (!ops[g].has(Op::sends)) continue;
    const int from = table.device_of(ops[g]), to = table.consumer_device(ops[g]);
    if (known.insert({from, to, ops[g].kind != OpKind::forward}).second)
      wrong.push_back(fmt::format("{} has no channel from {} to {}", to_string(ops[g]), from, to));
  }
}

void check_model(const RunPlan& plan, Findings& wrong) {
  const TransformerSpec& m = plan.model;
  if (const std::string why = why_too_large(m, plan.microbatch_size, m.num_layers); !why.empty()) {
    wrong.push_back(why);
    return;
  }
  if (const auto& e = m.experts; e && (e->count < 1 || e->count > 1 << 16 || e->top_k < 1 ||
                                       e->top_k > e->count || e->every < 1 || e->first_dense < 0))
    wrong.emplace_back("experts.count must be 1 to 65536, top_k 1 to count, every 1 or more");
  const bool biased = m.experts && m.experts->router_bias &&
                      plan.router_start.size() == static_cast<std::size_t>(m.experts->count);
  if (!plan.router_start.empty() && !biased)
    wrong.emplace_back(
        "router_start must have a number for each expert of a model with router_bias");
  if (plan.layers.size() != static_cast<std::size_t>(plan.program.placement.stages()))
    wrong.emplace_back("layers and stages differ in number");
  if (std::accumulate(plan.layers.begin(), plan.layers.end(), std::int64_t{0}) != m.num_layers)
    wrong.emplace_back("the layers of the stages are not those of the model");
  for (std::size_t s = 1; s + 1 < plan.layers.size(); ++s) {
    if (plan.layers[s] > 0) continue;
    wrong.push_back(fmt::format("stage {} has nothing to do", s));
    return;
  }
}

/// Lowers it, where everything is as it must be.
RunPlan lowered(OrderedPlan ordered, const std::string& origin) {
  RunPlan& plan = ordered.plan;
  Findings wrong = wrong_sizes(plan);
  if (wrong.empty() && plan.compute == Compute::transformer) check_model(plan, wrong);
  if (wrong.empty()) wrong = wrong_order(ordered);
  if (wrong.empty()) {
    plan.program = lower(std::move(plan.program), ordered.order);
    const Program& p = plan.program;
    const DependencyTable table(p.ops, p.placement, p.microbatches());
    const bool complete = is_complete(p, table);  // what follows looks every op up
    if (complete) check_together(plan, wrong);
    if (wrong.empty() && complete) check_stored(p, table, wrong);
    if (wrong.empty()) wrong = check(p, table);
    if (wrong.empty()) check_channels(plan, table, wrong);
  }
  if (!wrong.empty()) throw InputError(origin, fmt::format("{}", fmt::join(wrong, "; ")));
  return std::move(plan);
}

OrderedPlan ordered_plan(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || !json.contains(kMark))
    throw InputError(origin, "is no program; `penstock export SCENARIO --to program` writes one");
  if (json.at(kMark) != kProgramFileVersion) {
    throw InputError(origin, fmt::format("is a program of version {}; this penstock reads {}: "
                                         "export the scenario again",
                                         json.at(kMark).dump(), kProgramFileVersion));
  }
  return from_fields<OrderedPlan>(json, origin, kMark);
}

}  // namespace

std::string to_text(const RunPlan& plan) {
  return text_of_fields(OrderedPlan{plan, compute_order(plan.program), plan.program.ops.size()},
                        kMark, kProgramFileVersion);
}

RunPlan parse_run_plan(const std::string& text, const std::string& origin) {
  return lowered(ordered_plan(text, origin), origin);
}

RunPlan read_run_plan(const std::string& path) {
  RunPlan plan = parse_run_plan(read_file(path), path);
  load_text(plan);
  return plan;
}

}  // namespace penstock
