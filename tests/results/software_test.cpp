// SPDX-License-Identifier: Apache-2.0
// What the software of a job changes: whether it fits, what hides the gradient reduction, what MFU
// counts.
#include "results/advice.hpp"
#include "tests/shared.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::software_test {
namespace {

Simulation simulated(const std::string& text) {
  return simulate(parse_scenario(text, "test.yaml"), EngineChoice::automatic);
}

Result helped(const std::string& text) {
  const Simulation s = simulated(text);
  Result r = summarize(s);
  add_help(s, r);
  return r;
}

bool notes(const Result& r, const std::string& part) {
  return std::ranges::any_of(
      r.notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

/// Llama-3-8B on 16 H100.
std::string llama(const std::string& more, const std::string& stages) {
  return fmt::format(
      "model: llama-3-8b\ncluster: {{base: dgx-h100, nodes: 2}}\n{}pipeline: {{{}, "
      "distributed_optimizer: true, microbatch_size: 1, global_batch_size: 128}}\n",
      more, stages);
}

TEST(Software, DecidesWhetherItFitsAndSaysSo) {
  const std::string job = "schedule: 1f1b\n", four = "stages: 4, width: 4";
  EXPECT_TRUE(notes(helped(llama(job, four)), "whether it fits depends on the software"));
  // All agree where there is room for all, and nobody asks of a neutral one.
  EXPECT_FALSE(notes(helped(llama(job, four + ", recompute: full")), "depends on the software"));
  EXPECT_FALSE(notes(helped(llama("stack: none\n" + job, four)), "depends on the software"));
}

/// Of the fullest device of a public case.
MemoryUse peak_of(const std::string& file, const std::vector<Override>& changes) {
  const std::string path = (shared_folder() / "cases" / file).string();
  const Result r = outline(simulate(load_scenario(path, changes), EngineChoice::automatic));
  return std::ranges::max_element(r.devices, {},
                                  [](const DeviceResult& d) { return d.memory.use.total(); })
      ->memory.use;
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(Software, WithFlashAttentionSelectiveRecomputationFreesNothing) {
  SKIP_WITHOUT_SHARED(shared_folder() / "cases" / "prec.yaml");
  for (const std::string stack : {"megatron", "torchtitan", "nanotron", "deepspeed"})
    for (const char* file : {"prec.yaml", "attack/selective-stack.yaml"}) {
      const Override software{"stack", stack};
      const auto none = peak_of(file, {software}).total();
      EXPECT_EQ(peak_of(file, {software, {"recompute", "selective"}}).total(), none) << stack;
      EXPECT_LT(peak_of(file, {software, {"recompute", "full"}}).total(), none) << stack;
      EXPECT_GT(peak_of(file, {software, {"flash_attention", "false"}}).total(), none) << stack;
    }
}

TEST(Software, SinglePrecisionTakesFourBytesANumber) {
  SKIP_WITHOUT_SHARED(shared_folder() / "cases" / "prec.yaml");
  for (const std::string stack : {"megatron", "torchtitan", "nanotron", "deepspeed"}) {
    const auto of = [](const MemoryUse& use, Owner owner) {
      return static_cast<double>(use.bytes[static_cast<std::size_t>(owner)]) / kGiB;
    };
    const Override software{"stack", stack};
    const MemoryUse single = peak_of("prec.yaml", {software, {"model.precision", "fp32"}});
    EXPECT_NEAR(of(single, Owner::weights), 5.21, 0.005) << stack;
    EXPECT_NEAR(of(single, Owner::gradients), 5.21, 0.005) << stack;
    EXPECT_NEAR(of(single, Owner::optimizer), 10.41, 0.006) << stack;
    EXPECT_NEAR(of(single, Owner::activations),
                2 * of(peak_of("prec.yaml", {software}), Owner::activations), 0.01)
        << stack;
  }
}

TEST(Software, AttentionWithAWindowTakesLessTimeByEveryStack) {
  for (const char* stack : {"none", "megatron", "nemo", "nanotron", "torchtitan"}) {
    const auto time = [&](const std::string& window) {
      return *iteration_time_s(simulate(
          parse_scenario("model: {base: llama-3.1-8b, seq_length: 32768" + window +
                             "}\ncluster: {base: dgx-h100, nodes: 1}\nstack: " + stack +
                             "\nschedule: 1f1b\npipeline: {stages: 1, tensor: 2, width: 4, "
                             "microbatches: 2}\n",
                         "test.yaml"),
          EngineChoice::automatic));
    };
    const double whole = time("");
    EXPECT_EQ(time(", sliding_window: 32768"), whole) << stack;
    // 8192 of 32768: 7 of 16 pairs.
    const double some = time(", sliding_window: 8192"), few = time(", sliding_window: 1024");
    EXPECT_LT(some, 0.95 * whole) << stack;
    EXPECT_LT(few, 0.9 * some) << stack;
    // Every second layer alone has a window; how much of the reduction is hidden follows otherwise.
    EXPECT_NEAR(time(", sliding_window: 1024, full_attention_every: 2"), (whole + few) / 2,
                2e-4 * whole)
        << stack;
  }
}

TEST(Software, HidesTheReductionAlikeInEverySchedule) {
  const auto time = [](const std::string& schedule, const std::string& stages) {
    return *iteration_time_s(simulated(llama("schedule: " + schedule + "\n", stages)));
  };
  const double replicas = time("data-parallel", "width: 16, recompute: full");
  EXPECT_NEAR(time("1f1b", "stages: 1, width: 16, recompute: full"), replicas, 1e-9 * replicas);
  EXPECT_NEAR(time("gpipe", "stages: 1, width: 16, recompute: full"), replicas, 1e-9 * replicas);
}

TEST(Software, WouldHideTheReductionIsAmongWhatWouldHelp) {
  // Slow links: the reduction is much of an update.
  const std::string job =
      "model: gpt-355m\nstack: none\ncluster: {base: dgx-a100, nodes: 4, inter: 25 Gbps}\n"
      "schedule: 1f1b\npipeline: {stages: 1, width: 32, microbatch_size: 4, microbatches: 4, "
      "distributed_optimizer: true}\n";
  const Result r = helped(job);
  EXPECT_TRUE(std::ranges::any_of(r.what_to_change, [](const Advice& a) {
    return a.change == "reduction.overlap: backward" && a.time_ratio < 1;
  }));
}

/// A stack that hides the reduction does so bucket by bucket on devices of several stages, too.
TEST(Software, HidesTheReductionOfEveryStage) {
  for (const char* schedule : {"1f1b", "interleaved-1f1b", "zb-v", "dualpipe", "chimera"}) {
    const auto iteration = [&](const std::string& more) {
      const std::string job =
          "model: {base: llama-3-8b, num_layers: 32}\ncluster: {base: dgx-h100, "
          "nodes: 2, inter: 200 Gbps}\nstack: megatron\nschedule: " +
          std::string(schedule) +
          "\npipeline: {stages: 4, width: 4, microbatches: 8, rank_order: pipeline-first" + more +
          "}\n";
      return *iteration_time_s(simulated(job));
    };
    EXPECT_LT(iteration(""), 0.99 * iteration(", reduction: {overlap: none}")) << schedule;
  }
}

TEST(Software, MfuCountsAttentionInFullAndByHalf) {
  const Simulation s = simulated(llama("schedule: 1f1b\nstack: none\n", "stages: 4, width: 4"));
  const TransformerSpec& model = *s.scenario.transformer;
  const Rates r = rates(s);
  const double attention = model.num_layers * model.layer_attention_flops(1);
  const double all = model.num_layers * model.layer_forward_flops(1) + model.head_forward_flops(1);
  EXPECT_NEAR(*r.mfu_causal / *r.mfu, 1 - attention / 2 / all, 1e-9);
}

TEST(Software, CausalFlashAttentionTakesHalfAlsoWithoutAStack) {
  const auto busy = [](const char* flash) {
    const Simulation s = simulated(fmt::format(
        "model: {{base: llama-3-8b, seq_length: 131072, flash_attention: {}}}\nstack: none\n"
        "cluster: {{base: dgx-h100, nodes: 2}}\nschedule: 1f1b\npipeline: {{stages: 4, "
        "width: 4}}\n",
        flash));
    return s.scenario.costs[1][OpKind::forward].seconds;
  };
  const TransformerSpec model = load_model("llama-3-8b");
  const double ratio = 131072.0 / 8192, matrices = model.layer_weight_flops(ratio);
  const double attention = model.layer_attention_flops(ratio * ratio);
  EXPECT_NEAR(busy("true") / busy("false"), (matrices + attention / 2) / (matrices + attention),
              1e-9);
}

}  // namespace
}  // namespace penstock::software_test
