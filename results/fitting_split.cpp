// SPDX-License-Identifier: Apache-2.0
#include "results/fitting_split.hpp"

#include "base/error.hpp"
#include "scenarios/overrides.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

namespace penstock {
namespace {

constexpr std::size_t kMostMoves = 64;

/// Of a device that its memory holds too little for: negative.
std::int64_t free_bytes(const DeviceResult& d) {
  return d.capacity_bytes == 0 ? 0 : d.capacity_bytes - d.memory.use.total();
}

/// What a layer more takes there, rather too much than too little.
std::int64_t bytes_of_a_layer(const DeviceResult& d) {
  int layers = 0;
  for (const int n : d.layers) layers += n;
  return d.memory.use.total() / std::max(layers, 1);
}

/// The stage of a device with the most layers, or the fewest.
int stage_with(const DeviceResult& d, bool most) {
  const auto at = most ? std::ranges::max_element(d.layers) : std::ranges::min_element(d.layers);
  return d.stages[static_cast<std::size_t>(at - d.layers.begin())];
}

/// One layer from the fullest device to the least busy one with room. False: there is none.
bool move_a_layer(const Result& result, std::vector<int>& layers) {
  const DeviceResult& fullest = *std::ranges::min_element(result.devices, {}, free_bytes);
  const DeviceResult* to = nullptr;
  for (const DeviceResult& d : result.devices) {
    const bool other = d.stages != fullest.stages;
    if (!other || free_bytes(d) < bytes_of_a_layer(d)) continue;
    if (to == nullptr || d.time.busy_s < to->time.busy_s) to = &d;
  }
  const int from = stage_with(fullest, true);
  if (to == nullptr || layers[static_cast<std::size_t>(from)] <= 1) return false;
  --layers[static_cast<std::size_t>(from)];
  ++layers[static_cast<std::size_t>(stage_with(*to, false))];
  return true;
}

}  // namespace

std::optional<std::vector<int>> fitting_split(const Scenario& scenario, AdviceBudget& budget) {
  if (scenario.layers.empty() || scenario.perturbations.changes_times()) return std::nullopt;
  const std::uint64_t ops = count_ops(scenario.shape);
  if (!budget.afford(ops)) return std::nullopt;
  ProgramCache programs;
  std::vector<int> layers = scenario.layers;
  std::set<std::vector<int>> seen;
  try {
    Result result = outline(simulate_unshared(scenario, &programs));
    for (std::size_t moves = 0; moves < kMostMoves && seen.insert(layers).second; ++moves) {
      if (result.infeasible_because.empty())
        return moves == 0 ? std::nullopt : std::optional(layers);
      if (!move_a_layer(result, layers) || !budget.afford(ops)) return std::nullopt;
      Scenario other = scenario.source.with({{"pipeline.split", layers}});
      keep_free(other.cluster, scenario.cluster.device.headroom);
      result = outline(simulate_unshared(std::move(other), &programs));
    }
  } catch (const InputError&) {  // a split that the scenario does not admit
  }
  return std::nullopt;
}

std::optional<std::string> fitting_split_unless_listed(const Scenario& scenario,
                                                       AdviceEffort effort) {
  if (scenario.shape.stages() == 1) return std::nullopt;
  const Value* split = value_at(scenario.source.document(), {"pipeline", "split"});
  if (split != nullptr && split->text != "balanced") return std::nullopt;
  AdviceBudget budget(effort);
  const auto layers = fitting_split(scenario, budget);
  return layers ? std::optional(fmt::format("[{}]", fmt::join(*layers, ", "))) : std::nullopt;
}

void note_fitting_split(const Scenario& scenario, Result& result, AdviceEffort effort) {
  if (result.infeasible_because.empty()) return;
  if (const auto fits = fitting_split_unless_listed(scenario, effort))
    result.notes.push_back(fmt::format(
        "split: {} would fit; without it layers are split by time or number, not by memory",
        *fits));
}

}  // namespace penstock
