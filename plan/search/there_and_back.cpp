#include "plan/search/there_and_back.hpp"

#include "base/error.hpp"
#include "schedules/catalog.hpp"
#include "schedules/search/vee.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr double kNear = 1.002;

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
  within_s_ = enough_s / static_cast<double>(family_.shape.microbatches);
  Cut cut{start.layers, std::vector<bool>(devices, false)};
  std::optional<Candidate> best;
  std::optional<PairCycle> known;
  try {
    const OrderProblem problem = problem_of(problem_.resolve(start));
    within_s_ = std::min(within_s_, longest_s(problem) * (1 - kRounding));
    half_ = half_of(problem);
  } catch (const InputError&) {
    return std::nullopt;
  }
  if (!half_) return std::nullopt;
  while (const std::optional<Trial> found = search(cut, known, trials, more)) {
    best = found->candidate;
    cut = found->cut;
    within_s_ = found->least_s * (1 - kRounding);
  }
  return best;
}

/// What repeats in the time that there is; none: nothing was found.
std::optional<CutsThereAndBack::Trial> CutsThereAndBack::search(const Cut& from,
                                                                std::optional<PairCycle>& known,
                                                                std::size_t trials,
                                                                const std::function<bool()>& more) {
  std::optional<Trial> now;
  /// Is it what is searched for?
  const auto take = [&](std::optional<Trial> next) {
    if (!next) return false;
    find_cycle(*next, known);
    if (now && !next->better_than(*now)) return false;
    now = std::move(next);
    known = now->cycle;
    return now->period_s <= now->least_s * kNear && finds(*now);
  };
  if (take(trial(from)) || take(trial(dealt_out(from)))) return now;
  for (std::size_t i = 0; i < trials && now && more(); ++i)
    if (take(trial(moved(now->cut)))) return now;
  return std::nullopt;
}

/// Does the schedule, which begins without what is known here?
bool CutsThereAndBack::finds(const Trial& trial) const {
  const std::optional<PairCycle> cycle = repeating_vee(trial.problem);
  return cycle && period_of(trial.problem, *cycle) <= trial.least_s * kNear;
}

/// None: a device has not the time for its layers, or not the memory for one microbatch.
std::optional<CutsThereAndBack::Trial> CutsThereAndBack::trial(const Cut& cut) const {
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
Candidate CutsThereAndBack::recomputing(const Cut& cut) const {
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
    const OrderProblem problem = problem_of(problem_.resolve(more));
    for (std::size_t d = 0; d < devices; ++d) {
      const double work_s = problem.work(static_cast<std::uint32_t>(d)) / problem.microbatches;
      full[d] = full[d] || work_s > within_s_;
      if (full[d]) continue;
      for (const std::size_t s : {d, stages - 1 - d}) out.recompute[s] = more.recompute[s];
    }
  }
  return out;
}

/// The layers of every device so on its two stages that V-Half exceeds the memory least.
CutsThereAndBack::Cut CutsThereAndBack::dealt_out(Cut cut) const {
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

void CutsThereAndBack::find_cycle(Trial& trial, const std::optional<PairCycle>& known) const {
  constexpr std::size_t kEvaluations = 4000;
  constexpr double kFar = 0.5;  // of the devices' memory, in all
  std::vector<PairCycle> starts{*half_};
  if (known) starts.insert(starts.begin(), *known);
  for (const PairCycle& start : starts) {
    const double excess = excess_of(trial.problem, start);
    if (excess < trial.excess) {
      trial.excess = excess;
      if (trial.period_s == kNever) trial.cycle = start;
    }
    if (excess > kFar) continue;
    std::mt19937_64 random(1);
    const auto found = improved(trial.problem, start, kEvaluations, random);
    const double found_s = found ? period_of(trial.problem, *found) : kNever;
    if (found_s < trial.period_s) {
      trial.period_s = found_s;
      trial.cycle = found;
    }
    if (trial.period_s <= trial.least_s * kNear) return;
  }
}

}  // namespace penstock
