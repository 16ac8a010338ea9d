// SPDX-License-Identifier: Apache-2.0
// What costs and batches count: of a device, whatever its chunks; of an update, whatever its
// replicas.
#include "base/error.hpp"
#include "schedules/catalog.hpp"
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace penstock::work_test {
namespace {

Scenario scenario(const std::string& text) { return parse_scenario(text, "test.yaml"); }

std::string refused(const std::string& text) {
  try {
    scenario(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

double seconds(const Scenario& s, OpKind kind) {
  double all = 0;
  for (const StageCosts& c : s.costs) all += c[kind].seconds;
  return all;
}

template <class Field>
auto sum(const Scenario& s, Field field) {
  auto all = s.costs.front().*field;
  all = 0;
  for (const StageCosts& c : s.costs) all += c.*field;
  return all;
}

const std::string kModel =
    "model: {forward: 8 ms, backward: 16 ms, step: 4 ms, parameters: 1001 B, activation: 77 B, "
    "output: 5 B, workspace: 3 B}\n";

std::string chunked(const std::string& model) {
  return model + "schedule: interleaved-1f1b\npipeline: {stages: 2, chunks: 2, microbatches: 4}\n";
}

// --- costs --------------------------------------------------------------------------------------

TEST(Work, OneNumberIsTheSameWorkUnderEverySchedule) {
  std::size_t several = 0;
  for (const Schedule& schedule : schedules()) {
    const bool whole = schedule.whole_model;
    if (schedule.checkpoints) continue;  // recomputes, which is more work
    const Scenario s = scenario(
        kModel + "schedule: " + std::string(schedule.name) +
        (whole ? "\npipeline: {width: 4, microbatches: 8}\ncluster: {devices: 4}\n"
         : schedule.update == UpdateRule::stash ? "\npipeline: {stages: 4}\n"
                                                : "\npipeline: {stages: 4, microbatches: 8}\n"));
    const double devices = whole ? 1 : 4;
    // The B of TiMePReSt is of all microbatches.
    const double microbatches = schedule.whole_backward ? 8 : 1;
    EXPECT_NEAR(seconds(s, OpKind::forward), devices * 8e-3, 1e-12) << schedule.name;
    EXPECT_NEAR(seconds(s, OpKind::backward), devices * 16e-3 * microbatches, 1e-12)
        << schedule.name;
    EXPECT_NEAR(sum(s, &StageCosts::step_s), devices * 4e-3, 1e-12) << schedule.name;
    EXPECT_EQ(sum(s, &StageCosts::weight_bytes), devices * 1001) << schedule.name;
    EXPECT_EQ(sum(s, &StageCosts::activation_bytes), devices * 77) << schedule.name;
    if (static_cast<double>(s.costs.size()) > devices) ++several;
  }
  EXPECT_GE(several, 10U) << "schedules with several chunks";
}

TEST(Work, ChunksSendAsMuchAsDevices) {
  const Scenario s = scenario(chunked(kModel));
  ASSERT_EQ(s.costs.size(), 4U);
  for (const StageCosts& c : s.costs) {
    EXPECT_EQ(c.output_bytes, 5);
    EXPECT_EQ(c.forward_workspace_bytes, 3);
  }
}

TEST(Work, AListWithOnePerDeviceIsDividedAmongItsChunks) {
  const Scenario loop = scenario(chunked("model: {forward: [2 s, 4 s], backward: 6 s}\n"));
  const std::vector<double> expected{1, 2, 1, 2};
  for (std::size_t s = 0; s < 4; ++s)
    EXPECT_EQ(loop.costs[s][OpKind::forward].seconds, expected[s]) << s;
  const Scenario snake = scenario(
      "model: {forward: [2 s, 4 s], backward_input: 2 s, backward_weight: 2 s}\n"
      "schedule: v-half\npipeline: {stages: 2, microbatches: 4}\n");
  const std::vector<double> there_and_back{1, 2, 2, 1};
  for (std::size_t s = 0; s < 4; ++s)
    EXPECT_EQ(snake.costs[s][OpKind::forward].seconds, there_and_back[s]) << s;
}

TEST(Work, AListWithOnePerVirtualStageIsTakenAsItIs) {
  const Scenario s = scenario(
      chunked("model: {forward: [1 s, 2 s, 3 s, 4 s], backward: [2 s, 4 s], output: 1 B}\n"));
  const std::vector<double> forward{1, 2, 3, 4}, backward{1, 2, 1, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(s.costs[i][OpKind::forward].seconds, forward[i]) << i;
    EXPECT_EQ(s.costs[i][OpKind::backward].seconds, backward[i]) << i;
  }
}

TEST(Work, PerChunkOneNumberIsThatOfEachChunk) {
  const Scenario s = scenario(chunked("model: {forward: 1 s, backward: 2 s, per: chunk}\n"));
  for (const StageCosts& c : s.costs) EXPECT_EQ(c[OpKind::forward].seconds, 1);
  ASSERT_EQ(s.notes.size(), 1U);
  EXPECT_NE(s.notes[0].find("2 times the work"), std::string::npos) << s.notes[0];
}

TEST(Work, AListOfAnyOtherLengthIsRefused) {
  const std::string three = refused(chunked("model: {forward: [1 s, 2 s, 3 s], backward: 2 s}\n"));
  EXPECT_NE(three.find("'forward' lists 3 stages, the pipeline has 4; list 2 (one per device"),
            std::string::npos)
      << three;
  const std::string two =
      refused(chunked("model: {forward: [1 s, 2 s], backward: 2 s, per: chunk}\n"));
  EXPECT_NE(two.find("with per: chunk"), std::string::npos) << two;
}

TEST(Work, WithoutStagesAListHasOnePerDevice) {
  const std::string costs = "forward: [1 s, 1 s, 1 s, 1 s], backward: 2 s";
  const std::string rest = "schedule: interleaved-1f1b\npipeline: {microbatches: 4}\n";
  EXPECT_EQ(scenario("model: {" + costs + "}\n" + rest).shape.depth, 4U);
  EXPECT_EQ(scenario("model: {" + costs + ", per: chunk}\n" + rest).shape.depth, 2U);
}

// --- the batch ----------------------------------------------------------------------------------

const std::string kGpt = "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: 1f1b\n";

std::string pipeline(const std::string& keys) { return kGpt + "pipeline: {" + keys + "}\n"; }

TEST(Batch, MicrobatchesFollowFromTheSamplesOfAnUpdate) {
  for (const auto& [keys, microbatches] :
       {std::pair{"stages: 8", 64U},
        {"stages: 4, width: 2", 32U},
        {"stages: 4, width: 2, microbatch_size: 4", 8U},
        {"stages: 2, tensor: 4", 64U},
        {"stages: 4, width: 2, replication: split, microbatch_size: 8", 8U},
        {"stages: 2, width: [4, 2]", 16U}}) {
    const Scenario s = scenario(pipeline(std::string(keys) + ", global_batch_size: 64"));
    EXPECT_EQ(s.shape.microbatches_per_update, microbatches) << keys;
    EXPECT_EQ(s.samples_per_update(), 64) << keys;
  }
}

TEST(Batch, BothMayBeGivenWhereTheyAgree) {
  const std::string both = "stages: 4, width: 2, microbatch_size: 4, global_batch_size: 64, ";
  EXPECT_EQ(scenario(pipeline(both + "microbatches: 8")).shape.microbatches_per_update, 8U);
  const std::string why = refused(pipeline(both + "microbatches: 4"));
  EXPECT_NE(why.find("64 samples per update are 8 microbatches"), std::string::npos) << why;
  EXPECT_NE(why.find("'microbatches' says 4"), std::string::npos) << why;
}

TEST(Batch, OneThatDoesNotDivideNamesTheNearestThatDo) {
  const std::string why =
      refused(pipeline("stages: 4, width: 2, microbatch_size: 3, global_batch_size: 64"));
  EXPECT_NE(why.find("no multiple of 6"), std::string::npos) << why;
  EXPECT_NE(why.find("60 and 66; or microbatch_size: 2 or 4"), std::string::npos) << why;
  const std::string least = refused(pipeline("stages: 4, width: 2, global_batch_size: 1"));
  EXPECT_NE(least.find("the nearest that are: 2"), std::string::npos) << least;
}

TEST(Batch, ARefusedNumberOfMicrobatchesIsSaidOfTheBatch) {
  const std::string why = refused(
      "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: pipedream\n"
      "pipeline: {stages: 8, global_batch_size: 64}\n");
  EXPECT_NE(why.find("global_batch_size"), std::string::npos) << why;
  EXPECT_NE(why.find("64 samples per update are 64 microbatches"), std::string::npos) << why;
}

TEST(Batch, TheNearestAreLookedForNearbyHoweverLargeItIs) {
  const std::string why = refused(
      "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: pipedream\n"
      "pipeline: {stages: 8, global_batch_size: 1000000000}\n");
  EXPECT_NE(why.find("'global_batch_size' must be 1"), std::string::npos) << why;
}

TEST(Batch, OneThatDoesNotDivideIsNotTakenForOneMicrobatch) {
  const std::string why = refused(
      "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: interleaved-1f1b\n"
      "pipeline: {stages: 2, width: 4, chunks: 2, global_batch_size: 33}\n");
  EXPECT_NE(why.find("the nearest that are: 32 and 36"), std::string::npos) << why;
  EXPECT_EQ(why.find("'global_batch_size' must be"), std::string::npos) << why;
}

TEST(Batch, APipelineOfOneMicrobatchIsNoted) {
  const auto notes = [](const std::string& keys) { return scenario(pipeline(keys)).notes; };
  const auto one = [](const std::vector<std::string>& all) {
    return std::ranges::any_of(all, [](const std::string& note) {
      return note.find("one microbatch per weight update") != std::string::npos;
    });
  };
  EXPECT_TRUE(one(notes("stages: 8")));
  EXPECT_FALSE(one(notes("stages: 8, microbatches: 1")));
  EXPECT_FALSE(one(notes("stages: 8, global_batch_size: 8")));
  EXPECT_FALSE(one(notes("stages: 1")));
}

TEST(Messages, DividedOnesAreGatheredByTheirReceivers) {
  const std::string keys = "stages: 2, tensor: 4, microbatches: 4";
  const Scenario whole = scenario(pipeline(keys));
  const Scenario divided = scenario(pipeline(keys + ", transfers_divided: true"));
  ASSERT_EQ(divided.costs.size(), 2U);
  EXPECT_EQ(4 * divided.costs[0].output_bytes, whole.costs[0].output_bytes);
  const auto gathered = [](const Scenario& s, std::size_t stage, OpKind kind) {
    return s.costs[stage][kind].recipe.bytes(Axis::tensor, Collective::all_gather);
  };
  EXPECT_EQ(gathered(divided, 1, OpKind::forward), whole.costs[0].output_bytes);
  EXPECT_EQ(gathered(divided, 0, OpKind::backward_input), whole.costs[0].output_bytes);
  EXPECT_EQ(gathered(divided, 0, OpKind::forward), 0);
  EXPECT_EQ(gathered(whole, 1, OpKind::forward), 0);
  EXPECT_NE(refused(pipeline("stages: 8, transfers_divided: true")).find("needs a 'tensor'"),
            std::string::npos);
}

// --- layers -------------------------------------------------------------------------------------

double slowest_device(const Scenario& s) {
  const Placement placement = s.placement();
  std::vector<double> time(s.shape.depth, 0.0);
  for (std::size_t i = 0; i < s.costs.size(); ++i)
    time[placement.positions()[i]] +=
        s.costs[i][OpKind::forward].seconds + s.costs[i][OpKind::backward].seconds;
  return *std::ranges::max_element(time);
}

TEST(Balanced, TheSlowestDeviceIsAsFastAsAnyCutAllows) {
  // By brute force over all splits of 8 layers into 2 devices x 2 chunks, empty stages too.
  const std::string base =
      "stack: none\nmodel: {num_layers: 8, hidden_size: 1024, num_attention_heads: 16, vocab_size: "
      "50304, "
      "seq_length: 1024, precision: mixed-fp16}\ncluster: p3.16xlarge\nschedule: interleaved-1f1b\n"
      "pipeline: {stages: 2, chunks: 2, microbatches: 4, split: ";
  const Scenario balanced = scenario(base + "balanced}\n");
  double best = 1e9;
  for (int a = 0; a <= 8; ++a)
    for (int b = 0; a + b <= 8; ++b)
      for (int c = 0; a + b + c <= 8; ++c) {
        const std::vector<int> cut{a, b, c, 8 - a - b - c};
        const Scenario s =
            scenario(base + "[" + std::to_string(cut[0]) + ", " + std::to_string(cut[1]) + ", " +
                     std::to_string(cut[2]) + ", " + std::to_string(cut[3]) + "]}\n");
        best = std::min(best, slowest_device(s));
      }
  EXPECT_NEAR(slowest_device(balanced), best, 1e-9 * best);
  EXPECT_EQ(std::accumulate(balanced.layers.begin(), balanced.layers.end(), 0), 8);
}

TEST(Balanced, AStageWithTheHeadAloneIsOne) {
  const Scenario s = scenario(
      "stack: none\nmodel: {num_layers: 4, hidden_size: 512, num_attention_heads: 8, vocab_size: "
      "256000, "
      "seq_length: 512, precision: mixed-fp16}\ncluster: p3.16xlarge\nschedule: 1f1b\n"
      "pipeline: {stages: 4, microbatches: 4, split: balanced}\n");
  EXPECT_EQ(s.layers.back(), 0);
  EXPECT_GT(s.costs.back()[OpKind::forward].seconds, 0);
}

}  // namespace
}  // namespace penstock::work_test
