// SPDX-License-Identifier: Apache-2.0
// The search against brute force: every shape, schedule, arrangement and cut of small problems,
// simulated by the same engine. The brute force shares nothing with the search but the scenario of
// a candidate: it knows no bounds, no order and no dynamic programming.
#include "plan/search/search.hpp"

#include "base/error.hpp"
#include "tests/plan/search/random_problem.hpp"
#include "tests/effort.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock::search_test {
namespace {

const int kCases = kBrief ? 6 : 48;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// All axes, with a few values of each, so that brute force ends.
Axes thinned(Axes axes, int layers, std::mt19937_64& random) {
  // Orders that are searched for take as long as a hundred others.
  if (layers > 5)
    std::erase_if(axes.schedules, [](const Schedule* s) { return s->looks_at_costs; });
  const auto keep = [&](auto& values, std::size_t most) {
    std::ranges::shuffle(values, random);
    if (values.size() > most) values.resize(most);
  };
  keep(axes.schedules, 5);
  keep(axes.depths, 3);
  keep(axes.widths, 2);
  keep(axes.tensors, 2);
  keep(axes.microbatch_sizes, 2);
  keep(axes.recomputes, 2);
  keep(axes.chunks, 3);
  constexpr double kMostOfFamily = 1500;  // cuts times ways to recompute
  const auto most = [&](int p) {
    double out = 0;
    for (const int v : axes.chunks)
      if (p * v <= layers)
        out = std::max(out, std::pow(static_cast<double>(axes.recomputes.size()), p * v) *
                                static_cast<double>(count_cuts(layers, p * v, 100'000)));
    return out;
  };
  if (std::ranges::any_of(axes.depths, [&](int p) { return most(p) > kMostOfFamily; }))
    axes.recomputes.resize(1);
  const auto single = [&](int p) {
    double out = 0;
    for (const int v : axes.chunks)
      if (p * v <= layers)
        out = std::max(out, std::pow(layers / (p * v) + 1.5, p * v) *
                                static_cast<double>(count_cuts(layers, p * v, 100'000)));
    return out;
  };
  axes.single_layers = axes.single_layers && std::ranges::none_of(axes.depths, [&](int p) {
                         return single(p) > kMostOfFamily;
                       });
  return axes;
}

void cuts_of(int layers, int stages, std::vector<int> so_far, std::vector<std::vector<int>>& out) {
  if (stages == 1) {
    so_far.push_back(layers);
    out.push_back(so_far);
    return;
  }
  for (int n = 1; n < layers; ++n) {
    if (layers - n < stages - 1) break;
    auto more = so_far;
    more.push_back(n);
    cuts_of(layers - n, stages - 1, more, out);
  }
}

struct Brute {
  double best = kInfinite;
  std::size_t simulated = 0;
};

/// Every way to recompute in stages of so many layers.
std::vector<std::vector<Recomputation>> choices_of(const Axes& axes, const std::vector<int>& layers,
                                                   bool uniform) {
  const std::vector<Recomputation>& each = axes.recomputes;
  const auto has = [&](Recompute r) { return std::ranges::find(each, r) != each.end(); };
  const bool single = axes.single_layers && each.size() == 2 && !has(Recompute::selective);
  if (uniform) {
    std::vector<std::vector<Recomputation>> alike;
    for (const Recomputation& r : each) alike.emplace_back(layers.size(), r);
    for (int again = 1; single && again < std::ranges::max(layers); ++again)
      alike.emplace_back(layers.size(), Recomputation::block(again));
    return alike;
  }
  std::vector<std::vector<Recomputation>> out{{}};
  for (const int n : layers) {
    std::vector<Recomputation> of_stage = each;
    for (int again = 1; single && again < n; ++again)
      of_stage.push_back(Recomputation::block(again));
    std::vector<std::vector<Recomputation>> longer;
    for (const auto& way : out)
      for (const Recomputation& r : of_stage) {
        longer.push_back(way);
        longer.back().push_back(r);
      }
    out = std::move(longer);
  }
  return out;
}

void try_all_cuts(const Problem& problem, const PlanFamily& family, const Axes& axes,
                  const SearchOptions& options, Brute& brute) {
  const Objective objective = options.objective;
  std::vector<std::vector<int>> cuts;
  cuts_of(problem.layers(), family.stages(), {}, cuts);
  for (const auto& cut : cuts) {
    const auto ways = family.schedule->checkpoints
                          ? std::vector<std::vector<Recomputation>>{{}}
                          : choices_of(axes, cut, options.uniform_recompute);
    for (const auto& way : ways) {
      try {
        const Scenario scenario = problem.resolve(Candidate{family, cut, way});
        const Judgement v = judge(scenario, EngineChoice::exact);
        ++brute.simulated;
        if (v.fits)
          brute.best = std::min(brute.best, cost_of(objective, v.iteration_time_s, v.memory_bytes,
                                                    family.shape.gpus()));
      } catch (const InputError&) {
        continue;  // this schedule cannot run it
      }
    }
  }
}

void try_family(const Problem& problem, PlanFamily family, const Axes& axes,
                const SearchOptions& options, Brute& brute) {
  if (!family.schedule->checkpoints) {
    if (family.admitted()) try_all_cuts(problem, family, axes, options, brute);
    return;
  }
  for (const Checkpoint checkpoint : checkpoints_of(axes.recomputes)) {
    if (options.uniform_recompute && checkpoint == Checkpoint::except_last) continue;
    family.checkpoint = checkpoint;
    if (family.admitted()) try_all_cuts(problem, family, axes, options, brute);
  }
}

Brute brute_force(const Problem& problem, const Axes& axes, const SearchOptions& options) {
  Brute brute;
  for (const Schedule* schedule : axes.schedules)
    for (const int p : axes.depths)
      for (const int w : axes.widths)
        for (const int t : axes.tensors)
          for (const std::int64_t b : axes.microbatch_sizes)
            for (const int v : axes.chunks) {
              if (p * w * t > problem.gpus() || problem.batch() % (b * w) != 0) continue;
              if (p * v > problem.layers()) continue;
              for (const bool sequence : axes.sequence_parallel)
                for (const Sharded shared : axes.sharded) {
                  // Where they mean nothing, the scenario is refused.
                  const Shape shape{p, w, t, b, problem.batch() / (b * w), sequence, shared};
                  try_family(problem, {shape, schedule, v, {}}, axes, options, brute);
                }
            }
  return brute;
}

TEST(Search, FindsWhatBruteForceFinds) {
  std::mt19937_64 random(20261128);
  std::size_t simulated = 0, evaluated = 0, found = 0, mixed = 0, in_part = 0;
  for (int i = 0; i < kCases; ++i) {
    const SmallProblem small =
        random_problem(random, i % 6 == 5 ? random_profile_rows(random) : random_model(random));
    SCOPED_TRACE(fmt::format("case {}: batch {}, {}\n{}", i, small.batch,
                             kObjectiveNames[static_cast<std::size_t>(small.objective)],
                             small.text));
    const Problem problem(small.text, "small", small.batch);
    const Axes axes = thinned(problem.axes(small.asynchronous), problem.layers(), random);
    SearchOptions options;
    options.objective = small.objective;
    options.uniform_recompute = i % 6 == 1;
    options.most_evaluations = std::numeric_limits<std::size_t>::max();
    const SearchResult ours = search(problem, axes, options);
    const Brute brute = brute_force(problem, axes, options);
    simulated += brute.simulated;
    evaluated += ours.evaluations;
    EXPECT_TRUE(ours.shapes.adds_up());
    EXPECT_TRUE(ours.families.adds_up());
    EXPECT_TRUE(ours.cuts.adds_up());
    ASSERT_EQ(ours.plans.empty(), brute.best == kInfinite);
    if (ours.plans.empty()) continue;
    ++found;
    const std::vector<Recomputation>& chosen = ours.plans.front().choice.recompute;
    const bool alike = std::ranges::adjacent_find(chosen, std::not_equal_to()) == chosen.end();
    EXPECT_TRUE(alike || !options.uniform_recompute);
    mixed += alike ? 0 : 1;
    in_part += std::ranges::any_of(chosen, [](const auto& r) { return !r.plain(); }) ? 1 : 0;
    EXPECT_EQ(ours.single_layers, RecomputeSteps(axes).single_layers());
    if (options.uniform_recompute && ours.single_layers) {  // not all numbers of layers are tried
      EXPECT_GE(ours.plans.front().cost, brute.best * (1 - 1e-9));
      EXPECT_LE(ours.lower_bound, brute.best * (1 + 1e-9));
      continue;
    }
    EXPECT_NEAR(ours.plans.front().cost / brute.best, 1, 1e-9)
        << ours.plans.front().choice.family.describe();
    EXPECT_NEAR(ours.gap.value(), 0, 1e-8);
  }
  EXPECT_GT(found, kCases / 2);
  if (!kBrief) {
    EXPECT_GT(mixed, 0U) << "stages that recompute differently are never best";
    EXPECT_GT(in_part, 0U) << "stages that recompute single layers are never best";
  }
  EXPECT_LT(evaluated, simulated / 2) << "the bounds prune nothing";
}

/// 16 layers whose activations fit in part: 4 devices, 1F1B, of which the first holds the most.
Axes one_shape(const Problem& problem) {
  Axes axes = problem.axes(false);
  std::erase_if(axes.schedules, [](const Schedule* s) { return s->name != "1f1b"; });
  axes.depths = {4};
  axes.widths = axes.tensors = axes.chunks = {1};
  axes.microbatch_sizes = {1};
  axes.recomputes = {Recompute::none, Recompute::full};
  return axes;
}

TEST(Search, RecomputesOnlyTheLayersThatMemoryAsksFor) {
  const auto problem = [](const std::string& memory) {
    return Problem(
        "stack: none\nmodel: {family: gpt, num_layers: 16, hidden_size: 1024, num_attention_heads: "
        "16, "
        "vocab_size: 2000, seq_length: 1024, precision: mixed-fp16, flash_attention: true}\n"
        "cluster: {devices: 4, link: 100 GB/s, device: {name: d, memory: " +
            memory + ", peak: {fp16: 100 TFLOP/s}, memory_bandwidth: 1000 GB/s}}\n",
        "small", 16);
  };
  const Problem tight = problem("1250 MiB");
  Axes axes = one_shape(tight);
  const auto best = [](const Problem& of, const Axes& among, bool uniform = false) {
    SearchOptions options;
    options.uniform_recompute = uniform;
    return search(of, among, options).plans.front();
  };
  const FoundPlan plan = best(tight, axes);
  int kept = 0, again = 0;
  for (std::size_t s = 0; s < 4; ++s) {
    const int n = plan.choice.recompute[s].recomputed(plan.choice.layers[s]);
    again += n;
    kept += plan.choice.layers[s] - n;
    if (s > 0) {
      EXPECT_LE(n, plan.choice.recompute[s - 1].recomputed(plan.choice.layers[s - 1])) << s;
    }
    if (n == 0) continue;  // one layer less does not fit
    Choice less = plan.choice;
    less.recompute[s] = Recomputation::block(n - 1);
    EXPECT_FALSE(judge(tight.resolve(less), EngineChoice::exact).fits) << s;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(again, 0);

  const FoundPlan alike = best(tight, axes, true);
  EXPECT_TRUE(PerStage<Recomputation>(alike.choice.recompute).alike());
  axes.single_layers = false;
  const FoundPlan whole = best(tight, axes), whole_alike = best(tight, axes, true);
  EXPECT_LT(plan.cost, whole.cost);
  EXPECT_LT(alike.cost, whole_alike.cost);
  EXPECT_LE(plan.cost, alike.cost);

  const Problem roomy = problem("80 GiB");
  for (const Recomputation& r : best(roomy, one_shape(roomy)).choice.recompute)
    EXPECT_EQ(r, Recompute::none);
}

TEST(Search, NoPlanIsBeatenByItsOwnWithAnotherScheduleHoweverShortTheSearch) {
  const Problem problem(
      "stack: none\nmodel: {family: gpt, num_layers: 16, hidden_size: 1024, num_attention_heads: "
      "16, "
      "vocab_size: 2000, seq_length: 1024, precision: mixed-fp16}\n"
      "cluster: {devices: 4, link: 10 GB/s, device: {name: d, memory: 12 GiB, "
      "peak: {fp16: 100 TFLOP/s}, memory_bandwidth: 1000 GB/s}}\n",
      "small", 16);
  Axes axes = problem.axes(false);
  axes.depths = {4};
  axes.microbatch_sizes = {1};
  std::erase_if(axes.schedules, [](const Schedule* s) { return s->looks_at_costs; });
  SearchOptions options;
  options.most_evaluations = 1;
  const SearchResult result = search(problem, axes, options);
  ASSERT_FALSE(result.plans.empty());
  const FoundPlan& best = result.plans.front();
  std::size_t compared = 0;
  for (const Schedule* schedule : axes.schedules) {
    Choice other = best.choice;
    other.family.schedule = schedule;
    other.family.chunks = static_cast<int>(schedule->chunks.usual);
    other.layers.clear();
    other.recompute.clear();
    if (!other.family.admitted() || schedule->checkpoints) continue;
    const Scenario scenario = problem.resolve(other);
    if (!uses_exact(prepare(scenario), EngineChoice::automatic)) continue;  // of two models
    const Judgement judgement = judge(scenario, EngineChoice::exact);
    if (!judgement.fits) continue;
    EXPECT_LE(best.judgement.iteration_time_s, judgement.iteration_time_s * (1 + 1e-9))
        << schedule->name << " instead of " << best.choice.family.schedule->name;
    ++compared;
  }
  EXPECT_GT(compared, 8U);
}

TEST(Search, HeadroomIsMemoryThatPlansDoNotHave) {
  const auto best = [](int mebibytes, double headroom) {
    const Problem problem(
        fmt::format("stack: none\nmodel: {{family: gpt, num_layers: 6, hidden_size: 256, "
                    "num_attention_heads: "
                    "4, vocab_size: 2000, seq_length: 128, precision: mixed-fp16}}\n"
                    "cluster: {{devices: 4, link: 10 GB/s, device: {{name: d, memory: {} MiB, "
                    "peak: {{fp16: 10 TFLOP/s}}, memory_bandwidth: 100 GB/s}}}}\n",
                    mebibytes),
        "small", 8, headroom);
    Axes axes = problem.axes(false);
    axes.schedules = {find_schedule("1f1b")};
    return search(problem, axes, {}).plans;
  };
  int differ = 0;
  for (const int mebibytes : {16, 24, 32, 40, 48, 64}) {
    const auto full = best(mebibytes, 0), less = best(mebibytes, 0.25),
               smaller = best(mebibytes * 3 / 4, 0);
    ASSERT_EQ(less.empty(), smaller.empty());
    if (less.empty()) continue;
    EXPECT_EQ(less[0].cost, smaller[0].cost);
    EXPECT_EQ(less[0].judgement.capacity_bytes, mebibytes * 3 / 4 * 1024 * 1024);
    EXPECT_GE(less[0].cost, full[0].cost);
    differ += less[0].cost > full[0].cost;
  }
  EXPECT_GT(differ, 0) << "it made no difference";
}

}  // namespace
}  // namespace penstock::search_test
