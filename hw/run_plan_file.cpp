#include "hw/run_plan_file.hpp"

#include "base/error.hpp"
#include "base/json_fields.hpp"
#include "base/say.hpp"
#include "program/check.hpp"
#include "traces/byte_sink.hpp"
#include "traces/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>
#include <tuple>

namespace penstock {
namespace {

constexpr const char* kRules[] = {"flush", "stash", "double_buffer", "latest", "listed"};
constexpr const char* kBackwards[] = {"plain", "corrected", "mixed"};
constexpr const char* kComputes[] = {"stand_in", "transformer"};
constexpr const char* kOptimizers[] = {"sgd", "adamw"};
constexpr const char* kFamilies[] = {"gpt", "bert", "llama"};

std::vector<double> seconds_of(const Json& json, const char* key) {
  std::vector<double> seconds;
  for (const Json& v : list(json, key)) {
    const double value = v.is_number() ? v.get<double>() : -1;
    if (!(value >= 0 && value <= kLongestField_s))
      wrong_field(key, fmt::format("numbers from 0 to {:g}", kLongestField_s), v);
    seconds.push_back(value);
  }
  return seconds;
}

/// A name for all stages, or a list with one of each.
PerStage<Recompute> recompute_of(const Json& json) {
  constexpr const char* kKey = "recompute";
  const Json& given = member(json, kKey);
  if (!given.is_array()) return named<Recompute>(given, kRecomputeNames, kKey);
  if (given.empty()) wrong_field(kKey, "a name, or a list of names", given);
  std::vector<Recompute> each;
  for (const Json& one : given) each.push_back(named<Recompute>(one, kRecomputeNames, kKey));
  return PerStage<Recompute>(std::move(each));
}

Json recompute_json(const PerStage<Recompute>& recompute) {
  Json names = Json::array();
  for (const Recompute one : recompute.values())
    names.push_back(kRecomputeNames[static_cast<std::size_t>(one)]);
  return recompute.alike() ? names[0] : names;
}

/// How an op's flags are written behind its token, in this order.
constexpr std::pair<char, Op::Flag> kMarks[] = {{'<', Op::receives},
                                                {'>', Op::sends},
                                                {'~', Op::detached},
                                                {'+', Op::paired},
                                                {'=', Op::stored}};

/// `2F5` with its marks, e.g. '<' where it receives and '>' where it sends.
std::string marked(const Op& op) {
  std::string text = to_string(op);
  for (const auto& [mark, flag] : kMarks)
    if (op.has(flag)) text += mark;
  return text;
}

Op unmarked(std::string_view text) {
  const auto end = std::min(text.find_first_of("<>~+="), text.size());
  auto op = parse_op(text.substr(0, end));
  std::string_view marks = text.substr(end);
  for (const auto& [mark, flag] : kMarks) {
    if (!op || !marks.starts_with(mark)) continue;
    op->flags = static_cast<std::uint8_t>(op->flags | flag);
    marks.remove_prefix(1);
  }
  if (!op || !marks.empty())
    throw Unsound(fmt::format("'{}' in 'devices' is no op", text.substr(0, 60)));
  return *op;
}

Json devices_json(const OpLists& ops) {
  Json devices = Json::array();
  for (int d = 0; d < ops.devices(); ++d) {
    std::string line;
    for (const Op& op : ops.of(d)) line += (line.empty() ? "" : " ") + marked(op);
    devices.push_back(line);
  }
  return devices;
}

OpLists devices_of(const Json& json) {
  OpLists ops;
  for (const std::string& line : value_of<std::vector<std::string>>(json, "devices")) {
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t end = std::min(line.find(' ', at), line.size());
      if (end > at) ops.add(unmarked(std::string_view(line).substr(at, end - at)));
      at = end + 1;
    }
    ops.end_device();
  }
  return ops;
}

/// Field by field, both ways: one list for writing and reading.
template <class Costs, class Visit>
void each_cost(Costs& c, Visit&& visit) {
  visit("forward_s", c.forward_s);
  visit("backward_s", c.backward_s);
  visit("backward_input_s", c.backward_input_s);
  visit("backward_weight_s", c.backward_weight_s);
  visit("reduce_grad_s", c.reduce_grad_s);
  visit("step_s", c.step_s);
  visit("overlap_saving_s", c.overlap_saving_s);
  visit("recompute_s", c.recompute_s);
  visit("output_bytes", c.output_bytes);
  visit("weight_bytes", c.weight_bytes);
  visit("gradient_bytes", c.gradient_bytes);
  visit("optimizer_bytes", c.optimizer_bytes);
  visit("version_bytes", c.version_bytes);
  visit("reduced_bytes", c.reduced_bytes);
  visit("activation_bytes", c.activation_bytes);
  visit("activation_after_input_bytes", c.activation_after_input_bytes);
  visit("stored_activation_bytes", c.stored_activation_bytes);
  visit("stored_workspace_bytes", c.stored_workspace_bytes);
  visit("forward_workspace_bytes", c.forward_workspace_bytes);
  visit("backward_workspace_bytes", c.backward_workspace_bytes);
  visit("forward_flops", c.forward_flops);
  visit("backward_flops", c.backward_flops);
  visit("recompute_flops", c.recompute_flops);
  visit("backward_microbatches", c.backward_microbatches);
}

template <class Model, class Visit>
void each_model_field(Model& m, Visit&& visit) {
  visit("name", m.name);
  visit("num_layers", m.num_layers);
  visit("hidden_size", m.hidden_size);
  visit("num_attention_heads", m.num_attention_heads);
  visit("num_query_groups", m.num_query_groups);
  visit("ffn_hidden_size", m.ffn_hidden_size);
  visit("vocab_size", m.vocab_size);
  visit("seq_length", m.seq_length);
  visit("tie_embeddings", m.tie_embeddings);
  visit("flash_attention", m.flash_attention);
  visit("compute_type", m.compute_type);
}

template <class Channel, class Visit>
void each_channel_field(Channel& c, Visit&& visit) {
  visit("source", c.source);
  visit("destination", c.destination);
  visit("backward", c.backward);
  visit("latency_s", c.latency_s);
  visit("bytes_per_s", c.bytes_per_s);
}

template <class Optimizer, class Visit>
void each_optimizer_field(Optimizer& o, Visit&& visit) {
  visit("learning_rate", o.learning_rate);
  visit("beta1", o.beta1);
  visit("beta2", o.beta2);
  visit("epsilon", o.epsilon);
  visit("weight_decay", o.weight_decay);
}

Json program_json(const Program& p) {
  return {{"schedule", p.schedule},
          {"transfers", to_string(p.transfers)},
          {"microbatches_per_update", p.microbatches_per_update},
          {"batches", p.batches},
          {"flushes", p.flushes},
          {"optimizer_sync", kStepSyncNames[static_cast<std::size_t>(p.step_sync)]},
          {"widths", p.placement.widths()},
          {"position", p.placement.positions()},
          {"mirrored_batch", p.placement.mirrored_batch()},
          {"asynchronous", p.asynchronous},
          {"detached_reductions", p.detached_reductions},
          {"divided", p.divided},
          {"version_rule", kRules[static_cast<std::size_t>(p.versions.kind)]},
          {"version_delay", p.versions.delay},
          {"extra_copies", p.versions.extra_copies},
          {"backward_weights", kBackwards[static_cast<std::size_t>(p.versions.backward)]},
          {"forward_versions", p.versions.forward_listed},
          {"backward_versions", p.versions.backward_listed},
          {"versions_held", p.versions.listed_held},
          {"whole_backward", p.whole_backward}};
}

/// Positions and replicas; checked here, because the Placement is built from them.
Placement placement_of(const Json& json) {
  constexpr std::int64_t kMostDevices = 16'000'000;
  auto widths = value_of<std::vector<int>>(json, "widths");
  auto position = value_of<std::vector<std::uint32_t>>(json, "position");
  const auto most = widths.empty() ? 0 : std::ranges::max(widths);
  if (widths.empty() || position.empty() || std::ranges::min(widths) < 1)
    throw Unsound("the placement has no devices or no stages");
  if (position.size() > 65535) throw Unsound("there are more than 65535 stages");
  if (most * static_cast<std::int64_t>(widths.size()) > kMostDevices)
    throw Unsound(fmt::format("the placement has more than {} devices", kMostDevices));
  if (std::ranges::any_of(position, [&](auto at) { return at >= widths.size(); }))
    throw Unsound("a stage is placed outside of the pipeline");
  const auto mirrored = value_of<std::uint32_t>(json, "mirrored_batch");
  const bool all_alike = std::ranges::all_of(widths, [&](int w) { return w == widths[0]; });
  if (mirrored > 0 && (!all_alike || position.size() != widths.size() || widths.size() % 2 != 0 ||
                       !std::ranges::equal(position, std::views::iota(0U, widths.size()))))
    throw Unsound(
        "a mirrored placement must have an even number of devices and one stage for each "
        "in their order");
  return {std::move(widths), std::move(position), mirrored};
}

Program program_of(const Json& json) {
  Program p;
  p.schedule = value_of<std::string>(json, "schedule");
  p.transfers = enum_of<Transfers>(json, kTransfersNames, "transfers");
  p.microbatches_per_update = value_of<std::uint32_t>(json, "microbatches_per_update");
  p.batches = value_of<std::uint32_t>(json, "batches");
  p.flushes = value_of<bool>(json, "flushes");
  p.step_sync = enum_of<StepSync>(json, kStepSyncNames, "optimizer_sync");
  p.asynchronous = value_of<bool>(json, "asynchronous");
  p.detached_reductions = value_of<bool>(json, "detached_reductions");
  p.divided = value_of<bool>(json, "divided");
  p.placement = placement_of(json);
  p.versions.kind = enum_of<VersionRule::Kind>(json, kRules, "version_rule");
  p.versions.delay = value_of<std::vector<std::uint32_t>>(json, "version_delay");
  p.versions.extra_copies = value_of<std::uint32_t>(json, "extra_copies");
  p.versions.backward = enum_of<VersionRule::Backward>(json, kBackwards, "backward_weights");
  p.versions.forward_listed =
      value_of<std::vector<std::vector<std::uint32_t>>>(json, "forward_versions");
  p.versions.backward_listed =
      value_of<std::vector<std::vector<std::uint32_t>>>(json, "backward_versions");
  p.versions.listed_held = value_of<std::vector<std::uint32_t>>(json, "versions_held");
  p.whole_backward = value_of<bool>(json, "whole_backward");
  return p;
}

template <class T, class Each>
Json fields(const T& value, Each&& each) {
  Json json = Json::object();
  each(value, FieldWriter{json});
  return json;
}

Json plan_json(const RunPlan& plan) {
  Json json = {{"penstock_program", kProgramFileVersion},
               {"name", plan.name},
               {"scenario", plan.scenario},
               {"program", program_json(plan.program)},
               {"compute", kComputes[static_cast<std::size_t>(plan.compute)]},
               {"microbatch_size", plan.microbatch_size},
               {"recompute", recompute_json(plan.recompute)},
               {"seed", plan.seed},
               {"layers", plan.layers}};
  json["optimizer"] = fields(plan.optimizer, [](const auto& o, auto w) {
    w("kind", std::string(kOptimizers[static_cast<std::size_t>(o.kind)]));
    each_optimizer_field(o, w);
  });
  if (plan.compute == Compute::transformer) {
    json["model"] = fields(plan.model, [](const auto& m, auto w) {
      w("family", std::string(kFamilies[static_cast<std::size_t>(m.family)]));
      each_model_field(m, w);
    });
  }
  json["channels"] = Json::array();
  for (const ChannelPlan& c : plan.channels)
    json["channels"].push_back(fields(c, [](const auto& v, auto w) { each_channel_field(v, w); }));
  json["costs"] = Json::array();
  for (const StageCosts& c : plan.costs)
    json["costs"].push_back(fields(c, [](const auto& v, auto w) { each_cost(v, w); }));
  json["reduce_s"] = plan.reduce_s;
  json["devices"] = devices_json(plan.program.ops);
  return json;
}

RunPlan plan_of(const Json& json) {
  RunPlan plan;
  plan.name = value_of<std::string>(json, "name");
  plan.scenario = value_of<std::string>(json, "scenario");
  plan.program = program_of(member(json, "program"));
  plan.compute = enum_of<Compute>(json, kComputes, "compute");
  plan.microbatch_size = value_of<std::int64_t>(json, "microbatch_size");
  plan.recompute = recompute_of(json);
  plan.seed = value_of<std::uint64_t>(json, "seed");
  plan.layers = value_of<std::vector<int>>(json, "layers");
  const Json& optimizer = member(json, "optimizer");
  plan.optimizer.kind = enum_of<OptimizerPlan::Kind>(optimizer, kOptimizers, "kind");
  each_optimizer_field(plan.optimizer, FieldReader{optimizer, -1e3, 1e3});
  if (plan.compute == Compute::transformer) {
    const Json& model = member(json, "model");
    plan.model.family = enum_of<Family>(model, kFamilies, "family");
    each_model_field(plan.model, FieldReader{model});
  }
  for (const Json& c : list(json, "channels"))
    each_channel_field(plan.channels.emplace_back(), FieldReader{c});
  for (const Json& c : list(json, "costs")) each_cost(plan.costs.emplace_back(), FieldReader{c});
  plan.reduce_s = seconds_of(json, "reduce_s");
  plan.program.ops = devices_of(json);
  return plan;
}

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
         "forward_versions, backward_versions and versions_held must have a rising version of each "
         "stage's microbatches");
}

/// What every later check, and the dependency table, stands on: sizes that belong together.
Findings wrong_sizes(const RunPlan& plan) {
  const Program& p = plan.program;
  const auto stages = static_cast<std::size_t>(p.placement.stages());
  Findings wrong;
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) wrong.emplace_back(what);
  };
  expect(p.ops.devices() == p.placement.devices(), "devices and placement differ");
  expect(plan.costs.size() == stages, "costs and stages differ in number");
  expect(plan.recompute.alike() || plan.recompute.values().size() == stages,
         "recompute and stages differ in number");
  using Kind = VersionRule::Kind;
  const VersionRule& rule = p.versions;
  const bool delays_all = rule.delay.size() == stages;
  expect(rule.kind == Kind::latest ? delays_all || rule.delay.empty()
                                   : delays_all || rule.kind != Kind::stash,
         "version_delay and stages differ in number");
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
  expect(plan.reduce_s.size() == (mirrored ? p.placement.widths().size() : 0),
         "reduce_s must have a number for each position of a mirrored placement, and no other");
  expect(p.microbatches_per_update > 0 && p.batches > 0,
         "microbatches_per_update and batches must be 1 or more");
  // Each microbatch has an F and a B on every stage; the product cannot overflow: 32 bits each.
  const std::uint64_t all = std::uint64_t{p.microbatches_per_update} * p.batches;
  if (wrong.empty() && (all > p.ops.size() || p.placement.round() > p.ops.size() ||
                        static_cast<double>(p.whole_backward ? all + p.batches : 2 * all) *
                                p.placement.round() * static_cast<double>(stages) >
                            static_cast<double>(p.ops.size())))
    wrong.push_back(
        fmt::format("{} ops are too few for {} stages and {} updates of {} microbatches",
                    p.ops.size(), stages, p.batches, p.microbatches_per_update));
  return wrong;
}

/// Steps and reductions: in their places, and counted one after the other.
void check_updates(const Program& p, const DependencyTable& table, Findings& wrong) {
  const bool mirrored = p.placement.mirrored();
  for (int d = 0; d < p.ops.devices() && wrong.size() < 20; ++d) {
    std::uint32_t made = 0, reduced = 0;
    for (const Op& op : p.ops.of(d)) {
      if (is_compute(op.kind)) continue;
      std::uint32_t& counted = op.kind == OpKind::step ? made : reduced;
      if (op.stage >= p.placement.stages()) {
        wrong.push_back(fmt::format("{} is out of place on device {}", to_string(op), d));
        return;
      }
      const std::uint32_t width = p.placement.width_of(op.stage);
      const std::uint64_t number = std::uint64_t{counted++} * width + p.placement.replica_of(d);
      const bool right =
          op.microbatch == number && counted <= p.updates(op.stage) && table.device_of(op) == d &&
          (op.flags & ~(op.kind == OpKind::step ? 0 : Op::detached)) == 0 &&
          (op.kind == OpKind::step || width > 1 || mirrored) && (!mirrored || made <= reduced);
      if (!right) wrong.push_back(fmt::format("{} is out of place on device {}", to_string(op), d));
      if (!right) return;
    }
  }
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

/// Marks of sending and receiving: where the other end is on another device, and nowhere else.
/// Of a split backward either part may send.
void check_marks(const Program& p, const DependencyTable& table, Findings& wrong) {
  const auto elsewhere = [&](const Op& op, std::uint32_t other) {
    return other != kNoOp && table.device_of(p.ops[other]) != table.device_of(op);
  };
  for (std::uint32_t g = 0; g < p.ops.size() && wrong.size() < 20; ++g) {
    const Op& op = p.ops[g];
    if (!is_compute(op.kind)) continue;
    const bool sends = elsewhere(op, table.consumer(op));
    bool sends_right = op.has(Op::sends) == sends;
    const std::uint32_t weight = table.weight(op.stage, op.microbatch);
    if (op.kind == OpKind::backward_input && weight != kNoOp)
      sends_right = op.has(Op::sends) + p.ops[weight].has(Op::sends) == (sends ? 1 : 0);
    if (op.kind == OpKind::backward_weight) sends_right = sends || !op.has(Op::sends);
    const bool receives = op.kind != OpKind::backward_weight && elsewhere(op, table.producer(op));
    if (!sends_right || op.has(Op::receives) != receives)
      wrong.push_back(fmt::format("{} is marked wrongly: '<' receives, '>' sends", marked(op)));
  }
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
  for (const ChannelPlan& c : plan.channels) {
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

void require_sound(const RunPlan& plan, const std::string& origin) {
  const Program& p = plan.program;
  Findings wrong = wrong_sizes(plan);
  if (wrong.empty() && plan.compute == Compute::transformer) check_model(plan, wrong);
  if (wrong.empty()) {
    const DependencyTable table(p.ops, p.placement, p.microbatches());
    check_updates(p, table, wrong);
    const bool complete = is_complete(p, table);  // what follows looks every op up
    if (wrong.empty() && complete) check_together(plan, wrong);
    if (wrong.empty() && complete) check_marks(p, table, wrong);
    if (wrong.empty() && complete) check_stored(p, table, wrong);
    if (wrong.empty()) wrong = check(p, table);
    if (wrong.empty()) check_channels(plan, table, wrong);
  }
  if (!wrong.empty()) throw InputError(origin, fmt::format("{}", fmt::join(wrong, "; ")));
}

}  // namespace

std::string to_text(const RunPlan& plan) { return plan_json(plan).dump(1) + "\n"; }

RunPlan parse_run_plan(const std::string& text, const std::string& origin) {
  RunPlan plan;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("penstock_program"))
      throw InputError(origin, "is no program; `penstock export SCENARIO --to program` writes one");
    if (json.at("penstock_program") != kProgramFileVersion) {
      throw InputError(origin,
                       fmt::format("is a program of version {}; this penstock reads {}",
                                   json.at("penstock_program").dump(), kProgramFileVersion));
    }
    plan = plan_of(json);
  } catch (const JsonError& error) {
    throw InputError(origin, "is no sound program: " + without_controls(error.what()));
  } catch (const Unsound& error) {
    throw InputError(origin, "is no sound program: " + without_controls(error.what()));
  }
  require_sound(plan, origin);
  return plan;
}

RunPlan read_run_plan(const std::string& path) { return parse_run_plan(read_file(path), path); }

}  // namespace penstock
