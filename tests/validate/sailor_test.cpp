#include "validate/sailor.hpp"

#include "base/error.hpp"
#include "tests/shared.hpp"
#include "traces/byte_sink.hpp"
#include "validate/sailor_data.hpp"
#include "validate/sailor_fit.hpp"
#include "base/statistics.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
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

/// Nothing but compute and, in full, the profile's update.
SailorParameters only_compute() {
  SailorParameters p;
  p.message_latency_s = p.reduction_s = p.speed_spread = p.context_bytes = 0;
  p.message_share = 1;
  p.update_share = 1;
  return p;
}

TEST(SailorPlan, IsReadWithItsMeasurements) {
  const SailorPlan p = plan(2, 3, 1, 12);
  EXPECT_EQ(p.depth(), 2);
  EXPECT_EQ(p.width(), 3);
  EXPECT_EQ(p.layers(), 4);
  EXPECT_EQ(p.microbatches(), 4);
  EXPECT_EQ(p.gpus(), std::set<std::string>{"A"});
  EXPECT_EQ(p.measured_s, 1.5);
  EXPECT_EQ(p.reduction_s, 0.1);
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
  EXPECT_NE(error(text).find("tmp_per_stage[0]: a replica must be"), std::string::npos)
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
  EXPECT_TRUE(profile.bound_by_launches(1, 4));
  EXPECT_FALSE(profile.bound_by_launches(2, 4));
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

TEST(Sailor, OneStageTakesItsMicrobatchesAndItsUpdate) {
  // 5 microbatches of 4 layers, 3 s each; an update of 4 * 0.3 s.
  EXPECT_DOUBLE_EQ(predict(plan(1, 1, 1, 5), tiny(), only_compute()).iteration_s, 5 * 12 + 1.2);
}

TEST(Sailor, StagesOverlapAndExchangesCostTwoMessages) {
  // Two stages of F = 2, B = 4: m + 1 slots of 6 s and an update of two layers.
  SailorParameters p = only_compute();
  const SailorData data = tiny();
  const double bytes = 2.0 * 128 * 64;
  const double message = bytes / data.network.bytes_per_s("A", 2, bytes);
  const auto slow = [&] { return predict(plan(2, 1, 1, 1), data, p).iteration_s; };
  EXPECT_NEAR(slow(), 2 * 6 + 0.6 + 2 * 2 * message, 1e-9);  // there and back
  p.message_latency_s = 0.5;
  EXPECT_NEAR(slow(), 2 * 6 + 0.6 + 2 * 2 * (0.5 + message), 1e-9);
}

TEST(Sailor, ReplicasReduceFp32GradientsInARing) {
  const SailorData data = tiny();
  const TensorParallel tensor{2, false};
  const auto& m = data.model;
  const double bytes =
      4.0 * static_cast<double>(2 * m.layer_parameters(tensor) + m.embedding_parameters(tensor) +
                                m.head_parameters(tensor));
  SailorParameters p = only_compute();
  p.reduction_s = 0.25;
  const double ring = 2 * 3 * (bytes / 4) / data.network.bytes_per_s("A", 2, bytes / 4);
  const SailorPrediction got = predict(plan(1, 4, 1, 4), data, p);
  EXPECT_NEAR(got.iteration_s, 12 + 1.2 + 0.25 + ring, 1e-9);
  EXPECT_NEAR(got.reduction_s, 0.25 + ring, 1e-9);
}

TEST(Sailor, MemoryIsThatOfTheFullestStage) {
  const SailorData data = tiny();
  const TensorParallel tensor{2, false};
  const auto& m = data.model;
  SailorParameters p = only_compute();
  p.context_bytes = 1e6;
  // Stage 0 of 2: embedding and one block, two microbatches in flight.
  const double first =
      1e6 +
      18.0 * static_cast<double>(m.layer_parameters(tensor) + m.embedding_parameters(tensor)) +
      2 * m.layer_activation_bytes(1, Recompute::none, tensor) + 3 * 2.0 * 128 * 128 * 4 / 2;
  const double last =
      1e6 + 18.0 * static_cast<double>(m.layer_parameters(tensor) + m.head_parameters(tensor)) +
      m.layer_activation_bytes(1, Recompute::none, tensor) + 3 * 2.0 * 128 * 128 * 4 / 2 +
      14.0 * 128 * static_cast<double>(m.vocab_rows(tensor));
  EXPECT_NEAR(static_cast<double>(predict(plan(2, 1, 1, 4), data, p).max_bytes),
              std::max(first, last), 1);
}

TEST(Sailor, ThePaceIsTheMedianOfTheSlowest) {
  EXPECT_NEAR(slowest_pace({1}, 1, 0.01), 1, 1e-12);
  // Phi(0.544952) = sqrt(1/2)
  EXPECT_NEAR(slowest_pace({1}, 2, 0.01), 1.00544952, 1e-8);
  EXPECT_NEAR(slowest_pace({1, 1}, 1, 0.01), 1.00544952, 1e-8);
  EXPECT_NEAR(slowest_pace({1, 0.5}, 2, 0.01), 1.00544952, 1e-8);  // the light stage never binds
  EXPECT_DOUBLE_EQ(slowest_pace({1, 1}, 64, 0), 1);
}

TEST(Sailor, AProfileOfAnotherModelIsRefused) {
  SailorData data = tiny();
  data.profiles.clear();
  data.profiles.emplace("A", SailorProfile::parse(profile_text(1, 6), "f"));
  EXPECT_EQ(error_of([&] { predict(plan(1, 1, 1, 1), data, {}); }),
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

// The published measurements
// ------------------------------------------------------------------------------------------

class SailorMeasurements : public testing::Test {
 protected:
  void SetUp() override {
    const fs::path folder = shared_folder() / "data/measured/sailor";
    SKIP_WITHOUT_SHARED(folder / "OPT-350");
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "OPT-350")) {
      if (entry.path().extension() == ".json") files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    SailorLibrary library(files.at(0), "");
    for (const std::string& file : files) {
      SailorPlan plan = parse_sailor_plan(read_file(file), file);
      data_ = library.data_for(plan, library.model_of(plan, ""));
      rows_.push_back({std::move(plan), data_.get()});
    }
    ASSERT_EQ(rows_.size(), 15U);
  }

  static int nodes(const SailorRow& row) { return row.plan.depth() * row.plan.width(); }
  static double time_error(const SailorRow& row, const SailorParameters& p) {
    return predict(row.plan, *row.data, p).iteration_s / *row.plan.measured_s - 1;
  }
  static double memory_error(const SailorRow& row, const SailorParameters& p) {
    return static_cast<double>(predict(row.plan, *row.data, p).max_bytes) /
               static_cast<double>(*row.plan.max_bytes) -
           1;
  }
  std::vector<SailorRow> chosen(const std::function<bool(const SailorRow&)>& choose) const {
    std::vector<SailorRow> out;
    std::ranges::copy_if(rows_, std::back_inserter(out), choose);
    return out;
  }
  static ErrorSummary times(const std::vector<SailorRow>& rows, const SailorParameters& p) {
    std::vector<double> errors;
    for (const SailorRow& row : rows) errors.push_back(time_error(row, p));
    return summarize_errors(errors);
  }

  std::shared_ptr<const SailorData> data_;
  std::vector<SailorRow> rows_;
};

TEST_F(SailorMeasurements, TimeAndMemoryWithTheShippedParameters) {
  const SailorParameters shipped;
  EXPECT_LT(times(rows_, shipped).mape, 0.038);
  EXPECT_LT(times(chosen([](const auto& r) { return r.plan.depth() > 1; }), shipped).mape, 0.009);
  std::vector<double> memory;
  for (const SailorRow& row : rows_) memory.push_back(memory_error(row, shipped));
  EXPECT_LT(summarize_errors(memory).mape, 0.0083);
  EXPECT_LT(summarize_errors(memory).max, 0.027);
}

TEST_F(SailorMeasurements, AllOfThemAreMarkedAsCalibration) {
  for (const SailorRow& row : rows_) {
    EXPECT_TRUE(is_sailor_calibration(row.plan, "OPT-350")) << row.plan.name;
    EXPECT_FALSE(is_sailor_calibration(row.plan, "GPT-Neo-2.7"));
    SailorPlan other = row.plan;
    other.batch_size *= 3;
    EXPECT_FALSE(is_sailor_calibration(other, "OPT-350"));
  }
}

TEST_F(SailorMeasurements, TheShippedParametersAreThoseOfAFit) {
  const SailorParameters shipped, fitted = fit_sailor(rows_);
  EXPECT_NEAR(fitted.message_latency_s / shipped.message_latency_s, 1, 0.03);
  EXPECT_NEAR(fitted.message_share / shipped.message_share, 1, 0.01);
  EXPECT_NEAR(fitted.reduction_s / shipped.reduction_s, 1, 0.03);
  EXPECT_NEAR(fitted.speed_spread / shipped.speed_spread, 1, 0.03);
  EXPECT_NEAR(fitted.context_bytes / shipped.context_bytes, 1, 0.01);
}

TEST_F(SailorMeasurements, SmallClustersPredictLargeOnes) {
  const auto fitted = fit_sailor(chosen([](const auto& r) { return nodes(r) <= 8; }));
  const auto large = chosen([](const auto& r) { return nodes(r) > 8; });
  ASSERT_EQ(large.size(), 6U);
  EXPECT_LT(times(large, fitted).mape, 0.0179);
  for (const SailorRow& row : large) EXPECT_LT(std::abs(memory_error(row, fitted)), 0.0155);
}

TEST_F(SailorMeasurements, EachRowIsPredictedByTheOthers) {
  std::vector<double> pipelines, memory;
  for (const SailorRow& left_out : rows_) {
    const auto fitted =
        fit_sailor(chosen([&](const SailorRow& r) { return r.plan.file != left_out.plan.file; }));
    if (left_out.plan.depth() > 1) pipelines.push_back(time_error(left_out, fitted));
    memory.push_back(memory_error(left_out, fitted));
  }
  EXPECT_LT(summarize_errors(pipelines).mape, 0.0156);
  EXPECT_LT(summarize_errors(memory).mape, 0.0089);
}

}  // namespace
}  // namespace penstock::sailor_test
