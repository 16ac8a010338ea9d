// SPDX-License-Identifier: Apache-2.0
// Plans of others as starts, and the layers that the search counts.
#include "plan/search/published.hpp"
#include "plan/search/search.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

namespace penstock::published_test {
namespace {

constexpr const char* kSmall =
    "stack: none\nmodel: {family: gpt, num_layers: 9, hidden_size: 256, num_attention_heads: 4, "
    "vocab_size: "
    "4000, seq_length: 128, precision: mixed-fp16}\n"
    "cluster: {devices: 6, device: {name: d, memory: 2 GiB, peak: {fp16: 10 TFLOP/s}, "
    "memory_bandwidth: 300 GB/s}, link: {latency: 10 us, bandwidth: 10 GB/s}}\n";

PlannedStage stage(int first, int last, std::vector<int> devices) {
  PlannedStage out;
  out.first_layer = first;
  out.last_layer = last;
  out.replicas = static_cast<int>(devices.size());
  out.devices = std::move(devices);
  return out;
}

Plan plan_of(const char* planner, const char* schedule, std::vector<PlannedStage> stages) {
  Plan plan;
  plan.planner = planner;
  plan.schedule = schedule;
  plan.stages = std::move(stages);
  return plan;
}

TEST(PublishedPlans, KeepTheirReplicasDevicesAndLayers) {
  const Choice choice =
      choice_of(plan_of("pipedream", "pipedream", {stage(0, 5, {0, 2, 4}), stage(6, 8, {5})}));
  EXPECT_EQ(choice.widths, (std::vector{3, 1}));
  EXPECT_EQ(choice.layers, (std::vector{6, 3}));
  EXPECT_EQ(choice.placed, (std::vector{0, 2, 4, 5}));
  EXPECT_EQ(choice.gpus(), 4);
  const Scenario scenario = Problem(kSmall, "small", 12).resolve(choice);
  EXPECT_EQ(scenario.schedule->name, "pipedream");
  EXPECT_EQ(scenario.widths(), (std::vector{3, 1}));
  EXPECT_EQ(scenario.layers, (std::vector{6, 3}));
}

TEST(PublishedPlans, OfPipedreamWithOneStageAreDataParallelism) {
  const Choice choice = choice_of(plan_of("pipedream", "pipedream", {stage(0, 8, {0, 1, 2})}));
  EXPECT_EQ(choice.family.schedule->name, "data-parallel");
  EXPECT_EQ(choice.family.shape.width, 3);
}

TEST(PublishedPlans, OfDappleDivideMicrobatchesWhereSamplesAllowIt) {
  Plan plan = plan_of("dapple", "dapple", {stage(0, 5, {0, 1}), stage(6, 8, {2, 3, 4})});
  plan.microbatches = 20;
  plan.microbatch_size = 6;
  EXPECT_TRUE(choice_of(plan).divided);
  EXPECT_EQ(choice_of(plan).family.shape.microbatches, 20);
  plan.microbatch_size = 4;  // not among 3: they take turns, six microbatches in a round
  EXPECT_FALSE(choice_of(plan).divided);
  EXPECT_EQ(choice_of(plan).family.shape.microbatches, 3);
  const Scenario scenario = Problem(kSmall, "small", 80).resolve(choice_of(plan));
  EXPECT_DOUBLE_EQ(scenario.samples_per_update(), 3 * 6 * 4);
}

/// Few values of each choice, so that what is begun with is often better.
Axes few(Axes axes) {
  axes.depths = {1};
  axes.widths = {1};
  axes.tensors = {1};
  axes.chunks = {1};
  axes.schedules = {find_schedule("gpipe")};
  return axes;
}

TEST(PublishedPlans, AreTakenWithTheBatchThatWasAskedOrNotAtAll) {
  Plan plan = plan_of("dapple", "dapple", {stage(0, 5, {0, 1}), stage(6, 8, {2, 3, 4})});
  plan.microbatches = 20;
  plan.microbatch_size = 4;  // six in a round: updates of 72 samples
  EXPECT_FALSE(with_batch_of(Problem(kSmall, "small", 80), choice_of(plan)));
  const auto more = with_batch_of(Problem(kSmall, "small", 96), choice_of(plan));
  ASSERT_TRUE(more);
  EXPECT_EQ(more->family.shape.microbatches, 4);
  plan = plan_of("pipedream", "pipedream", {stage(0, 5, {0, 1}), stage(6, 8, {2})});
  const Problem problem(kSmall, "small", 12);  // it updates once per microbatch
  const auto minibatch = with_batch_of(problem, choice_of(plan));
  ASSERT_TRUE(minibatch);
  EXPECT_EQ(minibatch->family.shape.microbatch_size, 6);
  EXPECT_DOUBLE_EQ(problem.resolve(*minibatch).samples_per_update(), 12);
}

TEST(Search, FindsPlansOfTheBatchThatWasAskedWhateverItBeganWith) {
  Plan plan = plan_of("dapple", "dapple", {stage(0, 5, {0, 1}), stage(6, 8, {2, 3, 4})});
  plan.microbatch_size = 1;
  plan.microbatches = 100;
  SearchOptions options;
  options.starts = {{"dapple", choice_of(plan)},
                    {"pipedream", choice_of(plan_of("pipedream", "pipedream",
                                                    {stage(0, 5, {0, 1}), stage(6, 8, {2})}))}};
  for (const std::int64_t batch : {100, 97, 12}) {
    const Problem problem(kSmall, "small", batch);
    const SearchResult result = search(problem, few(problem.axes(true)), options);
    ASSERT_FALSE(result.found.empty());
    for (const FoundPlan& found : result.found)
      EXPECT_DOUBLE_EQ(problem.resolve(found.choice).samples_per_update(),
                       static_cast<double>(batch))
          << found.from;
  }
}

TEST(Search, IsNeverWorseThanWhatItBeganWith) {
  std::mt19937_64 random(7);
  const Problem problem(kSmall, "small", 12);
  int begun = 0;
  for (int i = 0; i < 12; ++i) {
    const int cut = std::uniform_int_distribution(1, 8)(random);
    const int replicas = std::uniform_int_distribution(1, 4)(random);
    std::vector<int> devices(static_cast<std::size_t>(replicas));
    std::iota(devices.begin(), devices.end(), 0);
    Plan plan = plan_of("dapple", "dapple", {stage(0, cut - 1, devices), stage(cut, 8, {5})});
    plan.microbatches = 12 / replicas * replicas;
    SearchOptions options;
    options.starts = {{"dapple", choice_of(plan)}};
    const SearchResult result = search(problem, few(problem.axes(false)), options);
    ASSERT_EQ(result.starts.size(), 1U);
    ASSERT_FALSE(result.plans.empty());
    if (result.starts[0].throughput_samples_per_s == 0) continue;
    EXPECT_GE(result.plans[0].throughput_samples_per_s,
              result.starts[0].throughput_samples_per_s * (1 - 1e-9));
    if (result.plans[0].from != "dapple") continue;
    ++begun;
    EXPECT_GT(result.moves, 0U);
  }
  EXPECT_GT(begun, 0) << "no start was ever worth it";
}

TEST(Search, MovesLayersOfAStartUntilNoMoveHelps) {
  const Problem problem(kSmall, "small", 12);
  Plan plan = plan_of("dapple", "dapple", {stage(0, 0, {0, 1, 2}), stage(1, 8, {3, 4, 5})});
  plan.microbatch_size = 3;
  plan.microbatches = 4;
  const Axes axes = few(problem.axes(false));
  SearchOptions options;
  options.starts = {{"dapple", choice_of(plan)}};
  const SearchResult result = search(problem, axes, options);
  ASSERT_FALSE(result.plans.empty());
  ASSERT_EQ(result.plans[0].from, "dapple");
  double best = 0;
  for (int n = 1; n < 9; ++n) {
    Choice other = result.plans[0].choice;
    other.layers = {n, 9 - n};
    const Judgement judged = judge(problem.resolve(other), EngineChoice::exact);
    best = std::max(best, 12 / judged.iteration_time_s);
  }
  EXPECT_NEAR(result.plans[0].throughput_samples_per_s / best, 1, 1e-9);
}

TEST(Search, GivesUnlikeDevicesLayersByTheirSpeed) {
  std::string text = kSmall;
  text.replace(text.find("num_layers: 9"), 13, "num_layers: 24");
  text.replace(
      text.find("cluster:"), std::string::npos,
      "cluster: {inter: 10 GB/s, groups: [{nodes: 1, devices_per_node: 4, device: {name: fast, "
      "memory: 2 GiB, peak: {fp16: 40 TFLOP/s}, memory_bandwidth: 1200 GB/s}, intra: 10 GB/s}, "
      "{nodes: 1, devices_per_node: 4, device: {name: slow, memory: 2 GiB, peak: {fp16: 10 "
      "TFLOP/s}, memory_bandwidth: 300 GB/s}, intra: 10 GB/s}]}\n");
  const Problem problem(text, "small", 16);
  Axes axes = problem.axes(false);
  axes.schedules = {find_schedule("1f1b")};
  SearchOptions options;
  options.most_cuts = 50;  // so that bounds choose the cut, which know one kind of device
  options.top = 20;
  const SearchResult result = search(problem, axes, options);
  int uneven = 0;
  for (const FoundPlan& plan : result.plans) {
    Choice balanced = plan.choice;
    balanced.layers = problem.balanced(plan.choice);
    const Judgement judged = judge(problem.resolve(balanced), EngineChoice::exact);
    if (!judged.fits) continue;
    EXPECT_LE(16 / judged.iteration_time_s, plan.throughput_samples_per_s * (1 + 1e-6))
        << plan.choice.family.describe();
    uneven += plan.choice.family.shape.depth > 1 &&
              plan.choice.layers.front() > 2 * plan.choice.layers.back();
  }
  EXPECT_GT(uneven, 0);
}

Problem on_node(const char* attachment) {
  std::string text = kSmall;
  text.replace(text.find("devices: 6,"), 11, "nodes: 1, devices_per_node: 6,");
  text.replace(
      text.find("link: {latency: 10 us, bandwidth: 10 GB/s}"), 42,
      fmt::format("intra: {{latency: 10 us, bandwidth: 10 GB/s, attachment: {}}}, inter: 1 GB/s",
                  attachment));
  return Problem(text, "small", 12);
}

TEST(Search, GoesOnWhenOneConfirmationDiesOrIsRefused) {
  const Problem problem = on_node("switch");  // whose ports are shared: `confirm` is asked
  Axes axes = problem.axes(false);
  axes.schedules = {find_schedule("1f1b")};
  axes.depths = {2, 3};
  axes.widths = {2};
  SearchOptions options;
  std::vector<double> asked;  // what is as fast as the first one dies, as the second is refused
  options.confirm = [&](const Scenario& scenario) -> Judgement {
    Judgement judgement = relaxed(scenario, true);
    judgement.engine = "stub";
    auto known = std::ranges::find(asked, judgement.iteration_time_s);
    if (known == asked.end()) known = asked.insert(known, judgement.iteration_time_s);
    if (known == asked.begin()) throw SystemError("it died");
    if (known == asked.begin() + 1) throw InputError(scenario.origin, "refused");
    return judgement;
  };
  const SearchResult result = search(problem, axes, options);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_GE(result.unanswered, 1U);
  EXPECT_EQ(result.unanswered_because, "it died");
  EXPECT_GE(result.cuts.refused, 1U);
  EXPECT_GE(result.cuts.left, 1U) << "what died may be better";
  EXPECT_GT(result.gap.value(), 0);
  EXPECT_TRUE(result.cuts.adds_up());
}

TEST(Search, AsksNobodyWhereReplicasShareNoLink) {
  const Problem problem = on_node("pairs");
  Axes axes = problem.axes(false);
  axes.schedules = {find_schedule("1f1b")};
  axes.depths = {2, 3};
  axes.widths = {2};
  const SearchResult result = search(problem, axes, {});
  ASSERT_FALSE(result.plans.empty());
  EXPECT_EQ(result.plans[0].judgement.engine, "exact");
  EXPECT_NEAR(result.gap.value(), 0, 1e-8);
}

TEST(Search, SaysWhyNothingFits) {
  std::string text = kSmall;
  text.replace(text.find("2 GiB"), 5, "1 MiB");
  const Problem problem(text, "small", 12);
  const SearchResult result = search(problem, problem.axes(false), {});
  EXPECT_TRUE(result.plans.empty());
  EXPECT_EQ(result.infeasible_because, "no plan fits the devices' memory");
}

TEST(Search, SaysThatNoShapeMakesTheBatch) {
  const Problem problem(kSmall, "small", 12);
  Axes axes = problem.axes(false);
  axes.microbatch_sizes = {5};
  EXPECT_EQ(search(problem, axes, {}).infeasible_because,
            "no depth, width and microbatch size that may be chosen make 12 samples per update on "
            "at most 6 GPUs");
}

TEST(Search, LooksAtNoUpdateOfTooManyOps) {
  Problem problem(kSmall, "small", 1'000'000'000);
  problem.set_most_ops(100'000);
  for (const Shape& shape : shapes_of(problem, problem.axes(true)))
    EXPECT_LE(ops_of(shape, shape.depth), 100'000);
  Axes axes = problem.axes(false);
  axes.microbatch_sizes = {1, 2, 5};
  EXPECT_EQ(
      search(problem, axes, {}).infeasible_because,
      "only microbatches so small that an update has more than 100,000 ops (a smaller --batch "
      "or a larger --time-limit)");
}

TEST(Problem, KeepsContextOrSearchesItOfLongSequences) {
  const auto with = [](const char* length, const char* pipeline) {
    std::string text = kSmall;
    text.replace(text.find("seq_length: 128"), 15, fmt::format("seq_length: {}", length));
    text.replace(text.find("devices: 6"), 10, "devices: 8");
    return Problem(text + fmt::format("schedule: 1f1b\npipeline: {}\n", pipeline), "long", 12);
  };
  EXPECT_EQ(with("128", "{stages: 1}").axes(false).contexts, std::vector{1});
  EXPECT_EQ(with("65536", "{stages: 1}").axes(false).contexts, (std::vector{1, 2, 4, 8}));
  const Problem kept = with("128", "{stages: 1, context_parallel_size: 4}");
  EXPECT_EQ(kept.axes(false).contexts, std::vector{4});
  for (const Shape& shape : shapes_of(kept, kept.axes(false))) {
    EXPECT_EQ(shape.context, 4);
    EXPECT_LE(shape.gpus(), 8);
  }
}

/// On 32 GPUs; `pipeline`: more of its keys.
Problem of_a_mixture(const std::string& pipeline = "") {
  return Problem(
      "model: {family: llama, num_layers: 4, hidden_size: 1024, num_attention_heads: 16, "
      "ffn_hidden_size: 4096, vocab_size: 32000, seq_length: 1024, flash_attention: true, "
      "num_experts: 64, experts_per_token: 4, expert_ffn_hidden_size: 4096}\n"
      "cluster: {device: A100-80, devices_per_node: 8, nodes: 4, inter: 25 GB/s}\nschedule: 1f1b\n"
      "pipeline: {stages: 1, width: 32, expert: 4" +
          pipeline + "}\n",
      "experts", 32);
}

TEST(Search, MakesCheapModulesOfMixturesAgainOrThoseOfTheScenario) {
  const auto modules = [](const Problem& problem) {
    const std::vector<Recomputation> tried = problem.axes(false).recomputes;
    EXPECT_EQ(tried.size(), 3U);
    Choice choice{{{.depth = 2, .width = 16, .microbatches = 2}, find_schedule("1f1b")}, {2, 2}};
    choice.recompute = {tried[0], tried[1]};
    const Scenario s = problem.resolve(choice);
    EXPECT_EQ(s.recompute.at(0), Recomputation(Recompute::none));
    return to_string(s.recompute.at(1));
  };
  EXPECT_EQ(modules(of_a_mixture()), "selective layernorm+moe_act");
  EXPECT_EQ(modules(of_a_mixture(", recompute: selective, recompute_modules: [moe_act]")),
            "selective moe_act");
}

TEST(Search, DividesExpertsAmongTheGpusOfAPosition) {
  const Problem problem = of_a_mixture();
  std::set<int> degrees;
  for (const Shape& shape : shapes_of(problem, problem.axes(false))) {
    EXPECT_EQ(shape.position_gpus() % shape.expert, 0);
    if (shape.position_gpus() == 32) degrees.insert(shape.expert);
  }
  EXPECT_EQ(degrees, (std::set{8, 16, 32}));
}

TEST(Problem, RefusesWhatPlansCanNeitherChooseNorKeep) {
  const std::string job = std::string(kSmall) + "schedule: 1f1b\npipeline: {stages: 2, group: 2}\n";
  EXPECT_EQ(Problem(job, "job", 12).left_out(), std::vector<std::string>{"pipeline.group: 2"});
  EXPECT_THROW(Problem(job + "perturbations: {jitter: 5%}\n", "job", 12), InputError);
  EXPECT_NO_THROW(Problem(job + "perturbations: {}\n", "job", 12));
}

TEST(Problem, OverlapsReductionsOnlyWhereNothingSaysHow) {
  const PlanFamily family{{.depth = 2, .width = 2}, find_schedule("1f1b")};
  EXPECT_TRUE(Problem(kSmall, "small", 12).may_overlap(family));
  PlanFamily chunked = family;
  chunked.schedule = find_schedule("interleaved-1f1b");
  chunked.chunks = 2;
  EXPECT_TRUE(Problem(kSmall, "small", 12).may_overlap(chunked));
  const std::string said =
      std::string(kSmall) + "schedule: 1f1b\npipeline: {stages: 2, reduction: {overlap: none}}\n";
  EXPECT_FALSE(Problem(said, "said", 12).may_overlap(family));
}

TEST(Search, SaysThatNoScheduleRuns) {
  const Problem problem(kSmall, "small", 12);
  Axes axes = problem.axes(false);
  axes.schedules = {find_schedule("data-parallel")};
  axes.depths = {2};
  EXPECT_EQ(search(problem, axes, {}).infeasible_because,
            "no schedule that may be chosen runs with these stages, chunks, replicas and "
            "microbatches");
}

TEST(Problem, JoinsLayersOfLongProfilesAndLosesNone) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("penstock-long-profile-{}.csv", ::getpid());
  {
    std::ofstream file(path);
    file << "layer,forward,backward,activation,parameters\n";
    for (int i = 0; i < 150; ++i)
      file << fmt::format("l{},{} ms,{} ms,1 MB,{} KB\n", i, 1 + i % 7, 2 + i % 5, 1 + i);
  }
  const Problem problem(
      fmt::format("model: {{profile: {}}}\ncluster: {{devices: 4}}\n", path.string()), "long", 8);
  std::filesystem::remove(path);
  const int n = problem.layers();
  EXPECT_GT(n, 32);
  EXPECT_LE(n, 64);
  const std::vector<int> in_model = problem.in_model({1, n - 3, 2});
  EXPECT_EQ(std::accumulate(in_model.begin(), in_model.end(), 0), 150);
}

}  // namespace
}  // namespace penstock::published_test
