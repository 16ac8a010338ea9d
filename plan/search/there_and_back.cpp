// SPDX-License-Identifier: Apache-2.0
#include "plan/search/there_and_back.hpp"

#include "base/error.hpp"
#include "schedules/catalog.hpp"
#include "schedules/search/vee.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

OrderProblem problem_of(const Scenario& scenario) {
  return order_problem(scenario.shape, scenario.schedule->usual_limit);
}

/// Of a microbatch, the longest device.
double longest_s(const OrderProblem& problem) {
  double longest = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d)
    longest = std::max(longest, problem.work(d) / problem.microbatches);
  return longest;
}

/// What repeats in V-Half.
std::optional<PairCycle> half_of(OrderProblem problem) {
  problem.microbatches = 2 * problem.devices + 8;
  const ScheduleShape shape{.depth = problem.devices,
                            .microbatches_per_update = problem.microbatches,
                            .chunks = 2,
                            .times = problem.times,
                            .transfer = problem.transfer};
  OpLists order;
  v_half().generate(shape, order);
  return cycle_in(problem, word_of(problem, order));
}

}  // namespace

std::optional<Candidate> CutsThereAndBack::find(const Candidate& start, double enough_s,
                                                std::size_t trials,
                                                const std::function<bool()>& more) {
  constexpr double kRounding = 1e-9;
  const auto devices = static_cast<std::size_t>(family_.shape.depth);
  if (start.layers.size() != 2 * devices) return std::nullopt;
  best_s_ = enough_s / static_cast<double>(family_.shape.microbatches);
  Cut cut{start.layers, std::vector<bool>(devices, false)};
  try {
    const OrderProblem problem = problem_of(problem_.resolve(start));
    within_s_ = std::min(best_s_, longest_s(problem) * (1 - kRounding));
    half_ = half_of(problem);
  } catch (const InputError&) {
    return std::nullopt;
  }
  if (!half_) return std::nullopt;
  while (const std::optional<Trial> found = search(cut, trials, more)) {
    if (!finds(*found)) break;
    best_ = found->candidate;
    if (!found->soonest()) break;
    cut = found->cut;
    within_s_ = found->least_s * (1 - kRounding);
  }
  return best_;
}

/// What repeats soonest in the time that there is; none: nothing fits.
std::optional<CutsThereAndBack::Trial> CutsThereAndBack::search(const Cut& from, std::size_t trials,
                                                                const std::function<bool()>& more) {
  std::optional<Trial> now, fitting;
  const auto take = [&](std::optional<Trial> next) {
    if (!next) return;
    find_cycle(*next);
    if (next->fitting_s < (fitting ? fitting->fitting_s : kNever)) fitting = next;
    if (now && !next->better_than(*now)) return;
    now = std::move(next);
    if (now->cycle) known_ = now->cycle;
  };
  take(trial(from));
  if (!now || !now->soonest()) take(trial(dealt_out(from)));
  for (std::size_t i = 0; i < trials && now && !now->soonest() && more(); ++i)
    take(trial(moved(now->cut)));
  return fitting;
}

/// Does the schedule, which begins without what is known here, in less time than any before?
bool CutsThereAndBack::finds(const Trial& trial) {
  if (trial.fitting_s >= best_s_) return false;
  const std::optional<PairCycle> cycle = repeating_vee(trial.problem);
  const double found_s = cycle ? period_of(trial.problem, *cycle) : kNever;
  if (found_s >= best_s_) return false;
  best_s_ = found_s;
  return true;
}

/// None: a device has not the time for its layers, or not the memory for one microbatch.
std::optional<CutsThereAndBack::Trial> CutsThereAndBack::trial(const Cut& cut) {
  if (std::ranges::min(cut.layers) < 1) return std::nullopt;
  try {
    Candidate candidate = recomputing(cut);
    OrderProblem problem = problem_of(problem_.resolve(candidate));
    const double least_s = longest_s(problem);
    if (least_s > within_s_ || !fits_at_all(problem)) return std::nullopt;
    return Trial{cut, std::move(candidate), std::move(problem), least_s};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// What there is time for.
Candidate CutsThereAndBack::recomputing(const Cut& cut) {
  const auto stages = cut.layers.size(), devices = stages / 2;
  Candidate out{family_, cut.layers, std::vector<Recomputation>(stages, steps_.whole().front())};
  std::vector<bool> full(devices, false);
  while (std::ranges::find(full, false) != full.end()) {
    Candidate more = out;
    for (std::size_t d = 0; d < devices; ++d) {
      std::array<std::size_t, 2> order{d, stages - 1 - d};
      if (cut.upper_first[d]) std::swap(order[0], order[1]);
      full[d] = full[d] || std::ranges::none_of(order, [&](std::size_t s) {
                  return steps_.take_more(more.recompute, more.layers, s);
                });
    }
    const std::vector<double> works_s = find_works_s(more);
    for (std::size_t d = 0; d < devices; ++d) {
      full[d] = full[d] || works_s[d] > within_s_;
      if (full[d]) continue;
      for (const std::size_t s : {d, stages - 1 - d}) out.recompute[s] = more.recompute[s];
    }
  }
  return out;
}

/// Of a microbatch, by device. Its own layers say it, so most are known from cuts before; where
/// they begin counts only in a profile: the layers of a transformer are alike. (Nearly so where the
/// stack has a speed_spread, by which all devices share a pace; a trial has the exact times.)
std::vector<double> CutsThereAndBack::find_works_s(const Candidate& cut) {
  const std::size_t stages = cut.layers.size();
  std::vector<int> first(stages, 0);
  if (problem_.base().profile)
    std::partial_sum(cut.layers.begin(), cut.layers.end() - 1, first.begin() + 1);
  const auto own_layers = [&](std::size_t d) {
    std::vector<int> out{static_cast<int>(d)};
    for (const std::size_t s : {d, stages - 1 - d}) {
      const Recomputation& recompute = cut.recompute[s];
      out.insert(out.end(), {first[s], cut.layers[s], static_cast<int>(recompute.granularity),
                             static_cast<int>(recompute.method), recompute.layers});
    }
    return out;
  };
  std::vector<double> works_s;
  for (std::size_t d = 0; d < stages / 2; ++d) {
    const auto known = works_s_.find(own_layers(d));
    if (known == works_s_.end()) break;
    works_s.push_back(known->second);
  }
  if (works_s.size() == stages / 2) return works_s;
  const OrderProblem problem = problem_of(problem_.resolve(cut));
  works_s.clear();
  for (std::size_t d = 0; d < stages / 2; ++d) {
    works_s.push_back(problem.work(static_cast<std::uint32_t>(d)) / problem.microbatches);
    works_s_[own_layers(d)] = works_s.back();
  }
  return works_s;
}

/// The layers of every device so on its two stages that V-Half exceeds the memory least.
CutsThereAndBack::Cut CutsThereAndBack::dealt_out(Cut cut) {
  const auto excess = [&](const Cut& of) {
    const auto made = trial(of);
    return made ? excess_of(made->problem, *half_) : kNever;
  };
  double least = excess(cut);
  for (std::size_t d = 0; d < cut.upper_first.size(); ++d) {
    int &lower = cut.layers[d], &upper = cut.layers[cut.layers.size() - 1 - d];
    const int layers = lower + upper;
    Cut best = cut;
    for (lower = 1; lower < layers; ++lower)
      for (const bool upper_first : {false, true}) {
        upper = layers - lower;
        cut.upper_first[d] = upper_first;
        const double exceeds = excess(cut);
        if (exceeds >= least) continue;
        least = exceeds;
        best = cut;
      }
    cut = std::move(best);
  }
  return cut;
}

/// A layer moves to another stage, mostly of the same device; or its other stage recomputes first.
CutsThereAndBack::Cut CutsThereAndBack::moved(Cut cut) {
  const std::size_t stages = cut.layers.size(), from = random_() % stages;
  const auto draw = random_() % 4;
  if (draw == 0) {
    const std::size_t d = std::min(from, stages - 1 - from);
    cut.upper_first[d] = !cut.upper_first[d];
    return cut;
  }
  const std::size_t other = (from + 1 + random_() % (stages - 1)) % stages;
  const std::size_t to = draw < 3 ? stages - 1 - from : other;
  --cut.layers[from];
  ++cut.layers[to];
  return cut;
}

void CutsThereAndBack::find_cycle(Trial& trial) const {
  constexpr std::size_t kEvaluations = 1000;
  constexpr double kFar = 0.5;  // of the devices' memory, in all
  std::vector<PairCycle> starts{*half_};
  if (known_) starts.insert(starts.begin(), *known_);
  for (const PairCycle& start : starts) {
    const double far = excess_of(trial.problem, start);
    if (!trial.cycle) trial.excess = std::min(trial.excess, far);
    if (far > kFar) continue;
    std::mt19937_64 random(1);
    const FoundCycles found = improved(trial.problem, start, kEvaluations, random);
    for (const auto& cycle : {found.within, found.nearest}) {
      if (!cycle) continue;
      const double period_s = period_of(trial.problem, *cycle);
      const double excess = excess_of(trial.problem, *cycle);
      const double cost_s = period_s * (1 + kPriceOfExcess * excess);
      if (excess <= 0) trial.fitting_s = std::min(trial.fitting_s, period_s);
      if (cost_s >= trial.cost_s) continue;
      trial.cost_s = cost_s;
      trial.period_s = period_s;
      trial.excess = excess;
      trial.cycle = cycle;
    }
    if (trial.soonest()) return;
  }
}

}  // namespace penstock
