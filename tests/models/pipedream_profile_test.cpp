// SPDX-License-Identifier: Apache-2.0
// Profiles of PipeDream's: what is read, in which order, what a cut sends, splits against all
// splits, every kind of mistake; and the public profiles, where they are at hand.
#include "models/pipedream_profile.hpp"

#include "base/error.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace penstock::pipedream_profile_test {
namespace {

std::string node(const std::string& id, const std::string& what, const std::string& forward,
                 const std::string& backward, const std::string& activation,
                 const std::string& parameters) {
  return id + " -- " + what + " -- forward_compute_time=" + forward +
         ", backward_compute_time=" + backward + ", activation_size=" + activation +
         ", parameter_size=" + parameters + "\n";
}

/// A chain of three layers whose first output is read again at the end, in no order of lines.
std::string skipping() {
  return "\tnode10 -- node3\n" + node("node10", "Add", "1", "2", "300", "0") +
         node("node2", "Conv2d(3, 64, kernel_size=(3, 3))", "1000", "2000.5", "100", "40") +
         node("node1", "Input", "600", "0", "64", "0") +
         node("node4", "LSTM(4, 4)", "3", "4", "[20; 7.0; 3]", "80") +
         node("node3", "Linear(4, 4)", "5", "6", "50", "8") +
         "\tnode1 -- node2\n\tnode2 -- node10\n\tnode2 -- node4\n node4 -- node10\n\n";
}

PipedreamProfile read(const std::string& text) {
  return parse_pipedream_profile(text, "graph.txt");
}

std::vector<std::string> ids(const PipedreamProfile& profile) {
  std::vector<std::string> found;
  for (const ProfiledLayer& layer : profile.layers) found.push_back(layer.id);
  return found;
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<StageCosts> costs(const std::string& text, const std::vector<int>& layers,
                              PipedreamUse use = {1, false, {4, 4, 8, 4, 4}}) {
  return profiled_stage_costs(read(text), layers, use);
}

TEST(PipedreamProfile, OrderIsThatOfTheIdsWhereEdgesAllowIt) {
  EXPECT_EQ(ids(read(skipping())), (std::vector<std::string>{"node2", "node4", "node10", "node3"}));
}

TEST(PipedreamProfile, TimesAreMillisecondsAndInputIsNoLayer) {
  const PipedreamProfile p = read(skipping());
  EXPECT_EQ(p.input_bytes, 64);
  EXPECT_DOUBLE_EQ(p.layers[0].forward_s, 1);
  EXPECT_DOUBLE_EQ(p.layers[0].backward_s, 2.0005);
  EXPECT_EQ(p.layers[1].activation_bytes, 30);
  EXPECT_EQ(p.layers[0].description, "Conv2d(3, 64, kernel_size=(3, 3))");
  EXPECT_EQ(p.layers[0].last_reader, 2);
  EXPECT_EQ(p.layers[3].last_reader, -1);
}

TEST(PipedreamProfile, UnreadItemsAreLeftOutAndReadOnesAreNot) {
  const std::string items = node("a", "LSTM(1, 1)", "1", "1", "[8; 4]", "0") +
                            node("b", "__getitem__(0)", "0", "0", "8", "0") +
                            node("c", "__getitem__(1)", "0", "0", "4", "0") +
                            node("d", "Linear(1, 1)", "1", "1", "2", "0") +
                            "\ta -- b\n\ta -- c\n\tb -- d\n";
  const PipedreamProfile p = read(items);
  EXPECT_EQ(ids(p), (std::vector<std::string>{"a", "b", "d"}));
  EXPECT_TRUE(p.layers[1].view);
}

TEST(PipedreamProfile, AStageCostsTheSumOfItsLayers) {
  const auto c = costs(skipping(), {2, 2});
  EXPECT_DOUBLE_EQ(c[0][OpKind::forward].seconds, 1.003);
  EXPECT_DOUBLE_EQ(c[0][OpKind::backward].seconds, 2.0045);
  EXPECT_DOUBLE_EQ(c[0][OpKind::backward_input].seconds, 2.0045 / 2);
  EXPECT_DOUBLE_EQ(c[1][OpKind::forward].seconds, 0.006);
  EXPECT_EQ(c[0].weight_bytes, 120);
  EXPECT_EQ(c[0].reduced_bytes, 120);
  EXPECT_EQ(c[1].optimizer_bytes, 16);
  EXPECT_EQ(c[0].activation_bytes, 64 + 100 + 30);
  EXPECT_EQ(c[1].activation_bytes, 130 + 300 + 50);
}

TEST(PipedreamProfile, ACutSendsEveryTensorThatIsReadBehindItOnce) {
  const auto c = costs(skipping(), {1, 1, 1, 1});
  EXPECT_EQ(c[0].output_bytes, 100);       // read by two later stages
  EXPECT_EQ(c[1].output_bytes, 100 + 30);  // one passes through
  EXPECT_EQ(c[2].output_bytes, 300);
  EXPECT_EQ(c[3].output_bytes, 0);
}

TEST(PipedreamProfile, TimesAndActivationsGoWithTheBatchAndParametersDoNot) {
  const auto c = costs(skipping(), {4}, {0.5, false, {4, 4, 8, 4, 4}});
  EXPECT_DOUBLE_EQ(c[0][OpKind::forward].seconds, 1.009 / 2);
  EXPECT_EQ(c[0].weight_bytes, 128);
  EXPECT_EQ(c[0].activation_bytes, (64 + 480) / 2);
}

TEST(PipedreamProfile, RecomputationRepeatsTheForwardAndKeepsTheInput) {
  const auto c = costs(skipping(), {2, 2}, {1, true, {}});
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward].seconds, 0.008 + 0.006);
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward_input].seconds, 0.004 + 0.006);
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward_weight].seconds, 0.004);
  EXPECT_EQ(c[1].activation_bytes, 130);
  EXPECT_EQ(c[1].backward_workspace_bytes, 350);
}

TEST(PipedreamProfile, OutputsInPlaceTakeNoMemory) {
  const auto c = costs(node("a", "Conv2d(1)", "1", "1", "8", "0") +
                           node("b", "ReLU(inplace)", "1", "1", "8", "0") + "\ta -- b\n",
                       {2});
  EXPECT_EQ(c[0].activation_bytes, 8);
}

TEST(PipedreamProfile, GradientsAreThoseOfTheStagesLayers) {
  const auto g = profiled_stage_gradients(read(skipping()), {1, 3});
  ASSERT_EQ(g.size(), 2U);
  ASSERT_EQ(g[1].size(), 3U);
  EXPECT_EQ(g[0][0].gradient_bytes, 40);
  EXPECT_EQ(g[1][0].gradient_bytes, 80);
  EXPECT_DOUBLE_EQ(g[1][1].backward_s, 0.002);
}

// --- balanced splits against all splits ---------------------------------------------------------

void all_splits(int layers, std::size_t stages, std::vector<int>& begun,
                const std::function<void(const std::vector<int>&)>& visit) {
  if (stages == 1) {
    begun.push_back(layers);
    visit(begun);
    begun.pop_back();
    return;
  }
  for (int n = 1; n + static_cast<int>(stages) - 1 <= layers; ++n) {
    begun.push_back(n);
    all_splits(layers - n, stages - 1, begun, visit);
    begun.pop_back();
  }
}

struct SplitCost {
  double slowest_s = 0, bytes = 0;
};

SplitCost cost_of(const PipedreamProfile& profile, const std::vector<int>& layers,
                  const std::vector<int>& widths, const PerStage<bool>& recompute) {
  const auto c = profiled_stage_costs(profile, layers, {1, recompute, {}});
  SplitCost cost;
  for (std::size_t s = 0; s < c.size(); ++s) {
    cost.slowest_s =
        std::max(cost.slowest_s,
                 (c[s][OpKind::forward].seconds + c[s][OpKind::backward].seconds) / widths[s]);
    cost.bytes += static_cast<double>(c[s].output_bytes);
  }
  return cost;
}

PipedreamProfile random_profile(std::mt19937& random) {
  PipedreamProfile p;
  const int layers = 4 + static_cast<int>(random() % 5);
  for (int i = 0; i < layers; ++i) {
    ProfiledLayer layer;
    layer.forward_s = static_cast<double>(random() % 4);  // ties and layers of no time, on purpose
    layer.backward_s = static_cast<double>(random() % 4);
    layer.activation_bytes = static_cast<double>(random() % 8);
    const int further = std::min<int>(layers - 1 - i, 1 + static_cast<int>(random() % 3));
    layer.last_reader = further == 0 ? -1 : i + further;
    p.layers.push_back(layer);
  }
  return p;
}

TEST(PipedreamProfileSplit, IsTheFastestAndAmongThoseTheOneThatSendsLeast) {
  std::mt19937 random(7);
  for (int run = 0; run < 400; ++run) {
    const PipedreamProfile p = random_profile(random);
    std::vector<int> widths(1 + random() % 4);
    for (int& w : widths) w = 1 + static_cast<int>(random() % 3);
    std::vector<bool> again(widths.size());
    for (std::size_t s = 0; s < again.size(); ++s) again[s] = run % 2 == 1 && random() % 2 == 1;
    const PerStage<bool> recompute(again);
    SplitCost best{1e9, 1e9};
    std::vector<int> begun;
    all_splits(static_cast<int>(p.layers.size()), widths.size(), begun,
               [&](const std::vector<int>& layers) {
                 const SplitCost c = cost_of(p, layers, widths, recompute);
                 const bool faster = c.slowest_s < best.slowest_s - 1e-9;
                 const bool as_fast = c.slowest_s < best.slowest_s + 1e-9;
                 if (faster || (as_fast && c.bytes < best.bytes)) best = c;
               });
    const auto split = profiled_balanced_split(p, widths, recompute);
    ASSERT_TRUE(std::ranges::all_of(split, [](int n) { return n >= 1; })) << run;
    const SplitCost found = cost_of(p, split, widths, recompute);
    EXPECT_NEAR(found.slowest_s, best.slowest_s, 1e-9) << run;
    EXPECT_EQ(found.bytes, best.bytes) << run;
  }
}

TEST(PipedreamProfile, ADeviceWithALongHeadMayHaveNoOtherLayers) {
  std::string text;
  for (int i = 0; i < 5; ++i) {
    const std::string id = std::to_string(i);
    text += node("node" + id, "Linear", "1", "2", "8", "4");
    if (i > 0) text += "\tnode" + std::to_string(i - 1) + " -- node" + id + "\n";
  }
  text += node("head", "Linear", "5", "10", "8", "4") + "\tnode4 -- head\n";
  PipedreamProfile p = read(text);
  p.input_bytes = 16;
  const auto split = profiled_balanced_split(p, {1, 1, 1, 1}, false, {0, 1, 1, 0});
  EXPECT_EQ(split.front(), 0);
  EXPECT_EQ(split.back(), 1);
  const auto costs = profiled_stage_costs(p, split, {});
  EXPECT_EQ(costs[0].output_bytes, 16) << "it passes on what it gets";
  EXPECT_EQ(costs[1].activation_bytes, 16 + 8 * split[1]);
}

// --- mistakes -----------------------------------------------------------------------------------

struct Mistake {
  std::string text, error;
};

TEST(PipedreamProfileErrors, NamePlaceAndRemedy) {
  const std::string good = node("node1", "Conv2d(1)", "1", "2", "8", "4");
  const Mistake mistakes[] = {
      {"", "graph.txt: holds no layer"},
      {node("node1", "Input", "1", "0", "4", "0"), "graph.txt: holds no layer"},
      {"hello\n", "graph.txt:1:1: a layer is 'ID -- DESCRIPTION -- forward_compute_time="},
      {good + "node1 -- node2\n", "graph.txt:2:1: a layer is"},
      {"node1 -- node2\n", "an edge begins with a tab"},
      {good + "\tnode1\n", "graph.txt:2:2: an edge is '<tab>ID -- ID'"},
      {good + "\tnode1 -- node7\n", "graph.txt:2:11: no layer has the id 'node7'"},
      {good + "\tnode1 -- nod1\n", "did you mean 'node1'?"},
      {good + "\tnode1 -- node1\n", "graph.txt:2:2: a layer cannot read its own output"},
      {good + good, "graph.txt:2:1: 'node1' is already given in line 1"},
      {node("", "Conv2d(1)", "1", "2", "8", "4"), "graph.txt:1:2: an edge is"},
      {node("node 1", "Conv2d(1)", "1", "2", "8", "4"), "graph.txt:1:1: an id has no blanks"},
      {node("a", "b", "-1", "2", "8", "4"), "graph.txt:1:32: expected a number from 0 to 1e+09"},
      {node("a", "b", "nan", "2", "8", "4"), "got 'nan'"},
      {node("a", "b", "inf", "2", "8", "4"), "got 'inf'"},
      {node("a", "b", "1ms", "2", "8", "4"), "got '1ms'"},
      {node("a", "b", "1e300", "2", "8", "4"), "expected a number from 0 to 1e+09"},
      {node("a", "b", "1", "2", "1e16", "4"), "expected a number from 0 to 1e+15"},
      {node("a", "b", "1", "2", "[8; x]", "4"), "or a list '[1; 2]', got 'x'"},
      {node("a", "b", "[1; 2]", "2", "8", "4"), "expected a number from 0 to 1e+09, got '[1; 2]'"},
      {"a -- b -- forward_compute_time=1, backward_compute_time=1, activation_size=1\n",
       "graph.txt:1:11: 'parameter_size' is missing"},
      {"a -- b -- forward_compute_tim=1\n", "did you mean 'forward_compute_time'?"},
      {"a -- b -- forward_compute_time\n", "each '=' a number"},
      {"a -- b -- forward_compute_time=1, forward_compute_time=1\n",
       "'forward_compute_time' is given twice"},
      {good.substr(0, good.size() - 1) + " -- stage=1\n", "expected 'stage_id=N', got 'stage=1'"},
      {good.substr(0, good.size() - 1) + " -- stage_id=-1\n", "expected 'stage_id=N'"},
      {good + node("b", "Add", "1", "1", "1", "0") + "\tb -- node1\n\tnode1 -- b\n",
       "closes a circle of layers that read each other"},
      {"a -- \x1b[31m -- x\n", "graph.txt:1:6: byte 0x1b is no plain text"},
  };
  for (const Mistake& m : mistakes) {
    const std::string error = error_of(m.text);
    EXPECT_NE(error.find(m.error), std::string::npos) << m.text << "\n" << error;
  }
}

TEST(PipedreamProfileErrors, AllAreReportedAtOnce) {
  const std::string error = error_of("x\n" + node("a", "b", "x", "y", "z", "4"));
  for (const char* part : {"graph.txt:1:1", "got 'x'", "got 'y'", "got 'z'"})
    EXPECT_NE(error.find(part), std::string::npos) << part << "\n" << error;
}

TEST(PipedreamProfileErrors, ACircleIsNamedByAnEdgeOfItAndNotByOneThatLeadsThere) {
  const std::string error =
      error_of(node("a", "x", "1", "1", "1", "0") + node("b", "x", "1", "1", "1", "0") +
               node("c", "x", "1", "1", "1", "0") + node("d", "x", "1", "1", "1", "0") +
               "\ta -- b\n\tb -- c\n\tc -- b\n\tc -- d\n");
  const bool inside = error.find("graph.txt:6:2") != std::string::npos ||
                      error.find("graph.txt:7:2") != std::string::npos;
  EXPECT_TRUE(inside) << error;
}

TEST(PipedreamProfileErrors, DamagedFilesAreReadOrRefusedAndNothingElse) {
  std::mt19937 random(11);
  const std::string letters = " \t\n-[];,=.0159aenod\x01";
  int refused = 0;
  for (int run = 0; run < 3000; ++run) {
    std::string text = skipping();
    for (std::uint32_t i = 0; i <= random() % 3; ++i)
      text[random() % text.size()] = letters[random() % letters.size()];
    try {
      const PipedreamProfile p = read(text);
      const auto split = profiled_balanced_split(p, {1});
      EXPECT_EQ(profiled_stage_costs(p, split, {}).size(), 1U) << text;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 2900);
}

TEST(PipedreamProfileErrors, EndlessAndHugeFilesAreRefused) {
  EXPECT_THROW(load_pipedream_profile("/dev/zero"), InputError);
  std::string many;
  for (int i = 0; i <= 5000; ++i) many += node("n" + std::to_string(i), "Add", "1", "1", "1", "0");
  EXPECT_NE(error_of(many).find("graph.txt: has more than 5000 layers"), std::string::npos);
  const PipedreamProfile most = read(many.substr(0, many.rfind("n5000")));
  EXPECT_EQ(profiled_balanced_split(most, std::vector<int>(200, 1)).size(), 200U);
}

TEST(PipedreamProfileErrors, AFileThatIsNotThereIsNamed) {
  EXPECT_THROW(load_pipedream_profile("/nowhere/graph.txt"), InputError);
}

// --- the public profiles ------------------------------------------------------------------------

struct Sums {
  const char* model;
  double forward_ms, backward_ms, parameter_mb, input_ms;
};

/// Sums of reference/pipedream-family.md, section 3, which count the time of loading the input.
TEST(PublicProfiles, SumsAreThoseOfTheReference) {
  const auto folder = shared_folder() / "data/pipedream_profiles";
  SKIP_WITHOUT_SHARED(folder);
  constexpr Sums kSums[] = {{"vgg16", 252, 439, 553, 17.972},
                            {"resnet50", 201, 261, 102, 18.962},
                            {"gnmt", 33.5, 56, 775, 0},
                            {"gnmt_large", 183, 338, 1111, 0}};
  for (const Sums& s : kSums) {
    const PipedreamProfile p = load_pipedream_profile((folder / s.model / "graph.txt").string());
    double forward = s.input_ms, backward = 0, parameters = 0;
    for (const ProfiledLayer& layer : p.layers) {
      forward += layer.forward_s * 1e3;
      backward += layer.backward_s * 1e3;
      parameters += layer.parameter_bytes / 1e6;
    }
    EXPECT_NEAR(forward, s.forward_ms, 0.55) << s.model;
    EXPECT_NEAR(backward, s.backward_ms, 0.55) << s.model;
    EXPECT_NEAR(parameters, s.parameter_mb, 0.55) << s.model;
  }
}

TEST(PublicProfiles, AllAreReadAndSplit) {
  const auto data = shared_folder() / "data";
  SKIP_WITHOUT_SHARED(data / "pipedream_profiles");
  int files = 0;
  for (const char* kind : {"pipedream_profiles", "pipedream_profiles_compressed",
                           "pipedream_partitioned", "dapple_profiles"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data / kind)) {
      if (!entry.is_regular_file()) continue;
      const PipedreamProfile p = load_pipedream_profile(entry.path().string());
      const auto split = profiled_balanced_split(p, {1, 2, 1});
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), 0), static_cast<int>(p.layers.size()))
          << entry.path();
      ++files;
    }
  }
  EXPECT_GE(files, 35);
}

TEST(PublicProfiles, Vgg16SendsTheLastPooledImageToItsClassifier) {
  const auto file = shared_folder() / "data/pipedream_profiles/vgg16/graph.txt";
  SKIP_WITHOUT_SHARED(file);
  const PipedreamProfile p = load_pipedream_profile(file.string());
  const auto c = profiled_stage_costs(p, {31, 9}, {0.5, false, {4, 4, 4, 4, 4}});
  EXPECT_EQ(p.layers[30].id, "node32");
  EXPECT_EQ(c[0].output_bytes, 64 * 512 * 7 * 7 * 4);
  EXPECT_EQ(c[0].weight_bytes + c[1].weight_bytes, 138'357'544 * 4LL);
}

}  // namespace
}  // namespace penstock::pipedream_profile_test
