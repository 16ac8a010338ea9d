// SPDX-License-Identifier: Apache-2.0
#include "validate/sailor.hpp"

#include "base/error.hpp"
#include "tests/shared.hpp"
#include "traces/byte_sink.hpp"
#include "validate/sailor_data.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>

namespace penstock::sailor_test {
namespace {

namespace fs = std::filesystem;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// A plan of GPUs "A"; layers evenly over the stages.
std::string plan_text(int depth, int width, int microbatch_size, int batch, int layers = 4,
                      int tensor = 2) {
  std::string stages, gpus;
  for (int s = 0; s < depth; ++s) {
    std::string list, replicas;
    for (int l = layers * s / depth; l < layers * (s + 1) / depth; ++l)
      list += (list.empty() ? "" : ",") + std::to_string(l);
    for (int r = 0; r < width; ++r)
      replicas +=
          std::string(r == 0 ? "" : ",") + R"([[["A",4,"z"]],)" + std::to_string(tensor) + "]";
    stages += (s == 0 ? "[" : ",[") + list + "]";
    gpus += (s == 0 ? "[" : ",[") + replicas + "]";
  }
  return R"({"pipeline_list":[{"layers_per_stage":[)" + stages + R"(],"tmp_per_stage":[)" + gpus +
         R"(]}],"mbs":)" + std::to_string(microbatch_size) + R"(,"gbs":)" + std::to_string(batch) +
         R"(,"real":1.5,"red_grads":0.1,"max_mem":1000000})";
}

SailorPlan plan(int depth, int width, int microbatch_size, int batch) {
  return parse_sailor_plan(plan_text(depth, width, microbatch_size, batch), "plan.json");
}

/// Four layers; every one takes `scale` * (1, 2) s, its update 0.3 s.
std::string profile_text(double scale, int layers = 4) {
  std::string times;
  for (int l = 0; l < layers; ++l)
    times += fmt::format("{}\"{}\":[{},{},0.3]", l == 0 ? "" : ",", l, scale, 2 * scale);
  return "{\"1\":{\"2\":{" + times + "}}}";
}

constexpr const char* kNetwork = R"({"inter":{"A":{"2":[[-1,4,10],20e9]}},"intra":{}})";
constexpr const char* kModel =
    R"({"model":"tiny","num_layers":2,"hidden_size":64,"heads":4,"vocab_size":512,"sequence_length":128})";

SailorData tiny() {
  SailorData data{parse_sailor_model(kModel, "config.json"),
                  {},
                  SailorNetwork::parse(kNetwork, "network.json")};
  data.profiles.emplace("A", SailorProfile::parse(profile_text(1), "profile.json"));
  return data;
}

/// The numbers behind a key of a scenario.
std::vector<double> numbers(const std::string& scenario, const std::string& key) {
  std::vector<double> out;
  std::size_t at = scenario.find(key + ": ");
  while (at != std::string::npos && at > 0 && std::isalnum(scenario[at - 1]) != 0)
    at = scenario.find(key + ": ", at + 1);  // the end of another key
  if (at == std::string::npos) return out;
  const std::string line = scenario.substr(at, scenario.find('\n', at) - at);
  for (std::size_t i = key.size() + 1; i < line.size() && line[i] != ']';) {
    const std::size_t digit = line.find_first_of("0123456789", i);
    if (digit == std::string::npos) break;
    out.push_back(std::stod(line.substr(digit)));
    i = line.find_first_of(",]}", digit);
    if (line[key.size() + 2] != '[') break;
  }
  return out;
}

TEST(SailorPlan, IsReadWithItsMeasurements) {
  const SailorPlan p = plan(2, 3, 1, 12);
  EXPECT_EQ(p.depth(), 2);
  EXPECT_EQ(p.width(), 3);
  EXPECT_EQ(p.layers(), 4);
  EXPECT_EQ(p.microbatches(), 4);
  EXPECT_EQ(p.gpus(), std::set<std::string>{"A"});
  EXPECT_EQ(p.measured_s, 1.5);
  EXPECT_EQ(p.max_bytes, 1000000);
}

TEST(SailorPlan, ErrorsNameThePlaceAndWhatIsAllowed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_sailor_plan(text, "p.json"); });
  };
  EXPECT_EQ(error("{\"mbs\": 1,\n \"gbs\" 2}"), "p.json:2:8: is not JSON from here on");
  const std::string two = error(R"({"pipeline_list":[],"mbs":0})");
  EXPECT_NE(two.find("mbs: must be an integer from 1 to"), std::string::npos) << two;
  EXPECT_NE(two.find("'gbs' is missing"), std::string::npos) << two;
  EXPECT_NE(error(R"({"pipeline_list":[],"mbs":1,"gbs":1})").find("holds no pipeline"),
            std::string::npos);
  std::string text = plan_text(2, 1, 1, 4);
  text.replace(text.find("[2,3]"), 5, "[1,3]");
  EXPECT_NE(error(text).find("layers must be 0, 1, 2"), std::string::npos) << error(text);
  text = plan_text(1, 1, 1, 4);
  text.replace(text.find("\"z\""), 3, "7");
  EXPECT_NE(error(text).find("pipeline_list[0].tmp_per_stage[0][0]: must be [[["),
            std::string::npos)
      << error(text);
}

TEST(SailorProfile, NamesTheSizesThatItHas) {
  const auto profile = SailorProfile::parse(profile_text(1), "f.json");
  EXPECT_EQ(error_of([&] { profile.times(8, 2, 0); }),
            "f.json: has no times for microbatches of 8; it has 1");
  EXPECT_EQ(error_of([&] { profile.times(1, 4, 0); }),
            "f.json: has no times for microbatches of 1 on 4 GPUs; it has tensor degrees 2");
  const std::string wrong = error_of([] { SailorProfile::parse(R"({"x":{},"1":{"2":{}}})", "f"); });
  EXPECT_NE(wrong.find("'x' is not a microbatch size"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("1.2: must be {layer: [forward, backward, update]}"), std::string::npos)
      << wrong;
}

TEST(SailorProfile, LaunchesAreTakenBackWhereMoreSequencesAreFaster) {
  const auto profile = SailorProfile::parse(
      R"({"1":{"1":{"0":[3,2,0]},"4":{"0":[6,2,0]}},"2":{"1":{"0":[5,4,0]},"4":{"0":[4,3,0]}}})",
      "f");
  EXPECT_DOUBLE_EQ(profile.times(1, 4, 0).forward_s, 3);   // 6 > 4: bound by launches; 3 on one GPU
  EXPECT_DOUBLE_EQ(profile.times(1, 4, 0).backward_s, 2);  // 2 < 3: as measured
  EXPECT_DOUBLE_EQ(profile.times(2, 4, 0).forward_s, 4);
  EXPECT_DOUBLE_EQ(profile.times(1, 1, 0).forward_s, 3);
}

TEST(SailorProfile, IsEstimatedFromWhatAnotherModelGains) {
  const auto elsewhere = SailorProfile::parse(profile_text(3), "a");
  const auto from = SailorProfile::parse(profile_text(8, 5), "b");
  const auto to = SailorProfile::parse(profile_text(2, 5), "c");
  const auto estimated = SailorProfile::estimate(elsewhere, {{from, to}}, "d");
  EXPECT_EQ(estimated.layers(), 4);
  EXPECT_DOUBLE_EQ(estimated.times(1, 2, 1).forward_s, 0.75);
  EXPECT_DOUBLE_EQ(estimated.times(1, 2, 3).backward_s, 1.5);
  EXPECT_TRUE(SailorProfile::estimate(elsewhere, {}, "d").empty());
}

TEST(SailorNetwork, FollowsItsCurveUpToItsVertex) {
  const auto network = SailorNetwork::parse(kNetwork, "n.json");
  EXPECT_DOUBLE_EQ(network.bytes_per_s("A", 2, 2e6), (-1 + 4 + 10) * 1e9 / 2);
  EXPECT_DOUBLE_EQ(network.bytes_per_s("A", 2, 1e3), 10e9 / 2);
  EXPECT_DOUBLE_EQ(network.bytes_per_s("A", 2, 1e12), 14e9 / 2);
  EXPECT_EQ(error_of([&] { network.bytes_per_s("B", 2, 1); }),
            "n.json: has no bandwidths between nodes of B; it has A");
  EXPECT_EQ(error_of([&] { network.bytes_per_s("A", 4, 1); }),
            "n.json: has no bandwidths for 4 GPUs of a node of A; it has those for 2");
}

TEST(Sailor, AStageTakesTheTimesOfItsLayers) {
  const std::string one = sailor_scenario(plan(1, 1, 1, 5), tiny());
  EXPECT_EQ(numbers(one, "forward"), std::vector<double>{4});
  EXPECT_EQ(numbers(one, "backward"), std::vector<double>{8});
  EXPECT_NEAR(numbers(one, "step").at(0), 4 * 0.3 / 3, 1e-12);
  EXPECT_EQ(numbers(one, "microbatches"), std::vector<double>{5});
  const std::string two = sailor_scenario(plan(2, 3, 1, 6), tiny());
  EXPECT_EQ(numbers(two, "forward"), (std::vector<double>{2, 2}));
  EXPECT_EQ(numbers(two, "stages"), std::vector<double>{2});
  EXPECT_EQ(numbers(two, "width"), std::vector<double>{3});
  EXPECT_EQ(numbers(two, "devices"), std::vector<double>{6});
}

TEST(Sailor, AStageIsAsSlowAsItsSlowestKindOfGpu) {
  SailorData data = tiny();
  data.profiles.emplace("B", SailorProfile::parse(profile_text(2), "profile.json"));
  SailorPlan mixed = plan(2, 2, 1, 4);
  mixed.pipelines[0].replicas[1][0].gpu = "B";
  data.network = SailorNetwork::parse(
      R"({"inter":{"A":{"2":[[0,0,10],20e9]},"B":{"2":[[0,0,6],20e9]}},"intra":{}})", "n.json");
  const std::string scenario = sailor_scenario(mixed, data);
  EXPECT_EQ(numbers(scenario, "forward"), (std::vector<double>{2, 4}));
  EXPECT_EQ(numbers(scenario, "bandwidth"), std::vector<double>{3e9});
}

TEST(Sailor, MessagesAreFp32OneDirectionAfterTheOther) {
  const SailorData data = tiny();
  const double bytes = 4 * 2.0 * 128 * 64;
  const std::string scenario = sailor_scenario(plan(2, 1, 1, 1), data);
  EXPECT_EQ(numbers(scenario, "output"), std::vector<double>{bytes});
  EXPECT_DOUBLE_EQ(numbers(scenario, "bandwidth").at(0), data.network.bytes_per_s("A", 2, bytes));
}

TEST(Sailor, WithoutMessagesTheNicsCarryPartsOfGradients) {
  const SailorData data = tiny();
  const std::string scenario = sailor_scenario(plan(1, 4, 1, 4), data);
  const double bytes = numbers(scenario, "gradients").at(0);
  EXPECT_DOUBLE_EQ(numbers(scenario, "bandwidth").at(0),
                   data.network.bytes_per_s("A", 2, bytes / 4));
}

TEST(Sailor, ARankHoldsItsShareOfTheStage) {
  const TransformerSpec m = tiny().model;
  const TensorParallel tensor{2, false};
  const std::string scenario = sailor_scenario(plan(2, 1, 1, 4), tiny());
  const auto first =
      static_cast<double>(m.layer_parameters(tensor) + m.embedding_parameters(tensor));
  EXPECT_EQ(numbers(scenario, "parameters").at(0), 2 * first);
  EXPECT_EQ(numbers(scenario, "gradients").at(0), 4 * first);
  EXPECT_EQ(numbers(scenario, "optimizer").at(0), 12 * first);
  EXPECT_EQ(numbers(scenario, "activation").at(1),
            m.layer_activation_bytes(1, Recompute::none, tensor));
  const double scores = 3 * 2.0 * 128 * 128 * 4 / 2;
  EXPECT_EQ(numbers(scenario, "workspace").at(0), scores);
  EXPECT_EQ(numbers(scenario, "workspace").at(1),
            scores + 14.0 * 128 * static_cast<double>(m.vocab_rows(tensor)));
}

TEST(Sailor, AProfileOfAnotherModelIsRefused) {
  SailorData data = tiny();
  data.profiles.clear();
  data.profiles.emplace("A", SailorProfile::parse(profile_text(1, 6), "f"));
  EXPECT_EQ(error_of([&] { sailor_scenario(plan(1, 1, 1, 1), data); }),
            "plan.json: has 4 layers, but the profile of tiny on A has 6");
}

// The folders around a measured file
// ------------------------------------------------------------------------------------------

class SailorFolder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            fmt::format("penstock-sailor-{}-{}", ::getpid(),
                        testing::UnitTest::GetInstance()->current_test_info()->name());
    put("configs/network_coeffs_all_homo.json", kNetwork);
    put("configs/training_config_tiny.json", kModel);
    put("profiles/tiny/A/profile.json", profile_text(1));
    put("measured/N1/plan.json", plan_text(1, 1, 1, 1));
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::string at(const std::string& name) const { return (root_ / name).string(); }
  SailorLibrary library() const { return {at("measured/N1/plan.json"), ""}; }
  SailorPlan the_plan() const {
    return parse_sailor_plan(read_file(at("measured/N1/plan.json")), "plan.json");
  }

  fs::path root_;
};

TEST_F(SailorFolder, TheModelIsTheOneWithSuchLayers) {
  put("profiles/other/A/profile.json", profile_text(1, 5));
  SailorLibrary found = library();
  EXPECT_EQ(found.model_of(the_plan(), ""), "tiny");
  EXPECT_EQ(found.data_for(the_plan(), "tiny")->model.hidden_size, 64);
}

TEST_F(SailorFolder, AmbiguityIsAnError) {
  put("profiles/other/A/profile.json", profile_text(1));
  const std::string error = error_of([&] { library().model_of(the_plan(), ""); });
  EXPECT_EQ(error,
            "plan.json: several models have 4 layers on A: other, tiny; say which with "
            "--model");
  EXPECT_EQ(library().model_of(the_plan(), "tiny"), "tiny");
}

TEST_F(SailorFolder, UnknownModelsAndGpusAreNamed) {
  EXPECT_NE(error_of([&] { library().model_of(the_plan(), "huge"); }).find("there are tiny"),
            std::string::npos);
  put("measured/N1/plan.json", plan_text(1, 1, 1, 1, 7));
  EXPECT_NE(error_of([&] { library().model_of(the_plan(), ""); }).find("has 7 layers on A"),
            std::string::npos);
  fs::rename(root_ / "profiles/tiny/A", root_ / "profiles/tiny/B");
  EXPECT_NE(error_of([&] {
              library().data_for(the_plan(), "tiny");
            }).find("tiny has no usable profile on A; it has those on B"),
            std::string::npos);
}

TEST_F(SailorFolder, MissingFoldersAreNamed) {
  fs::rename(root_ / "profiles", root_ / "times");
  EXPECT_NE(error_of([&] { library(); }).find("give one with --profiles DIR"), std::string::npos);
  EXPECT_EQ(SailorLibrary(at("measured/N1/plan.json"), at("times")).model_of(the_plan(), ""),
            "tiny");
  fs::remove_all(root_ / "configs");
  EXPECT_NE(error_of([&] {
              SailorLibrary(at("measured/N1/plan.json"), at("times"));
            }).find("network_coeffs_all_homo.json: is missing"),
            std::string::npos);
}

TEST_F(SailorFolder, AProfileThatIsNotItsModelsIsEstimated) {
  put("profiles/tiny/B/profile.json", profile_text(1, 9));
  put("profiles/other/A/profile.json", profile_text(6, 9));
  put("profiles/other/B/profile.json", profile_text(3, 9));
  SailorLibrary found = library();
  SailorPlan plan = the_plan();
  plan.pipelines[0].replicas[0][0].gpu = "B";
  EXPECT_EQ(found.model_of(plan, ""), "tiny");
  EXPECT_DOUBLE_EQ(found.data_for(plan, "tiny")->profiles.at("B").times(1, 2, 1).forward_s, 0.5);
  EXPECT_EQ(found.notes("tiny").size(), 2U);
  EXPECT_TRUE(found.notes("other").empty());
}

}  // namespace
}  // namespace penstock::sailor_test
