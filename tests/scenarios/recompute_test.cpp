// SPDX-License-Identifier: Apache-2.0
// Recomputation chosen by stage: each stage costs what it does where all are like it.
#include "base/error.hpp"
#include "scenarios/scenario.hpp"
#include "tests/scenarios/costs_text.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace penstock::recompute_test {
namespace {

/// A scenario but for its recomputation: `pipeline` is what else is in that section.
struct Base {
  std::string rest, pipeline;
};

Scenario with(const Base& base, const std::string& recompute, const std::string& origin) {
  return parse_scenario(
      base.rest + "pipeline: {" + base.pipeline + ", recompute: " + recompute + "}\n", origin);
}

Scenario with(const Base& base, const std::string& recompute) {
  return with(base, recompute, "test.yaml");
}

std::string error_of(const Base& base, const std::string& recompute) {
  try {
    with(base, recompute);
  } catch (const InputError& error) {
    const std::string text = error.what();  // the source line follows
    return text.substr(0, text.find("\n   "));
  }
  return "no error";
}

/// A stage costs what it costs where all stages have its value; `list` has several.
void expect_each_its_own(const Base& base, const std::vector<std::string>& list,
                         const std::string& origin = "test.yaml") {
  const Scenario mixed = with(base, fmt::format("[{}]", fmt::join(list, ", ")), origin);
  ASSERT_EQ(mixed.costs.size(), list.size());
  ASSERT_FALSE(mixed.recompute.alike());
  std::string first;
  for (std::size_t s = 0; s < list.size(); ++s) {
    const Scenario alike = with(base, list[s], origin);
    EXPECT_EQ(to_string(mixed.recompute.at(s)), list[s]);
    EXPECT_EQ(cost_text(mixed.costs[s]), cost_text(alike.costs[s])) << list[s] << " stage " << s;
    ASSERT_EQ(mixed.unlike.costs.size(), alike.unlike.costs.size());
    for (std::size_t kind = 0; kind < alike.unlike.costs.size(); ++kind)
      EXPECT_EQ(cost_text(mixed.unlike.costs[kind][s]), cost_text(alike.unlike.costs[kind][s]));
    // The test sees a difference: the same stage costs something else with another value.
    if (s == 0) first = cost_text(alike.costs[0]);
    if (list[s] == list[0]) continue;
    EXPECT_NE(cost_text(alike.costs[0]), first) << list[s];
  }
}

const std::string kGptAlone = "model: gpt-2.2b\ncluster: p3.16xlarge\n";
const std::string kGpt = "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\n";

TEST(RecomputeByStage, OfAShapeEachCostsWhatItDoesAlone) {
  expect_each_its_own({kGpt + "schedule: 1f1b\n", "stages: 4, microbatch_size: 2"},
                      {"full", "none", "selective", "full"});
}

TEST(RecomputeByStage, ListsVirtualStages) {
  expect_each_its_own(
      {kGpt + "schedule: interleaved-1f1b\n", "stages: 2, chunks: 2, microbatches: 4"},
      {"full", "full", "none", "selective"});
}

TEST(RecomputeByStage, OfAMirroredLayoutListsTheStagesOfOneDirection) {
  for (const char* schedule : {"chimera", "dualpipe"}) {
    expect_each_its_own({kGpt + "schedule: " + schedule + "\n", "stages: 4, microbatches: 8"},
                        {"full", "none", "none", "selective"});
  }
}

TEST(RecomputeByStage, OfSharedStagesCountsTheirTraffic) {
  expect_each_its_own({kGpt + "schedule: 1f1b\n", "stages: 2, tensor: 4, sequence_parallel: true"},
                      {"none", "full"});
}

TEST(RecomputeByStage, OfReplicasThatSplitMicrobatches) {
  expect_each_its_own({kGpt + "schedule: 1f1b\n",
                       "stages: 2, width: [2, 4], replication: split, microbatch_size: 4"},
                      {"full", "none"});
  expect_each_its_own({"model: {forward: 1 s, backward: 2 s, output: 8 MiB, activation: 64 MiB}\n"
                       "schedule: 1f1b\n",
                       "stages: 2, width: [2, 4], replication: split, microbatch_size: 4"},
                      {"full", "none"});
}

TEST(RecomputeByStage, OfReplicasOnDevicesUnlikeEachOther) {
  const Base base{
      "model: gpt-355m\nstack: none\n"
      "cluster: {inter: 10 GB/s, devices_per_node: 2, groups: [{device: V100-16}, "
      "{device: A100-80}]}\nschedule: 1f1b\n",
      "stages: 2, width: 2, microbatches: 4, placement: [0, 2, 1, 3]"};
  ASSERT_EQ(with(base, "[full, none]").unlike.costs.size(), 2U);
  expect_each_its_own(base, {"full", "none"});
}

TEST(RecomputeByStage, OfGivenCostsEachRepeatsItsOwnForward) {
  expect_each_its_own(
      {"model: {forward: [1 s, 2 s, 3 s], backward: 4 s, output: [1 MiB, 2 MiB, 3 MiB], "
       "activation: 1 GiB, workspace: 5 MiB}\nschedule: 1f1b\n",
       "stages: 3"},
      {"none", "full", "none"});
}

TEST(RecomputeByStage, OfMeasuredLayersEachUsesItsOwnRows) {
  const std::string part = "{forward: 1 ms, backward: 2 ms, activation: 10 MiB}";
  const std::string again = "{forward: 1.1 ms, backward: 3 ms, activation: 1 MiB}";
  const Base base{
      "stack: none\nmodel:\n  {name: tiny, num_layers: 6, hidden_size: 8, num_attention_heads: 2, "
      "vocab_size: 32, seq_length: 16,\n   measured: [{microbatch_size: 1, layer: " +
          part + "}, {microbatch_size: 1, recompute: full, load: 2, layer: " + again +
          "}],\n   measured_step: [{load: 1, per_parameter: 1 ns}, {load: 2, per_parameter: 2 "
          "ns}]}\nschedule: 1f1b\n",
      "stages: 3, microbatches: 1, split: [2, 2, 2]"};
  expect_each_its_own(base, {"full", "none", "full"});
  const Scenario mixed = with(base, "[full, none, full]");
  EXPECT_NEAR(mixed.costs[0][OpKind::backward].seconds, 6e-3, 1e-12);
  EXPECT_NEAR(mixed.costs[1][OpKind::backward].seconds, 4e-3, 1e-12);
  EXPECT_EQ(mixed.notes, (std::vector<std::string>{
                             "costs of the stages as measured on a device alone (recompute none)",
                             "costs of the stages as measured with 2 devices at work (recompute "
                             "full)"}));
  EXPECT_EQ(error_of(base, "[full, none, selective]"),
            "test.yaml:7:82: nothing was measured with recompute: selective, only with full, none")
      << "where the value stands";
}

TEST(RecomputeByStage, OfMeasuredLayersARefusalSaysOfWhichStages) {
  const std::string layer = "layer: {forward: 1 ms, backward: 2 ms}";
  const Base base{
      "stack: none\nmodel:\n  {num_layers: 6, hidden_size: 8, num_attention_heads: 2, vocab_size: "
      "32, seq_length: 16,\n   measured: [{microbatch_size: 1, " +
          layer + "}, {microbatch_size: 4, " + layer +
          "},\n   {microbatch_size: 1, recompute: full, " + layer + "}]}\nschedule: 1f1b\n",
      "stages: 2, split: even, microbatch_size: 2"};
  EXPECT_EQ(error_of(base, "[full, none]"),
            "test.yaml:7:53: microbatches of 2 were not measured, only of 1 with recompute: full");
}

TEST(RecomputeByStage, OfMeasuredLayersAListThatIsNotUsedIsStillAsked) {
  const std::string rest =
      "stack: none\nmodel: {num_layers: 6, hidden_size: 8, num_attention_heads: 2, vocab_size: 32, "
      "seq_length: "
      "16, measured: [{microbatch_size: 1, layer: {forward: 1 ms, backward: 2 ms}}]}\nschedule: ";
  const auto errors = [&](const std::string& schedule, const std::string& recompute) {
    try {
      with({rest + schedule + "\n", "stages: 2, microbatches: 2"}, recompute);
    } catch (const InputError& error) {
      return error.diagnostics().size();
    }
    return std::size_t{0};
  };
  EXPECT_EQ(errors("1f1b", "[none, none, none]"), 1U);
  EXPECT_EQ(errors("1f1b", "[full, full, full]"), 2U) << "its length, and what was not measured";
  EXPECT_EQ(errors("torchgpipe", "[none, none]"), 2U) << "the key, and what was not measured";
}

/// Layers of 1 + 1 ms, and of 1 + 3 ms.
class RecomputeOfAProfile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("penstock-recompute-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream file(folder_ / "graph.txt");
    for (int i = 1; i <= 12; ++i) {
      file << "node" << i
           << " -- Linear -- forward_compute_time=1, backward_compute_time=" << (i > 6 ? 3 : 1)
           << ", activation_size=100, parameter_size=40\n";
      if (i > 1) file << "\tnode" << i - 1 << " -- node" << i << "\n";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string origin() const { return (folder_ / "test.yaml").string(); }

  std::filesystem::path folder_;
};

TEST_F(RecomputeOfAProfile, EachCostsWhatItDoesAlone) {
  expect_each_its_own({"model: graph.txt\nschedule: 1f1b\n", "stages: 3, split: [5, 4, 3]"},
                      {"full", "none", "full"}, origin());
}

TEST_F(RecomputeOfAProfile, BalancedSplitCountsWhatEachStageRepeats) {
  const Base base{"model: graph.txt\nschedule: 1f1b\n", "stages: 2, split: balanced"};
  const auto slowest = [](const Scenario& s) {
    double most = 0;
    for (const StageCosts& c : s.costs)
      most = std::max(most, c[OpKind::forward].seconds + c[OpKind::backward].seconds);
    return most;
  };
  for (const char* recompute : {"[full, none]", "[none, full]", "full", "none"}) {
    double least = 1;
    for (int first = 1; first < 12; ++first) {
      const Base split{base.rest,
                       "stages: 2, split: [" + fmt::format("{}, {}", first, 12 - first) + "]"};
      least = std::min(least, slowest(with(split, recompute, origin())));
    }
    EXPECT_DOUBLE_EQ(slowest(with(base, recompute, origin())), least) << recompute;
  }
  EXPECT_NE(with(base, "[full, none]", origin()).layers,
            with(base, "[none, full]", origin()).layers);
}

// --- what a list means --------------------------------------------------------------------------

TEST(RecomputeByStage, AllAlikeMeansTheSingleValue) {
  const Base base{kGpt + "schedule: 1f1b\n", "stages: 4"};
  for (const std::string value : {"none", "selective", "full"}) {
    const Scenario list = with(base, fmt::format("[{0}, {0}, {0}, {0}]", value));
    const Scenario single = with(base, value);
    EXPECT_EQ(list.recompute, single.recompute);
    EXPECT_TRUE(list.recompute.alike());
    EXPECT_EQ(costs_text(list.costs), costs_text(single.costs)) << value;
    EXPECT_EQ(recompute_text(list.recompute), value);
  }
  EXPECT_EQ(recompute_text(with(base, "[full, none, selective, full]").recompute),
            "[full, none, selective, full]");
}

TEST(RecomputeByStage, CanBeSetAndReplaced) {
  const std::string text = kGpt + "schedule: 1f1b\npipeline: {stages: 2, recompute: full}\n";
  const auto set = [&](const std::string& value) {
    return recompute_text(parse_scenario(text, "t", {{"pipeline.recompute", value}}).recompute);
  };
  EXPECT_EQ(set("[full, none]"), "[full, none]");
  EXPECT_EQ(set("[none,none]"), "none");
  EXPECT_EQ(set("selective"), "selective");
}

TEST(RecomputeByStage, BalancedSplitGivesFewerLayersToStagesThatRecompute) {
  const Base base{
      "model: {base: gpt-2.2b, num_layers: 34}\nstack: none\ncluster: p3.16xlarge\nschedule: "
      "1f1b\n",
      "stages: 4, split: balanced"};
  const std::vector<int> none = with(base, "none").layers;
  const Scenario mixed = with(base, "[full, full, none, none]");
  EXPECT_LT(mixed.layers[0], none[0]);
  EXPECT_GT(mixed.layers[2], none[2]);
  // One layer more or less on any two stages is no faster.
  const auto slowest = [](const std::vector<StageCosts>& costs) {
    double most = 0;
    for (const StageCosts& c : costs)
      most = std::max(most, c[OpKind::forward].seconds + c[OpKind::backward].seconds);
    return most;
  };
  for (std::size_t from = 0; from < 4; ++from) {
    for (std::size_t to = 0; to < 4; ++to) {
      std::vector<int> other = mixed.layers;
      --other[from], ++other[to];
      const Base moved{base.rest, fmt::format("stages: 4, split: [{}]", fmt::join(other, ", "))};
      EXPECT_GE(slowest(with(moved, "[full, full, none, none]").costs),
                slowest(mixed.costs) * (1 - 1e-9))
          << from << " to " << to;
    }
  }
}

TEST(RecomputeByStage, TorchgpipesStoredMicrobatchesAreAsBefore) {
  const std::string rest = kGpt + "schedule: torchgpipe\n";
  const Scenario s = parse_scenario(rest + "pipeline: {stages: 4, microbatches: 4}\n", "t");
  const Base gpipe{kGpt + "schedule: gpipe\n", "stages: 4, microbatches: 4"};
  const Scenario full = with(gpipe, "full"), none = with(gpipe, "none");
  EXPECT_EQ(s.recompute, PerStage<Recomputation>(Recompute::full));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(s.costs[i].activation_bytes, full.costs[i].activation_bytes);
    ASSERT_TRUE(s.costs[i].stored);
    EXPECT_EQ(s.costs[i].stored->activation_bytes, none.costs[i].activation_bytes);
    EXPECT_LT((*s.costs[i].stored)[OpKind::backward].seconds, s.costs[i][OpKind::backward].seconds);
  }
}

// --- single layers ------------------------------------------------------------------------------

const Base kSetUps[] = {
    {kGpt + "schedule: 1f1b\n", "stages: 4, microbatch_size: 2"},
    {kGptAlone + "schedule: 1f1b\nstack: megatron-b200-node\n", "stages: 4"},
    {kGpt + "schedule: zb-h1\n", "stages: 4, microbatches: 8"},
    {kGpt + "schedule: interleaved-1f1b\n", "stages: 4, chunks: 2, microbatches: 4"},
    {kGptAlone + "schedule: 1f1b\nstack: megatron-b200-node\n",
     "stages: 2, tensor: 4, sequence_parallel: true"},
    {kGpt + "schedule: 1f1b\n", "stages: 2, tensor: 2, context: 2"},
};

TEST(RecomputeByLayer, ABlockOfNoneIsNoneAndOfAllIsFullBitForBit) {
  for (const Base& base : kSetUps) {
    const auto text = [&](const std::string& recompute) {
      return costs_text(with(base, recompute).costs);
    };
    const auto block = [&](int n) {
      return text(fmt::format("full, recompute_method: block, recompute_layers: {}", n));
    };
    EXPECT_EQ(block(0), text("none")) << base.pipeline;
    EXPECT_EQ(block(24), text("full")) << base.pipeline;
    EXPECT_EQ(block(1000), text("full")) << base.pipeline;
    EXPECT_NE(block(1), text("none")) << base.pipeline;
    EXPECT_NE(block(1), text("full")) << base.pipeline;
    EXPECT_EQ(text("full, recompute_method: uniform, recompute_layers: 1"), text("full"));
    EXPECT_EQ(text("full, recompute_method: uniform"), text("full"));
  }
}

TEST(RecomputeByLayer, EveryLayerMoreTakesLongerAndKeepsLess) {
  for (const Base& base : kSetUps) {
    const Scenario none = with(base, "none");
    std::vector<StageCosts> before = none.costs;
    for (int n = 1; n <= none.layers.front(); ++n) {
      const auto now =
          with(base, fmt::format("full, recompute_method: block, recompute_layers: {}", n)).costs;
      for (std::size_t s = 0; s < now.size(); ++s) {
        EXPECT_GT(now[s][OpKind::backward].seconds, before[s][OpKind::backward].seconds) << n;
        EXPECT_GT(now[s][OpKind::backward_input].seconds, before[s][OpKind::backward_input].seconds)
            << n;
        EXPECT_EQ(now[s][OpKind::backward_weight].seconds,
                  none.costs[s][OpKind::backward_weight].seconds)
            << n;
        EXPECT_EQ(now[s][OpKind::forward].seconds, none.costs[s][OpKind::forward].seconds) << n;
        EXPECT_LT(now[s].activation_bytes, before[s].activation_bytes) << n;
      }
      before = now;
    }
  }
}

TEST(RecomputeByLayer, ListsVirtualStagesEachOfWhichCostsWhatItDoesAlone) {
  const Base base{kGpt + "schedule: interleaved-1f1b\n", "stages: 2, chunks: 2, microbatches: 4"};
  const auto block = [&](const std::string& layers) {
    return with(base, "full, recompute_method: block, recompute_layers: " + layers);
  };
  const Scenario mixed = block("[2, 0, 99, 5]");
  EXPECT_EQ(recompute_text(mixed.recompute), "[block 2, none, block 99, block 5]");
  for (const auto& [stage, alone] : std::vector<std::pair<std::size_t, Scenario>>{
           {0, block("2")}, {1, with(base, "none")}, {2, with(base, "full")}, {3, block("5")}})
    EXPECT_EQ(cost_text(mixed.costs[stage]), cost_text(alone.costs[stage])) << stage;
  const Scenario some = with(base,
                             "[full, none, selective, full], recompute_method: block, "
                             "recompute_num_layers: 3");
  EXPECT_EQ(recompute_text(some.recompute), "[block 3, none, selective, block 3]");
  EXPECT_TRUE(block("[3, 3, 3, 3]").recompute.alike());
}

TEST(RecomputeByLayerErrors, SayWhatIsWrongAndWhere) {
  const Base gpt{kGpt + "schedule: 1f1b\n", "stages: 4"};
  EXPECT_EQ(error_of(gpt, "full, recompute_method: block"),
            "test.yaml:5:58: 'recompute_method: block' needs 'recompute_layers': how many of every "
            "stage");
  EXPECT_EQ(error_of(gpt, "full, recompute_layers: 3"),
            "test.yaml:5:58: 'recompute_layers' needs 'recompute_method': block (so many layers of "
            "every stage) or uniform (groups of so many)");
  EXPECT_EQ(error_of(gpt, "full, recompute_method: uniform, recompute_layers: 0"),
            "test.yaml:5:85: uniform recomputes in groups of at least 1 layer; recompute_method: "
            "block takes 0, too");
  EXPECT_EQ(error_of(gpt, "full, recompute_method: block, recompute_layers: [1, 2]"),
            "test.yaml:5:83: 'recompute_layers' lists 2 stages, the pipeline has 4");
  EXPECT_EQ(error_of(gpt, "full, recompute_method: blok, recompute_layers: 1"),
            "test.yaml:5:58: 'recompute_method' must be one of block, uniform, got 'blok'; did you "
            "mean 'block'?");
  EXPECT_EQ(error_of({kGpt + "schedule: torchgpipe\n", "stages: 2, microbatches: 4"},
                     "full, recompute_method: block, recompute_layers: 1")
                .substr(0, 65),
            "test.yaml:5:51: 'torchgpipe' recomputes as 'checkpoint' says: alw");
}

TEST(RecomputeByLayerErrors, NeedAModelByShape) {
  const std::string needs =
      "'recompute_layers' needs a model by shape: of this one only whole stages are known";
  const Base costs{"model: {forward: 1 s, backward: 2 s}\nschedule: 1f1b\n", "stages: 3"};
  EXPECT_EQ(error_of(costs, "full, recompute_method: block, recompute_layers: 1"),
            "test.yaml:3:83: " + needs);
  EXPECT_EQ(error_of(costs, "full, recompute_method: uniform, recompute_layers: 1"), "no error");
}

TEST(RecomputeByLayerErrors, WithoutFullThereIsANote) {
  const Scenario s = with({kGpt + "schedule: 1f1b\n", "stages: 4"},
                          "selective, recompute_method: block, recompute_layers: 1");
  EXPECT_NE(std::ranges::find(s.notes, "recompute_layers says nothing without recompute: full"),
            s.notes.end());
  EXPECT_EQ(recompute_text(s.recompute), "selective");
}

// --- parts of layers ----------------------------------------------------------------------------

TEST(RecomputeByModule, IsASetForAllStagesOrOneForEach) {
  const Base base{kGpt + "schedule: 1f1b\n", "stages: 2"};
  const auto text = [&](const std::string& modules) {
    return recompute_text(with(base, "selective, recompute_modules: " + modules).recompute);
  };
  EXPECT_EQ(text("core_attn"), "selective");
  EXPECT_EQ(text("[core_attn]"), "selective");
  EXPECT_EQ(text("[layernorm, mlp]"), "selective mlp+layernorm");
  EXPECT_EQ(text("[[mlp, moe_act], [core_attn]]"), "[selective mlp+moe_act, selective]");
  const Scenario some =
      with(base, "[none, selective], recompute_modules: [[mlp], [layernorm, core_attn]]");
  EXPECT_EQ(recompute_text(some.recompute), "[none, selective core_attn+layernorm]");
  for (const Recomputation& r : some.recompute.values())
    EXPECT_EQ(recomputation_named(to_string(r)), r);
}

TEST(RecomputeByModule, EachStageCostsWhatItsOwnSetDoes) {
  const Base base{kGpt + "schedule: 1f1b\n", "stages: 2"};
  const auto costs = [&](const std::string& modules) {
    return with(base, "selective, recompute_modules: " + modules).costs;
  };
  const auto each = costs("[[mlp], [layernorm]]");
  EXPECT_EQ(costs_text({each[0]}), costs_text({costs("mlp")[0]}));
  EXPECT_EQ(costs_text({each[1]}), costs_text({costs("layernorm")[1]}));
}

TEST(RecomputeByModule, MistakesSayWhatIsAllowed) {
  const Base base{kGpt + "schedule: 1f1b\n", "stages: 4"};
  const std::string must =
      "'recompute_modules' must be some of core_attn, mlp, layernorm, moe_act, moe, "
      "shared_experts, mla_up_proj, every_second_product, or a list with such a list per virtual "
      "stage";
  EXPECT_EQ(error_of(base, "selective, recompute_modules: [mpl]"),
            "test.yaml:5:65: " + must + ", got 'mpl'; did you mean 'mlp'?");
  EXPECT_EQ(error_of(base, "selective, recompute_modules: []"),
            "test.yaml:5:64: " + must + ": a list is empty");
  EXPECT_EQ(error_of(base, "selective, recompute_modules: [[mlp], [mlp]]"),
            "test.yaml:5:64: 'recompute_modules' lists 2 stages, the pipeline has 4");
  EXPECT_EQ(error_of(base, "selective, recompute_modules: [mlp, every_second_product]"),
            "test.yaml:5:64: 'every_second_product' goes with no other module");
  const Scenario full = with(base, "full, recompute_modules: mlp");
  EXPECT_NE(
      std::ranges::find(full.notes, "recompute_modules says nothing without recompute: selective"),
      full.notes.end());
}

// --- mistakes -----------------------------------------------------------------------------------

TEST(RecomputeByStageErrors, SayWhatIsWrongAndWhere) {
  const Base gpt{kGpt + "schedule: 1f1b\n", "stages: 4"};
  EXPECT_EQ(error_of(gpt, "[full, none, none]"),
            "test.yaml:5:34: 'recompute' lists 3 stages, the pipeline has 4");
  EXPECT_EQ(error_of(gpt, "[full]"),
            "test.yaml:5:34: 'recompute' lists 1 stages, the pipeline has 4");
  const std::string must =
      "'recompute' must be one of none, selective, full, or a list with one per virtual stage";
  EXPECT_EQ(error_of(gpt, "[full, ful, none, none]"),
            "test.yaml:5:41: " + must + ", got 'ful'; did you mean 'full'?");
  EXPECT_EQ(error_of(gpt, "[]"), "test.yaml:5:34: " + must + ": a list is empty");
  EXPECT_EQ(error_of(gpt, "[full, [none], full, full]"),
            "test.yaml:5:41: " + must + ", got a list");
  EXPECT_EQ(error_of(gpt, "{0: full}"), "test.yaml:5:34: " + must + ", got a map");
  EXPECT_EQ(error_of({kGpt + "schedule: chimera\n", "stages: 4, microbatches: 4"}, "[full, none]"),
            "test.yaml:5:51: 'recompute' lists 2 stages, the pipeline has 4");
  EXPECT_EQ(error_of({kGpt + "schedule: interleaved-1f1b\n", "stages: 2, microbatches: 4"},
                     "[full, none]"),
            "test.yaml:5:51: 'recompute' lists 2 stages, the pipeline has 4");
}

TEST(RecomputeByStageErrors, GivenCostsKnowNoSelective) {
  const Base base{"model: {forward: 1 s, backward: 2 s}\nschedule: 1f1b\n", "stages: 3"};
  EXPECT_EQ(error_of(base, "[full, selective, none]"),
            "test.yaml:3:41: 'selective' needs a model by shape");
}

TEST(RecomputeByStageErrors, TorchgpipeRefusesAListAsItRefusesAValue) {
  const Base base{kGpt + "schedule: torchgpipe\n", "stages: 2, microbatches: 4"};
  const std::string refused =
      "test.yaml:5:51: 'torchgpipe' recomputes as 'checkpoint' says: always, except_last (default) "
      "or never";
  EXPECT_EQ(error_of(base, "full"), refused);
  EXPECT_EQ(error_of(base, "[full, none]"), refused);
  EXPECT_EQ(error_of(base, "[full, none, none]"), refused);
}

TEST(RecomputeByStageErrors, AreReportedWithTheOthers) {
  try {
    with({kGpt + "schedule: 1f1b\n", "stages: 4, split: balancd"}, "[full, ful, none, non]");
    FAIL() << "no error";
  } catch (const InputError& error) {
    const std::string text = error.what();
    for (const char* word : {"balanced", "full", "none"})
      EXPECT_NE(text.find(fmt::format("did you mean '{}'?", word)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace penstock::recompute_test
