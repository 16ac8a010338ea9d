// SPDX-License-Identifier: Apache-2.0
#include "scenarios/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

std::uint32_t natural(std::int64_t n) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(n, 1, 1'000'000'000));
}

/// Of all positions alike, where one is given.
std::optional<std::int64_t> only_width(const PipelineKeys& keys) {
  const auto& widths = keys.width.value;
  if (!widths || widths->size() != 1) return std::nullopt;
  return static_cast<std::int64_t>(widths->front());
}

/// All of the cluster when it is real; else one per listed cost.
std::uint32_t default_positions(const Specification& spec) {
  const PipelineKeys& keys = spec.pipeline;
  std::int64_t replicas = std::max<std::int64_t>(1, only_width(keys).value_or(1));
  for (const Axis axis : kInnerAxes)
    replicas *= std::max<std::int64_t>(1, keys.size(axis).value_or(1));
  if (const auto& cluster = spec.cluster_section) {
    if (cluster->has("groups")) return natural(spec.cluster.devices() / replicas);
    if (cluster->has("devices")) return natural(cluster->integer("devices").value_or(1));
    if (cluster->has("devices_per_node")) {
      return natural(cluster->integer("devices_per_node").value_or(1) *
                     cluster->integer("nodes").value_or(1) / replicas);
    }
  }
  if (!spec.model || !spec.model->section.has("forward")) return 1;
  const Section& model = spec.model->section;
  const std::int64_t usual = spec.schedule == nullptr ? 1 : spec.schedule->chunks.usual;
  const std::int64_t each = model.choice("per") == 1 ? keys.chunks.value_or(usual) : 1;
  return natural(static_cast<std::int64_t>(model.at("forward").items.size()) / each);
}

bool whole_model(const Specification& spec) {
  return spec.schedule != nullptr && spec.schedule->whole_model;
}

std::uint32_t default_stages(const Specification& spec) {
  if (spec.own_schedule) return spec.own_schedule->only_depth;
  const Numbers& width = spec.pipeline.width;
  if (width.is_list() && !width.at.items.empty())
    return natural(static_cast<std::int64_t>(width.at.items.size()));
  return whole_model(spec) ? 1 : default_positions(spec);
}

/// Every replica must have its turn equally often; only so long can a round be.
bool fits_round(const std::vector<int>& widths) {
  constexpr std::uint64_t kMostRound = 10'000;
  std::uint64_t round = 1;
  for (const int width : widths) {
    round = std::lcm(round, static_cast<std::uint64_t>(width));
    if (round > kMostRound) return false;
  }
  return true;
}

void refuse_without_meaning(const PipelineKeys& pipeline, const Schedule& schedule) {
  const auto refuse = [&](const char* key, bool has_meaning, const char* who) {
    if (!pipeline.section.has(key) || has_meaning) return;
    pipeline.section.refuse(
        key, fmt::format("'{}' has a meaning for {} only, not for '{}'", key, who, schedule.name));
  };
  refuse("group", schedule.groups, "interleaved-1f1b");
  refuse("checkpoint", schedule.checkpoints, "torchgpipe");
  refuse("memory_limit", schedule.usual_limit > 0,
         "schedules that search (`penstock schedule list`)");
  refuse("correction", schedule.corrects, "pipemare");
  const std::string by_checkpoint =
      fmt::format("'{}' recomputes as 'checkpoint' says: always, except_last (default) or never",
                  schedule.name);
  for (const char* key : {"recompute", "recompute_method", "recompute_layers"})
    if (schedule.checkpoints && pipeline.section.has(key))
      pipeline.section.refuse(key, by_checkpoint);
}

/// One for all devices as one number, those of each as so many; none: the schedule's own.
std::vector<double> memory_limits(const PipelineKeys& pipeline, std::uint32_t depth) {
  const Numbers& key = pipeline.memory_limit;
  const auto limits = key.value_or({});
  if (limits.empty()) return {};
  if (std::ranges::min(limits) <= 0) {
    key.refuse("'memory_limit' must be more than 0, such as 1 for the memory of 1F1B");
    return {};
  }
  if (!key.is_list() || limits.size() == depth || pipeline.stages.broken) return limits;
  key.refuse(
      fmt::format("'memory_limit' lists {} devices, the pipeline has {}", limits.size(), depth));
  return {};
}

/// What `recompute_layers` says; none: all layers one by one.
std::vector<int> recomputed_layers(const Specification& spec,
                                   const std::vector<Recompute>& values) {
  const auto& method = spec.pipeline.recompute_method;
  const Numbers& key = spec.pipeline.recompute_layers;
  const auto given = key.value_or({});
  if (method.broken || key.broken || (!method.there && !key.there)) return {};
  if (!method.there) {
    key.refuse(
        "'recompute_layers' needs 'recompute_method': block (so many layers of every stage) or "
        "uniform (groups of so many)");
    return {};
  }
  const bool block = method.value == RecomputeMethod::block;
  if (block && !key.there) {
    method.refuse("'recompute_method: block' needs 'recompute_layers': how many of every stage");
    return {};
  }
  if (std::ranges::find(values, Recompute::full) == values.end()) {
    spec.diagnostics.note(fmt::format("{} says nothing without recompute: full",
                                      key.there ? "recompute_layers" : "recompute_method"));
    return {};
  }
  if (!block && !given.empty() && std::ranges::min(given) < 1) {
    key.refuse(
        "uniform recomputes in groups of at least 1 layer; recompute_method: block takes 0, too");
    return {};
  }
  const bool all_alike = !block && std::ranges::all_of(given, [](double n) { return n == 1; });
  if (!all_alike && (spec.given_costs() || spec.layer_profile() != nullptr)) {
    key.refuse(
        "'recompute_layers' needs a model by shape: of this one only whole stages are known");
    return {};
  }
  return {given.begin(), given.end()};
}

/// What `recompute_modules` says; none: what selective recomputation usually is.
std::vector<LayerParts> recomputed_parts(const Specification& spec,
                                         const std::vector<Recompute>& values) {
  const auto& key = spec.pipeline.recompute_modules;
  if (!key.there || key.broken) return {};
  if (std::ranges::find(values, Recompute::selective) == values.end()) {
    if (spec.pipeline.recompute.there)
      spec.diagnostics.note("recompute_modules says nothing without recompute: selective");
    else
      key.refuse("'recompute_modules' needs 'recompute: selective'");
    return {};
  }
  const std::vector<LayerParts> parts = key.value_or({});
  const bool measured = spec.layer_profile() != nullptr;
  if (measured && std::ranges::any_of(
                      parts, [](LayerParts p) { return p != LayerParts(LayerPart::core_attn); })) {
    key.refuse(
        "'recompute_modules' needs a model by shape: of this one only core_attn was measured");
    return {};
  }
  const LayerParts second = LayerPart::every_second_product;
  const auto has_second = [&](LayerParts p) { return p.overlaps(second); };
  if (std::ranges::none_of(parts, has_second)) return parts;
  const auto* const model = spec.model ? &spec.model->transformer : nullptr;
  if (std::ranges::any_of(parts, [&](LayerParts p) { return has_second(p) && p != second; })) {
    key.refuse("'every_second_product' goes with no other module");
    return {};
  }
  if (model != nullptr && *model && ((*model)->experts || (*model)->latent)) {
    key.refuse(
        "'every_second_product' is known of dense layers with queries, keys and values alone: "
        "which products of experts or latent attention are kept is not");
    return {};
  }
  return parts;
}

}  // namespace

PerStage<int> widths_of(const Specification& spec) {
  const PipelineKeys& keys = spec.pipeline;
  const auto list = keys.width.value_or({});
  if (!keys.width.is_list() || list.empty()) {
    const bool fills = whole_model(spec) && spec.cluster_section && keys.stages.value_or(1) == 1;
    if (const auto width = only_width(keys)) return static_cast<int>(*width);
    return fills ? static_cast<int>(default_positions(spec)) : 1;
  }
  std::vector<int> widths(list.begin(), list.end());
  const int most = std::ranges::max(widths);
  const auto depth = keys.stages.value_or(static_cast<std::int64_t>(list.size()));
  if (static_cast<std::int64_t>(list.size()) != depth && !keys.stages.broken) {
    keys.width.refuse(
        fmt::format("'width' lists {} stages, the pipeline has {}", list.size(), depth));
    widths = {most};
  }
  if (!keys.divides_microbatches() && !fits_round(widths)) {
    keys.width.refuse(
        "the least common multiple of the widths is over 10000: give widths that divide each "
        "other");
    widths = {most};
  }
  return PerStage<int>(std::move(widths));
}

ScheduleShape shape_of(const Specification& spec) {
  const PipelineKeys& keys = spec.pipeline;
  const Schedule* schedule = spec.schedule;
  const auto number = [](const Integer& key, std::uint32_t otherwise) {
    return static_cast<std::uint32_t>(key.value_or(otherwise));
  };
  ScheduleShape shape;
  shape.depth = number(keys.stages, default_stages(spec));
  shape.microbatches_per_update =
      number(keys.microbatches, spec.own_schedule ? std::max(schedule->only_microbatches, 1U) : 1);
  shape.batches = number(spec.batches, 1);
  shape.accumulation_steps = number(keys.accumulation_steps, 1);
  shape.vertical_sync = keys.vertical_sync.value_or(false);
  shape.stashing = keys.stashing.value_or(Stashing::all) == Stashing::all;
  shape.extra_copies = keys.weight_copies.value_or(WeightCopies::paper) == WeightCopies::code;
  shape.chunks = number(keys.chunks, schedule == nullptr ? 1 : schedule->chunks.usual);
  shape.group = number(keys.group, 0);
  shape.checkpoint = keys.checkpoint.value_or(Checkpoint::except_last);
  shape.correction = keys.correction.value_or(true);
  if (schedule == nullptr) return shape;
  shape.own_stages = static_cast<std::uint32_t>(schedule->positions.size());
  // The two stages of a device are the two directions' own: p virtual stages in all.
  const Chunks& admitted = schedule->chunks;
  if (schedule->layout == Layout::mirrored && shape.chunks >= admitted.least &&
      shape.chunks <= admitted.most)
    shape.chunks = 1;
  std::vector<double> limits = memory_limits(keys, shape.depth);
  if (keys.memory_limit.is_list())
    shape.memory_limits = std::move(limits);
  else if (!limits.empty())
    shape.memory_limit = limits.front();
  refuse_without_meaning(keys, *schedule);
  return shape;
}

namespace {

/// What `offload` says of all virtual stages.
PerStage<double> offload_of(const Specification& spec, const ScheduleShape& shape, bool shaped) {
  const Numbers& key = spec.pipeline.offload;
  const std::vector<double> shares = key.value_or({0.0});
  if (shares.empty() || key.broken) return 0.0;
  if (std::ranges::max(shares) == 0) return 0.0;
  if (std::ranges::max(shares) > 1)
    key.refuse("'offload' is a share of what is kept: from 0 to 1");
  else if (spec.given_costs() || spec.layer_profile() != nullptr)
    key.refuse("'offload' needs a model by shape: of this one only whole stages are known");
  else if (key.is_list() && shaped && shares.size() != shape.stages())
    key.refuse(fmt::format("'offload' lists {} stages, the pipeline has {}", shares.size(),
                           shape.stages()));
  else if (!key.is_list() || !shaped)
    return shares.front();
  else
    return PerStage<double>(shares);
  return 0.0;
}

/// Which of them recompute what.
PerStage<Recomputation> recompute_keys_of(const Specification& spec, const ScheduleShape& shape,
                                          bool shaped) {
  const auto& key = spec.pipeline.recompute;
  if (spec.schedule != nullptr && spec.schedule->checkpoints)  // decides itself
    return shape.checkpoint == Checkpoint::never ? Recompute::none : Recompute::full;
  const std::vector<Recompute> values = key.value_or({Recompute::none});
  if (spec.given_costs() && std::ranges::find(values, Recompute::selective) != values.end()) {
    spec.diagnostics.add_error(recompute_place(spec, Recompute::selective),
                               "'selective' needs a model by shape");
  }
  const std::vector<int> layers = recomputed_layers(spec, values);
  const auto is_one_each = [&](const char* name, const auto& given, const auto& list) {
    if (!given.is_list() || !shaped || list.size() == shape.stages()) return true;
    given.refuse(fmt::format("'{}' lists {} stages, the pipeline has {}", name, list.size(),
                             shape.stages()));
    return false;
  };
  const std::vector<LayerParts> parts = recomputed_parts(spec, values);
  const bool each =
      (parts.size() <= 1 ||
       is_one_each("recompute_modules", spec.pipeline.recompute_modules, parts)) &&
      (!key.value || is_one_each("recompute", key, values)) &&
      (layers.empty() || is_one_each("recompute_layers", spec.pipeline.recompute_layers, layers));
  const auto of_stage = [&](std::size_t s) -> Recomputation {
    const Recompute all = values[s < values.size() ? s : 0];
    if (all == Recompute::selective && !parts.empty()) {
      Recomputation selective = all;
      selective.parts = parts[s < parts.size() ? s : 0];
      return selective;
    }
    if (all != Recompute::full || layers.empty()) return all;
    const int n = layers[s < layers.size() ? s : 0];
    return spec.pipeline.recompute_method.value == RecomputeMethod::block
               ? Recomputation::block(n)
               : Recomputation::uniform(n);
  };
  if (!each || !shaped || (values.size() == 1 && layers.size() <= 1 && parts.size() <= 1))
    return of_stage(0);  // later checks need one
  std::vector<Recomputation> of_stages;
  for (std::uint32_t s = 0; s < shape.stages(); ++s) of_stages.push_back(of_stage(s));
  return PerStage<Recomputation>(std::move(of_stages));
}

}  // namespace

PerStage<Recomputation> recompute_of(const Specification& spec, const ScheduleShape& shape,
                                     bool shaped) {
  const PerStage<Recomputation> again = recompute_keys_of(spec, shape, shaped);
  const PerStage<double> offload = offload_of(spec, shape, shaped);
  if (offload == PerStage<double>(0.0)) return again;
  std::vector<Recomputation> each;
  for (std::uint32_t s = 0; s < (shaped ? shape.stages() : 1); ++s) {
    each.push_back(again.at(s));
    each.back().offload = offload.at(s);
  }
  return PerStage<Recomputation>(std::move(each));
}

const Value& recompute_place(const Specification& spec, Recompute value) {
  const auto& key = spec.pipeline.recompute;
  if (!key.is_list()) return key.at;
  const std::vector<Recompute>& given = key.value.value();
  const auto at = std::ranges::find(given, value);
  return at == given.end() ? key.at : key.at.items[static_cast<std::size_t>(at - given.begin())];
}

}  // namespace penstock
