// SPDX-License-Identifier: Apache-2.0
// Bounds against simulations: of shapes, families, candidates and one replica.
#include "plan/search/search.hpp"

#include "base/error.hpp"
#include "tests/plan/search/random_problem.hpp"
#include "tests/effort.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>

namespace penstock::bound_test {
namespace {

Problem on_links(const std::string& link) {
  return Problem(
      fmt::format(
          "stack: none\nmodel: {{family: gpt, num_layers: 6, hidden_size: 256, "
          "num_attention_heads: 4, "
          "vocab_size: 4000, seq_length: 128, precision: mixed-fp16}}\n"
          "cluster: {{devices: 6, device: {{name: d, memory: 2 GiB, peak: {{fp16: 10 TFLOP/s}}, "
          "memory_bandwidth: 300 GB/s}}, link: {}}}\n",
          link),
      "small", 12);
}

TEST(Relaxed, MemoryIsThatOfNoMessagesHoweverLongTheyAreHeld) {
  const Candidate candidate{{{3, 2, 1, 1, 6}, find_schedule("1f1b"), 1, {}}, {2, 2, 2}};
  std::vector<double> relaxed_bytes;
  for (const char* link :
       {"{latency: 0 us, bandwidth: 1000 GB/s}", "{latency: 5 ms, bandwidth: 100 MB/s}"}) {
    const Problem problem = on_links(link);
    const Scenario scenario = problem.resolve(candidate);
    const Judgement bound = relaxed(scenario, problem.plain_reduction());
    ASSERT_TRUE(bound.engine.empty());
    EXPECT_LT(bound.memory_bytes, judge(scenario, EngineChoice::exact).memory_bytes);
    relaxed_bytes.push_back(bound.memory_bytes);
  }
  EXPECT_EQ(relaxed_bytes[0], relaxed_bytes[1]);
}

/// 16 layers on 8 devices with so much memory.
Problem with_memory(const std::string& memory) {
  return Problem(
      fmt::format("stack: none\nmodel: {{family: gpt, num_layers: 16, hidden_size: 1024, "
                  "num_attention_heads: 16, vocab_size: 4000, seq_length: 1024, "
                  "precision: mixed-fp16}}\n"
                  "cluster: {{devices: 8, device: {{name: d, memory: {}, peak: {{fp16: 10 "
                  "TFLOP/s}}, memory_bandwidth: 300 GB/s}}, link: 100 GB/s}}\n",
                  memory),
      "small", 32);
}

TEST(Axes, SelectiveRecomputationIsAmongThemWhereItFreesSomething) {
  const auto problem = [](const char* attention) {
    return Problem(fmt::format("stack: none\nmodel: {{family: gpt, num_layers: 4, hidden_size: 64, "
                               "num_attention_heads: 4, vocab_size: 400, seq_length: 64, "
                               "precision: mixed-fp16, flash_attention: {}}}\n"
                               "cluster: p3.16xlarge\n",
                               attention),
                   "small", 8);
  };
  const std::vector<Recomputation> all{Recompute::none, Recompute::selective, Recompute::full};
  EXPECT_EQ(problem("false").axes(false).recomputes, all);
  EXPECT_EQ(problem("true").axes(false).recomputes,
            (std::vector<Recomputation>{Recompute::none, Recompute::full}));
}

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

TEST(Bounds, OfAnOrderThatIsSearchedForCountWhatItsActivationsOccupy) {
  const PlanFamily family{{8, 1, 1, 2, 16}, find_schedule("zb-v-search"), 2, {}};
  std::vector<double> bound_s;
  for (const char* memory : {"80 GiB", "2.2 GiB", "1.3 GiB"}) {
    const Problem problem = with_memory(memory);
    Axes axes = problem.axes(false);
    axes.recomputes = {Recompute::none};
    Bounds bounds(problem, axes);
    bound_s.push_back(bounds.of_order(family, kUnlimited, 10'000'000).time_s);
    const Candidate candidate{family, std::vector<int>(16, 1), std::vector<Recomputation>(16)};
    const std::string text = problem.resolve(candidate).text();
    double best_s = std::numeric_limits<double>::infinity();
    for (const char* limit : {"0.35", "0.4", "0.45", "0.5", "0.6", "0.75", "1"}) {
      const Scenario scenario = parse_scenario(text, "small", {{"pipeline.memory_limit", limit}});
      const Judgement judged = judge(scenario, EngineChoice::exact);
      if (judged.fits) best_s = std::min(best_s, judged.iteration_time_s);
    }
    EXPECT_LE(bound_s.back(), best_s) << memory;
  }
  EXPECT_TRUE(std::ranges::is_sorted(bound_s));
  EXPECT_GT(bound_s.back(), 1.05 * bound_s.front());
}

/// Everything about a plan, drawn at random; none: the schedule does not admit it.
std::optional<Candidate> random_candidate(const Problem& problem, const Axes& axes,
                                          std::mt19937_64& random) {
  Candidate out;
  Shape& shape = out.family.shape;
  shape = {one_of(random, axes.depths), one_of(random, axes.widths), one_of(random, axes.tensors),
           one_of(random, axes.microbatch_sizes)};
  const std::int64_t at_once = shape.microbatch_size * shape.width;
  if (shape.gpus() > problem.gpus() || problem.batch() % at_once != 0) return std::nullopt;
  shape.microbatches = problem.batch() / at_once;
  out.family.schedule = one_of(random, axes.schedules);
  out.family.chunks = between(random, 1, 3);
  out.family.arrangement = one_of(random, axes.arrangements);
  const int stages = out.family.stages(), layers = problem.layers();
  if (stages > layers || shape.depth * out.family.chunks > layers) return std::nullopt;
  if (out.family.schedule->checkpoints)
    out.family.checkpoint = one_of(random, checkpoints_of(axes.recomputes));
  if (!out.family.admitted()) return std::nullopt;
  out.layers.assign(static_cast<std::size_t>(stages), 1);
  for (int given = stages; given < layers; ++given)
    ++out.layers[static_cast<std::size_t>(between(random, 0, stages - 1))];
  if (!out.family.schedule->checkpoints)
    for (const int n : out.layers) {
      out.recompute.push_back(one_of(random, axes.recomputes));
      const RecomputeSteps steps(axes);
      if (steps.single_layers() && between(random, 0, 2) > 0)
        out.recompute.back() = between(random, 0, n) == n
                                   ? Recomputation(Recompute::full)
                                   : Recomputation::block(between(random, 0, n - 1));
    }
  return out;
}

/// The bound of a family's order is no more than this plan of it takes.
void expect_order_bound(const std::string& text, int batch, const Candidate& plan, bool single) {
  const Problem problem(text, "small", batch);
  Axes axes = problem.axes(false);
  axes.recomputes = {Recompute::none, Recompute::full};
  axes.single_layers = single;
  const Judgement judged = judge(problem.resolve(plan), EngineChoice::exact);
  ASSERT_TRUE(judged.fits);
  const OrderBound bound =
      Bounds(problem, axes)
          .of_order(plan.family, std::numeric_limits<double>::infinity(), 3'000'000);
  EXPECT_GT(bound.time_s, 0);
  EXPECT_LE(bound.time_s, judged.iteration_time_s * (1 + 1e-9));
}

TEST(Bounds, OfAFeatureThatTheyDoNotKnowAreOfItsWorkAlone) {
  const Problem problem = with_memory("200 MiB");
  const Axes axes = problem.axes(false);
  EXPECT_EQ(understood_of(problem), Understood::orders);
  EXPECT_EQ(understood_of(problem.base(), {"reduction", "optimizer_sync"}), Understood::orders);
  EXPECT_EQ(understood_of(problem.base(), {"reduction", "something_new"}), Understood::work);
  Bounds all(problem, axes), by_work(problem, axes, Understood::work);
  int lower = 0;
  for (const Shape& shape : shapes_of(problem, axes)) {
    const double work_s = by_work.bound_of(shape).time_s;
    EXPECT_LE(work_s, all.bound_of(shape).time_s);
    const PlanFamily family{shape, find_schedule("1f1b")};
    if (family.stages() > problem.layers() || !family.admitted()) continue;
    Candidate cut{family, {}};
    EXPECT_EQ(by_work.bound_of(family, &cut).time_s, work_s);
    EXPECT_TRUE(by_work.bound_of(family).fits);
    EXPECT_EQ(by_work.bound_of(cut).time_s, work_s);
    EXPECT_TRUE(by_work.bound_of(cut).fits);
    EXPECT_EQ(by_work.of_order(family, 1e9, 1'000'000).time_s, 0);
    const Bound whole = all.bound_of(family);
    lower += !whole.fits || work_s < whole.time_s ? 1 : 0;
  }
  EXPECT_GT(lower, 0) << "there is nothing to understand";
}

TEST(Bounds, OfAnOrderKnowThatAnIMayHideWhatRecomputationAddsToAWholeB) {
  std::vector<Recomputation> recompute(8, Recomputation::block(2));
  recompute.front() = recompute.back() = Recomputation::block(3);
  expect_order_bound(
      "stack: none\nmodel: {family: gpt, num_layers: 48, hidden_size: 256, num_attention_heads: 8, "
      "vocab_size: "
      "1000, seq_length: 112, precision: mixed-fp16, flash_attention: true}\n"
      "cluster: {devices: 8, device: {name: d, memory: 140 MiB, peak: {fp16: 40 TFLOP/s}, "
      "memory_bandwidth: 300 GB/s}, link: {latency: 1 us, bandwidth: 40 GB/s}}\n"
      "transfers: free\n",
      8, {{{8, 1, 1, 1, 8}, find_schedule("zb-h1"), 1, {}}, std::vector<int>(8, 6), recompute},
      true);
}

TEST(Bounds, OfAnOrderDoNotDependOnTheRoundingOfPivots) {
  expect_order_bound(
      "stack: none\nmodel: {family: llama, num_layers: 11, hidden_size: 384, num_attention_heads: "
      "4, "
      "vocab_size: "
      "1800, seq_length: 192, precision: mixed-fp16, flash_attention: false}\n"
      "cluster: {devices: 3, device: {name: d, memory: 394 MiB, peak: {fp16: 14 TFLOP/s}, "
      "memory_bandwidth: 90 GB/s}, link: {latency: 46 us, bandwidth: 10 GB/s}}\n",
      8,
      {{{3, 1, 1, 4, 2}, find_schedule("interleaved-zb"), 3, {}},
       {2, 2, 1, 1, 1, 1, 1, 1, 1},
       std::vector<Recomputation>(9)},
      false);
}

/// A model whose logits are a large part of what its last stage holds, on so many devices with so
/// much memory.
std::string with_large_vocabulary(int layers, int vocabulary, int devices, double memory_bytes) {
  return fmt::format(
      "stack: none\nmodel: {{family: gpt, num_layers: {}, hidden_size: 256, num_attention_heads: "
      "4, "
      "vocab_size: {}, seq_length: 256, precision: mixed-fp16}}\n"
      "cluster: {{devices: {}, device: {{name: d, memory: {:.0f} B, peak: {{fp16: 10 TFLOP/s}}, "
      "memory_bandwidth: 300 GB/s}}, link: {{latency: 5 us, bandwidth: 20 GB/s}}}}\n",
      layers, vocabulary, devices, memory_bytes);
}

/// Its last stage recomputes all of its layers, the others some of theirs or none; none: the
/// schedule does not admit it.
std::optional<Candidate> searched_candidate(const Schedule& schedule, int batch,
                                            std::mt19937_64& random) {
  Candidate out{{{between(random, 2, 4), 1, 1, 1, batch}, &schedule, between(random, 1, 2), {}},
                {}};
  if (!out.family.admitted()) return std::nullopt;
  for (int s = 0; s < out.family.stages(); ++s) {
    const int n = out.layers.emplace_back(between(random, 1, 3));
    const int again = between(random, 0, n - 1);
    out.recompute.push_back(again > 0 ? Recomputation::block(again)
                                      : Recomputation(Recompute::none));
  }
  out.recompute.back() = Recompute::full;
  return out;
}

TEST(Bounds, OfAnOrderThatIsSearchedForHoldWhereTheLastStageKeepsLogitsAndRecomputes) {
  std::mt19937_64 random(20261128);
  std::vector<const Schedule*> searched;
  for (const Schedule& schedule : schedules())
    if (schedule.looks_at_costs && schedule.flushes()) searched.push_back(&schedule);
  const int kProblems = kBrief ? 60 : 300;  // of 20 too few have an order that fits
  int answered = 0, higher = 0;
  for (int i = 0; i < kProblems; ++i) {
    const int batch = between(random, 4, 10), vocabulary = 1000 * between(random, 4, 24);
    const auto plan = searched_candidate(*one_of(random, searched), batch, random);
    if (!plan) continue;
    const int layers = std::accumulate(plan->layers.begin(), plan->layers.end(), 0);
    const auto judged_with = [&](double bytes) -> std::optional<Judgement> {
      const std::string text =
          with_large_vocabulary(layers, vocabulary, plan->family.shape.depth, bytes);
      try {
        return judge(Problem(text, "small", batch).resolve(*plan), EngineChoice::exact);
      } catch (const InputError&) {
        return std::nullopt;  // not even one microbatch is held
      }
    };
    const auto ample = judged_with(1e11);
    if (!ample) continue;
    const double bytes = ample->memory_bytes * between(random, 80, 105) / 100;
    const auto judged = judged_with(bytes);
    if (!judged || !judged->fits) continue;
    const std::string text =
        with_large_vocabulary(layers, vocabulary, plan->family.shape.depth, bytes);
    SCOPED_TRACE(plan->family.describe() + "\n" + text);
    const Problem problem(text, "small", batch);
    Axes axes = problem.axes(false);
    axes.recomputes = {Recompute::none, Recompute::full};
    axes.single_layers = true;
    Bounds bounds(problem, axes);
    const OrderBound bound = bounds.of_order(plan->family, kUnlimited, 300'000);
    EXPECT_LE(bound.time_s, judged->iteration_time_s * (1 + 1e-9));
    ++answered;
    higher += bound.time_s > bounds.bound_of(plan->family).time_s * 1.001 ? 1 : 0;
  }
  EXPECT_GT(answered, kProblems / 10);
  EXPECT_GT(higher, answered / 4);
}

/// What became of the properties that not every plan has.
struct Seen {
  int searched = 0, answered = 0, contended = 0, too_large = 0, made_fit = 0, in_part = 0,
      by_order = 0, higher = 0, near = 0;
};

/// Time of an update, memory of the fullest device, 1 when it fits: as an engine says. None: the
/// schedule cannot run it.
std::optional<std::vector<double>> answer_of(const Scenario& scenario, Seen& seen) {
  const auto answer = [&](EngineChoice engine) {
    const Judgement v = judge(scenario, engine);
    return std::vector<double>{v.iteration_time_s, v.memory_bytes, v.fits ? 1.0 : 0.0};
  };
  if (why_not_exact(prepare(scenario).input()).empty()) return answer(EngineChoice::exact);
  ++seen.contended;
  return answer(EngineChoice::automatic);
}

void expect_bounds(const Problem& problem, const Axes& axes, const Candidate& candidate,
                   Seen& seen) {
  constexpr double kRounding = 1e-9;
  constexpr std::int64_t kMostOrderOps = 100'000;
  SCOPED_TRACE(candidate.family.describe() +
               fmt::format(", layers [{}], recompute {}", fmt::join(candidate.layers, ", "),
                           candidate.recompute.empty()
                               ? "by checkpoints"
                               : recompute_text(PerStage<Recomputation>(candidate.recompute))));
  Judgement bound_by_one;
  double time_s = 0, bytes = 0;
  bool fits = false, flushes = false;
  try {
    const Scenario scenario = problem.resolve(candidate);
    const double updates = static_cast<double>(problem.batch()) / scenario.samples_per_update();
    flushes = scenario.schedule->flushes();
    bound_by_one = relaxed(scenario, problem.plain_reduction());
    bound_by_one.iteration_time_s *= updates;
    const auto truth = answer_of(scenario, seen).value();
    time_s = truth[0] * updates;
    bytes = truth[1];
    fits = truth[2] == 1;
  } catch (const InputError&) {
    return;  // the schedule cannot run it
  }
  ++seen.answered;
  seen.too_large += fits ? 0 : 1;
  if (std::ranges::any_of(candidate.recompute, [](const auto& r) { return !r.plain(); }))
    seen.in_part += fits ? 1 : 0;
  const auto expect = [&](const char* what, const Bound& bound, bool of_time = true) {
    SCOPED_TRACE(what);
    EXPECT_TRUE(bound.fits || !fits);
    if (!bound.fits) return;
    if (of_time) {
      EXPECT_LE(bound.time_s, time_s * (1 + kRounding));
    }
    EXPECT_LE(bound.memory_bytes, bytes * (1 + kRounding) + 1);
  };
  Bounds bounds(problem, axes);
  expect("shape", bounds.bound_of(candidate.family.shape));
  // Of all that fits: what does not may well be faster.
  expect("family", bounds.bound_of(candidate.family), fits);
  expect("candidate", bounds.bound_of(candidate));
  if (fits) {
    const OrderBound by_order =
        bounds.of_order(candidate.family, std::numeric_limits<double>::infinity(), kMostOrderOps);
    EXPECT_LE(by_order.time_s, time_s * (1 + kRounding)) << "by order";
    seen.by_order += by_order.time_s > 0 ? 1 : 0;
    seen.searched += by_order.time_s > 0 && candidate.family.schedule->looks_at_costs ? 1 : 0;
    seen.higher += by_order.time_s > bounds.bound_of(candidate.family).time_s * 1.001 ? 1 : 0;
    for (Candidate good : by_order.good) {
      EXPECT_EQ(std::accumulate(good.layers.begin(), good.layers.end(), 0), problem.layers());
      EXPECT_GE(*std::ranges::min_element(good.layers), 1);
      if (!bounds.make_fit(good)) continue;
      const Scenario scenario = problem.resolve(good);
      const auto judged = answer_of(scenario, seen).value();
      const double updates = static_cast<double>(problem.batch()) / scenario.samples_per_update();
      if (judged[2] != 1) continue;
      EXPECT_LE(by_order.time_s, judged[0] * updates * (1 + kRounding))
          << "of " << fmt::format("[{}]", fmt::join(good.layers, ", "));
      ++seen.near;
    }
  }
  // Without a flush one replica's time is a bound of neither of the two that are subtracted.
  expect("one replica",
         {bound_by_one.iteration_time_s, bound_by_one.memory_bytes, bound_by_one.fits, -1},
         flushes);
  Candidate fitting = candidate;
  fitting.recompute = bounds.least_recompute(candidate);
  if (fits) {
    for (std::size_t s = 0; s < fitting.recompute.size(); ++s)
      EXPECT_LE(fitting.recompute[s], candidate.recompute[s]) << "stage " << s;
  }
  if (!bounds.make_fit(fitting)) return;
  EXPECT_TRUE(bounds.bound_of(fitting).fits);
  ++seen.made_fit;
}

TEST(Bounds, HoldForEveryPlanOnEveryKindOfCluster) {
  std::mt19937_64 random(20261122);
  Seen seen;
  const int kProblems = kSanitized ? 40 : kBrief ? 60 : 300;
  for (int i = 0; i < kProblems; ++i) {
    const std::string model = i % 5 == 4   ? random_profile_rows(random)
                              : i % 7 == 3 ? random_mixture(random)
                                           : random_model(random);
    const SmallProblem small = i % 3 == 0 ? random_problem(random, model)
                                          : with_batch(model + random_nodes(random), random);
    SCOPED_TRACE(small.text);
    const Problem problem(small.text, "small", small.batch);
    Axes axes = problem.axes(small.asynchronous);
    if (i % 2 == 0) axes.recomputes = {Recompute::none, Recompute::full};
    for (int tries = 0; tries < 12; ++tries)
      if (const auto candidate = random_candidate(problem, axes, random))
        expect_bounds(problem, axes, *candidate, seen);
    if (HasFailure()) return;
  }
  // Enough of each kind for the properties to mean something.
  EXPECT_GT(seen.answered, kProblems);
  EXPECT_GT(seen.contended, seen.answered / 10);
  EXPECT_GT(seen.too_large, seen.answered / 20);
  EXPECT_GT(seen.made_fit, seen.answered / 4);
  EXPECT_GT(seen.in_part, seen.answered / 40);
  EXPECT_GT(seen.by_order, seen.answered / 10);
  EXPECT_GT(seen.higher, seen.by_order / 10);
  EXPECT_GT(seen.near, seen.by_order / 4);
  EXPECT_GT(seen.searched, seen.by_order / 20);
}

}  // namespace
}  // namespace penstock::bound_test
