// SPDX-License-Identifier: Apache-2.0
#include "plan/search/stash.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <unordered_set>

namespace penstock {
namespace {

bool is_mirrored(const PlanFamily& family) { return family.schedule->layout == Layout::mirrored; }

bool takes(const Op& op) { return op.kind == OpKind::forward; }

bool frees(const Op& op, bool until_weights) {
  return op.kind == OpKind::backward ||
         op.kind == (until_weights ? OpKind::backward_weight : OpKind::backward_input);
}

/// Microbatches of each stage of a device, at all times when it frees some next or has ended, each
/// that is the same once: at others it holds no more of any.
struct Holdings {
  std::size_t stages = 0;
  std::vector<int> held{};  ///< [time][stage]

  std::size_t times() const { return held.size() / stages; }
  std::span<const int> at(std::size_t time) const {
    return std::span(held).subspan(time * stages, stages);
  }
};

/// A number of each stage, whose sums tell what is held; what they might mix up would be left out.
std::uint64_t number_of(std::size_t stage) {
  std::uint64_t x = (stage + 1) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

Holdings holdings(std::span<const Op> ops, const std::vector<Share>& shares, bool until_weights) {
  std::vector<std::size_t> place(std::ranges::max(shares, {}, &Share::stage).stage + 1);
  for (std::size_t i = 0; i < shares.size(); ++i) place[shares[i].stage] = i;
  Holdings out{shares.size()};
  std::vector<int> held(shares.size(), 0);
  std::unordered_set<std::uint64_t> seen;
  std::uint64_t sum = 0;
  bool grew = false;
  const auto take_time = [&] {
    if (grew && seen.insert(sum).second) out.held.insert(out.held.end(), held.begin(), held.end());
    grew = false;
  };
  for (const Op& op : ops) {
    const bool freed = frees(op, until_weights);
    if (!takes(op) && !freed) continue;
    if (freed) take_time();
    grew = !freed;
    const std::size_t stage = place[op.stage];
    held[stage] += freed ? -1 : 1;
    sum += freed ? -number_of(stage) : number_of(stage);
  }
  take_time();
  return out;
}

double peak_of_one_stage(std::span<const Op> ops, bool until_weights) {
  int held = 0, most = 0;
  for (const Op& op : ops) {
    held += takes(op) ? 1 : frees(op, until_weights) ? -1 : 0;
    most = std::max(most, held);
  }
  return most;
}

/// The peak of a device per layer however its layers are spread over its stages, at least: the
/// value of the game in which one side chooses the stage of a layer and the other the time. Any
/// mixture of times bounds it; fictitious play (Brown, 1951) finds a good one.
double least_peak(const Holdings& holdings) {
  const std::size_t stages = holdings.stages, times = holdings.times();
  if (times == 0) return 0;
  double best = 0;
  std::vector<double> of_stage(stages, 0), of_time(times, 0);  // sums over what was chosen
  std::vector<double> held(stages * times);                    // [stage][time]
  for (std::size_t t = 0; t < times; ++t) {
    for (std::size_t s = 0; s < stages; ++s) held[s * times + t] = holdings.at(t)[s];
    best = std::max(best, static_cast<double>(std::ranges::min(holdings.at(t))));
  }
  std::size_t stage = 0;
  constexpr int kRounds = 64;
  for (int round = 1; round <= (stages == 1 ? 1 : kRounds); ++round) {
    for (std::size_t t = 0; t < times; ++t) of_time[t] += held[stage * times + t];
    const auto chosen =
        static_cast<std::size_t>(std::ranges::max_element(of_time) - of_time.begin());
    for (std::size_t s = 0; s < stages; ++s) of_stage[s] += held[s * times + chosen];
    stage = static_cast<std::size_t>(std::ranges::min_element(of_stage) - of_stage.begin());
    best = std::max(best, of_stage[stage] / round);
  }
  return best;
}

}  // namespace

std::vector<std::uint32_t> positions_of(const PlanFamily& family) {
  const ScheduleShape shape = family.schedule_shape();
  return layout(family.schedule->layout, std::vector<int>(shape.depth, 1), shape.chunks,
                shape.microbatches_per_update)
      .positions();
}

bool is_there_and_back(const PlanFamily& family) {
  const auto p = static_cast<std::uint32_t>(family.shape.depth);
  if (is_mirrored(family) || family.stages() != 2 * family.shape.depth) return false;
  const std::vector<std::uint32_t> position = positions_of(family);
  for (std::uint32_t d = 0; d < p; ++d)
    if (position[d] != d || position[2 * p - 1 - d] != d) return false;
  return true;
}

std::vector<std::vector<Share>> shares_of(const PlanFamily& family) {
  const std::vector<std::uint32_t> position = positions_of(family);
  const auto p = static_cast<std::size_t>(family.shape.depth);
  const auto m = static_cast<double>(family.shape.microbatches);
  std::vector<std::vector<Share>> shares(p);
  for (std::uint32_t s = 0; s < position.size(); ++s) {
    if (!is_mirrored(family)) {
      shares[position[s]].push_back({s, m});
      continue;
    }
    const double down = std::ceil(m / 2);
    shares[s].push_back({s, down});
    shares[p - 1 - s].push_back({s, m - down});
  }
  return shares;
}

std::vector<std::vector<int>> most_held(std::span<const Op> ops, const std::vector<Share>& shares,
                                        bool until_weights) {
  const Holdings all = holdings(ops, shares, until_weights);
  std::vector<std::vector<int>> out;
  for (std::size_t t = 0; t < all.times(); ++t) {
    bool less = false;
    for (std::size_t other = 0; other < all.times() && !less; ++other)
      less = other != t && std::ranges::equal(all.at(t), all.at(other), std::ranges::less_equal{});
    if (!less) out.emplace_back(all.at(t).begin(), all.at(t).end());
  }
  return out;
}

/// Of a long batch some microbatches tell as much as all, which follow in the same order: no device
/// then holds more at any time than it does at one of the whole batch. As many are left over after
/// rounds of the pipeline.
PlanFamily with_fewer_microbatches(const PlanFamily& family) {
  constexpr std::int64_t kRounds = 2;
  const std::int64_t round = 2 * family.shape.depth, m = family.shape.microbatches;
  PlanFamily fewer = family;
  if (m >= (kRounds + 1) * round) fewer.shape.microbatches = m % round + kRounds * round;
  return fewer;
}

const Stash& Stashes::stash_of(const PlanFamily& family) {
  const PlanFamily fewer = with_fewer_microbatches(family);
  if (fewer.shape.microbatches < family.shape.microbatches && fewer.admitted()) {
    const Stash& stash = stash_of(fewer);
    const auto all = static_cast<double>(fewer.shape.microbatches);
    if (std::ranges::max(stash.until_weights) < all && std::ranges::max(stash.until_input) < all)
      return stash;
  }
  const auto index = static_cast<std::int64_t>(family.schedule - schedules().data());
  const std::vector<std::int64_t> key{index, family.shape.depth, family.chunks,
                                      family.shape.microbatches,
                                      static_cast<std::int64_t>(family.checkpoint)};
  const auto [found, added] = known_.try_emplace(key);
  Stash& stash = found->second;
  if (!added) return stash;
  // Of any order: the first backward follows all forwards of its microbatch.
  stash.until_input.assign(static_cast<std::size_t>(family.shape.depth),
                           is_mirrored(family) ? 0 : 1);
  stash.until_weights = stash.until_input;
  if (family.schedule->looks_at_costs || !family.schedule->flushes()) return stash;
  OpLists order;
  family.schedule->generate(family.schedule_shape(), order);
  const auto shares = shares_of(family);
  for (std::size_t d = 0; d < shares.size(); ++d) {
    const std::span<const Op> ops = order.of_device(static_cast<int>(d));
    const auto peak = [&](bool until_weights) {
      return shares[d].size() == 1 ? peak_of_one_stage(ops, until_weights)
                                   : least_peak(holdings(ops, shares[d], until_weights));
    };
    stash.until_input[d] = peak(false);
    stash.until_weights[d] = family.schedule->splits_backward ? peak(true) : stash.until_input[d];
  }
  return stash;
}

}  // namespace penstock
