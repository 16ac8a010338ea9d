// SPDX-License-Identifier: Apache-2.0
// What kernels take: laws by hand, corrections at, between and beyond the corners of their grids,
// and what is wrong with a file.
#include "models/kernels/collective_laws.hpp"
#include "models/kernels/kernel_times.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::kernel_times_test {
namespace {

/// 1 PFLOP/s, 1 TB/s, 100 multiprocessors, no ramp: a law that can be followed in the head.
ProductLaw plain_law(const std::string& type) {
  ProductLaw law;
  law.type = type;
  law.flops_per_s = 1e15;
  law.bytes_per_s = law.split_bytes_per_s = 1e12;
  law.launch_s = 1e-6;
  law.tile_losses = {10, 10, 10};  // so only tiles of 128 x 256
  law.split_s = 1;                 // and never a split
  law.patience_s = 1;
  return law;
}

KernelTimes plain_times() {
  KernelTimes times;
  times.device = "plain";
  times.peak_flops_per_s = 1e15;
  times.memory_bytes_per_s = 1e12;
  times.multiprocessors = 100;
  times.products = {plain_law("bf16")};
  return times;
}

double product(const KernelTimes& times, double m, double n, double k) {
  return times.product_s("bf16", {m, n, k}).value();
}

TEST(KernelTimes, AProductOfWholeTilesTakesItsFlopsAtTheRate) {
  // FLOPs 2 x 12800 x 2560 x 8192 in 0.537 ms; bytes 317 MB would take 0.317 ms.
  const double compute = 2.0 * 12800 * 2560 * 8192 / 1e15;
  const double bytes = 2.0 * (12800.0 * 8192 + 2560.0 * 8192 + 12800.0 * 2560) / 1e12;
  const double both = std::pow(std::pow(compute, 4) + std::pow(bytes, 4), 0.25);
  EXPECT_NEAR(product(plain_times(), 12800, 2560, 8192), 1e-6 + both, 1e-12);
}

TEST(KernelTimes, ANarrowProductTakesItsBytes) {
  const double bytes = 2.0 * (65536.0 * 1024 + 64 * 1024 + 65536.0 * 64) / 1e12;
  EXPECT_NEAR(product(plain_times(), 65536, 64, 1024), 1e-6 + bytes, 0.15 * bytes);
}

TEST(KernelTimes, ATileIsComputedInFullWhatEverIsInIt) {
  KernelTimes times = plain_times();
  times.products[0].bytes_per_s = 1e30;
  EXPECT_DOUBLE_EQ(product(times, 1025, 1024, 4096), product(times, 1152, 1024, 4096));
  EXPECT_GT(product(times, 1025, 1024, 4096), product(times, 1024, 1024, 4096));
}

TEST(KernelTimes, AnOpenWaveCostsWhatTheLawSays) {
  KernelTimes times = plain_times();
  times.products[0].bytes_per_s = 1e30;
  times.products[0].launch_s = 0;
  const double wave = product(times, 12800, 256, 4096);  // 100 tiles on 100 multiprocessors
  EXPECT_NEAR(product(times, 12800, 512, 4096) / wave, 2, 1e-9);           // 200 tiles
  EXPECT_NEAR(product(times, 12800 + 128, 256, 4096) / wave, 1.01, 1e-9);  // 101
  times.products[0].whole_waves = 1;
  EXPECT_NEAR(product(times, 12800 + 128, 256, 4096) / wave, 2, 1e-9);
}

TEST(KernelTimes, ASplitOfKFillsADeviceWithFewTiles) {
  KernelTimes times = plain_times();
  times.products[0].bytes_per_s = 1e30;
  times.products[0].launch_s = 0;
  times.products[0].whole_waves = 1;
  const double whole = product(times, 128, 256, 65536);
  times.products[0].split_s = 1e-6;
  const double parts = 1e-6 + 4.0 * 128 * 256 / 1e12;
  EXPECT_NEAR(product(times, 128, 256, 65536), whole / 8 + parts, 1e-12);
}

TEST(KernelTimes, LongProductsAreSlowerByWhatPowerTakes) {
  KernelTimes times = plain_times();
  times.products[0].bytes_per_s = 1e30;
  times.products[0].launch_s = 0;
  const double s = product(times, 12800, 25600, 8192);
  times.products[0].throttle = 0.5;
  times.products[0].patience_s = s;  // half of the throttle is reached
  EXPECT_NEAR(product(times, 12800, 25600, 8192), 1.25 * s, 1e-12);
}

TEST(KernelTimes, ACorrectionIsLinearInLogarithmsAndFlatOutside) {
  KernelTimes times = plain_times();
  const double before = product(times, 4096, 4096, 4096);
  times.products[0].corrections = {
      {{{KernelQuantity::m, {1024, 4096, 16384}}, {KernelQuantity::k, {1024, 16384}}},
       {0, 0, 10, 30, 20, 20}}};
  EXPECT_NEAR(product(times, 4096, 4096, 4096), before * std::exp(0.2), 1e-9);  // k halfway
  times.products[0].corrections[0].percent = {0, 0, 10, 10, 20, 20};
  for (const auto& [m, percent] : {std::pair{1024.0, 0.0},
                                   {2048.0, 5.0},
                                   {8192.0, 15.0},
                                   {16384.0, 20.0},
                                   {65536.0, 20.0},
                                   {256.0, 0.0}}) {
    KernelTimes plain = plain_times();
    EXPECT_NEAR(product(times, m, 4096, 4096),
                product(plain, m, 4096, 4096) * std::exp(percent / 100), 1e-9)
        << m;
  }
}

TEST(KernelTimes, TheThreeProductsOfAMatrixHaveItsSidesInTurn) {
  const auto sides = [](ProductPass pass) {
    const ProductShape p = pass_shape(pass, 4096, 1024, 3072);
    return std::vector<double>{p.m, p.n, p.k};
  };
  EXPECT_EQ(sides(ProductPass::forward), (std::vector<double>{4096, 3072, 1024}));
  EXPECT_EQ(sides(ProductPass::input), (std::vector<double>{4096, 1024, 3072}));
  EXPECT_EQ(sides(ProductPass::weight), (std::vector<double>{3072, 1024, 4096}));
  const KernelTimes times = plain_times();
  const ProductShape weight = pass_shape(ProductPass::weight, 4096, 1024, 3072);
  EXPECT_NEAR(*times.accumulated_s("bf16", weight) - *times.product_s("bf16", weight),
              6.0 / 3 * 3072 * 1024 / 1e12, 1e-15);
}

TEST(KernelTimes, TypesThatWereNotMeasuredHaveNone) {
  const KernelTimes times = plain_times();
  EXPECT_TRUE(times.product_s("fp16", {64, 64, 64}));  // as bf16
  EXPECT_FALSE(times.product_s("fp8", {64, 64, 64}));
  EXPECT_FALSE(times.experts_s("bf16", {}));
  EXPECT_FALSE(times.attention_s(AttentionKind::causal, "bf16", {1, 512, 8, 8, 128}));
  EXPECT_FALSE(times.stream_s("amax", 1e6));
}

TEST(KernelTimes, CollectivesLieBetweenMeasuredSizesAndRanks) {
  KernelTimes times;
  times.collectives = {{"all_reduce", 2, {1024, 4096}, {1e-5, 4e-5}},
                       {"all_reduce", 8, {1024, 4096}, {4e-5, 16e-5}}};
  const auto seconds = [&](double ranks, double bytes) {
    return times.collective_s("all_reduce", ranks, bytes).value();
  };
  EXPECT_DOUBLE_EQ(seconds(2, 1024), 1e-5);
  EXPECT_NEAR(seconds(2, 2048), 2e-5, 1e-12);
  EXPECT_DOUBLE_EQ(seconds(2, 8), 1e-5);
  EXPECT_NEAR(seconds(2, 8192), 8e-5, 1e-12);
  EXPECT_NEAR(seconds(4, 1024), 2e-5, 1e-12);
  EXPECT_FALSE(times.collective_s("all_reduce", 16, 1024));
  EXPECT_FALSE(times.collective_s("broadcast", 2, 1024));
}

TEST(KernelTimes, AttentionIsThatOfTheFrameworkAndTheSizeOfHeadThatFit) {
  KernelTimes times;
  times.multiprocessors = 1;
  const auto law = [](const char* framework, std::vector<double> sizes, double launch_s) {
    AttentionLaw a;
    a.framework = framework;
    a.type = "bf16";
    a.flops_per_s.assign(sizes.size(), 1e30);
    a.head_dims = std::move(sizes);
    a.launch_s = launch_s;
    a.bytes_per_s = a.kv_bytes_per_s = 1e30;
    return a;
  };
  times.attention = {law("SGLang", {128, 256}, 1), law("vLLM", {64}, 2), law("vLLM", {128}, 3)};
  const auto seconds = [&](double head_dim, const char* framework) {
    return std::round(
        *times.attention_s(AttentionKind::causal, "bf16", {1, 512, 8, 8, head_dim}, framework));
  };
  EXPECT_EQ(seconds(128, ""), 1);
  EXPECT_EQ(seconds(64, ""), 2);
  EXPECT_EQ(seconds(128, "vLLM"), 3);
  EXPECT_EQ(seconds(64, "SGLang"), 1);
}

TEST(KernelTimes, CausalAttentionDoesHalfOfAll) {
  KernelTimes times;
  times.multiprocessors = 1;
  AttentionLaw law;
  law.type = "bf16";
  law.head_dims = {128};
  law.flops_per_s = {1e12};
  law.bytes_per_s = law.kv_bytes_per_s = 1e30;
  times.attention = {law};
  times.attention.push_back(law);
  times.attention[1].kind = AttentionKind::full;
  const AttentionShape shape{2, 4096, 16, 4, 128};
  const double flops = 4.0 * 2 * 16 * 4096 * 4096 * 128;
  EXPECT_NEAR(*times.attention_s(AttentionKind::full, "bf16", shape), flops / 1e12, 1e-6);
  EXPECT_NEAR(*times.attention_s(AttentionKind::causal, "bf16", shape), flops / 2 / 1e12, 1e-6);
}

TEST(KernelTimes, ExpertsComputeTheirRowsAndReadTheirWeights) {
  KernelTimes times;
  ExpertsLaw law;
  law.type = "bf16";
  law.flops_per_s = 1e15;
  law.weights_bytes_per_s = law.moved_bytes_per_s = 1e30;
  times.experts = {law};
  ExpertsShape shape{4096, 2048, 1024, 8, 64};
  const double flops = 2.0 * 3 * 4096 * 8 * 2048 * 1024;
  EXPECT_NEAR(*times.experts_s("bf16", shape), flops / 1e15, 1e-12);
  shape.ep = 8;
  EXPECT_NEAR(*times.experts_s("bf16", shape), flops / 8 / 1e15, 1e-12);
  shape.load = 2;
  EXPECT_NEAR(*times.experts_s("bf16", shape), flops / 4 / 1e15, 1e-12);
  shape.gated = false;
  EXPECT_NEAR(*times.experts_s("bf16", shape), flops / 6 / 1e15, 1e-12);
  times.experts[0].flops_per_s = 1e30;
  times.experts[0].weights_bytes_per_s = 1e12;
  shape = {4096, 2048, 1024, 8, 64};
  EXPECT_NEAR(*times.experts_s("bf16", shape), 2.0 * 3 * 64 * 2048 * 1024 / 1e12, 1e-9);
}

TEST(KernelTimes, AnotherDeviceHasTheSameSharesOfItsPeaks) {
  KernelTimes times = plain_times();
  times.products[0].launch_s = 0;
  const KernelTimes twice = assumed_times(times, 2e15, 2e12);
  EXPECT_NEAR(product(twice, 4096, 4096, 4096), product(times, 4096, 4096, 4096) / 2, 1e-12);
  EXPECT_EQ(twice.peak_flops_per_s, 2e15);
}

std::string errors_of(const std::string& text) {
  try {
    parse_kernel_times(text, "k.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string file_with(const std::string& products, const std::string& collectives) {
  return R"({"kernels": 1, "device": "d", "source": "s", "peak_flops_per_s": 1e15,
    "memory_bytes_per_s": 1e12, "multiprocessors": 100, "attention_backward": 2.5, "streams": [],
    "products": [)" +
         products + R"(], "experts": [], "attention": [], "collectives": [)" + collectives + "]}";
}

TEST(CollectiveLaws, GoThroughTheSmallestAndTheLargestSize) {
  KernelTimes times;
  const KernelPoints points{
      "all_gather", 8, {1 << 10, 1 << 20, 16 << 20, 512 << 20}, {1e-5, 1.6e-5, 7.5e-5, 1.4e-3}};
  times.collectives = {points};
  EXPECT_TRUE(collective_laws(times, 450e9).empty()) << "on which links is not said";
  times.link_bytes_per_s = 450e9;
  const CollectivePrice law = collective_laws(times, 450e9).at(0).price;
  EXPECT_NEAR(law.seconds(0), 1e-5, 1e-12);
  EXPECT_NEAR(law.seconds(512 << 20), 1.4e-3, 1e-9);
  for (std::size_t i = 1; i < points.bytes.size(); ++i)
    EXPECT_NEAR(law.seconds(points.bytes[i]) / points.seconds[i], 1, 0.15) << points.bytes[i];
  // On links of half the rate bytes take twice as long.
  const CollectivePrice half = collective_laws(times, 225e9).at(0).price;
  EXPECT_DOUBLE_EQ(half.s_per_byte, 2 * law.s_per_byte);
  EXPECT_DOUBLE_EQ(half.call_s, law.call_s);
}

TEST(KernelTimes, AFileSaysAllThatIsWrongWithIt) {
  EXPECT_EQ(errors_of(file_with("", "")), "");
  EXPECT_NE(errors_of("{}").find("is no file of kernel times"), std::string::npos);
  const std::string wrong = errors_of(file_with(
      R"({"type": "bf16", "flops_per_s": 1e15, "launch_s": -1, "bytes_per_s": 1e12, "ramp": 1,
          "whole_waves": 2, "tile_losses": [0, 0, 0], "split_s": 0, "split_bytes_per_s": 1e12,
          "throttle": 0, "patience_s": 0, "sustained": 1, "corrections": []})",
      ""));
  EXPECT_NE(wrong.find("products[0].launch_s"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("products[0].whole_waves"), std::string::npos) << wrong;
  const std::string sizes = errors_of(file_with(
      R"({"type": "bf16", "flops_per_s": 1e15, "launch_s": 0, "bytes_per_s": 1e12, "ramp": 1,
          "whole_waves": 0, "tile_losses": [0], "split_s": 0, "split_bytes_per_s": 1e12,
          "throttle": 0, "patience_s": 0, "sustained": 1, "corrections":
          [{"axes": [{"of": "m", "knots": [2, 1]}], "percent": [1, 2, 3]}]})",
      R"({"op": "all_reduce", "ranks": 2, "bytes": [1, 2], "seconds": [1]})"));
  for (const char* part : {"tile_losses: must have 3 numbers, has 1", "must be numbers that ascend",
                           "percent: must have 2 numbers, has 3",
                           "collectives[0].seconds: must have 2 numbers, has 1"})
    EXPECT_NE(sizes.find(part), std::string::npos) << part << "\n" << sizes;
}

}  // namespace
}  // namespace penstock::kernel_times_test
