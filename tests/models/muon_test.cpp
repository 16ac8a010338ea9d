// SPDX-License-Identifier: Apache-2.0
// What Muon changes of a stage's costs, against formulas written down for one shape.
#include "models/matrix_optimizers.hpp"

#include "models/stage_costs.hpp"
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::muon_test {
namespace {

using Optimizer = OptimizerSpec::Kind;

constexpr double kH = 768;

TEST(Muon, NewtonSchulzOfASquareTakes30CubesOfItsSide) {
  EXPECT_DOUBLE_EQ((LayerMatrix{100, 100}).muon_flops(), 30e6);
  EXPECT_DOUBLE_EQ((LayerMatrix{100, 400}).muon_flops(), 5 * (4 * 100e2 * 400 + 2e6));
  EXPECT_DOUBLE_EQ((LayerMatrix{400, 100}).muon_flops(), (LayerMatrix{100, 400}).muon_flops());
}

TEST(Muon, AGptLayerHasFourSquaresAndTwoOfTheMlp) {
  double elements = 0, flops = 0;
  for (const LayerMatrix& m : layer_matrices(gpt_small(), Layer(gpt_small()))) {
    elements += m.elements();
    flops += m.muon_flops();
  }
  EXPECT_DOUBLE_EQ(elements, 12 * kH * kH);
  // Four squares of 30 h^3, two of h x 4h with 5 (16 + 2) h^3.
  EXPECT_DOUBLE_EQ(flops, (4 * 30 + 2 * 90) * kH * kH * kH);
  double divided = 0;
  for (const LayerMatrix& m : layer_matrices(gpt_small(), Layer(gpt_small()), {4}))
    divided += m.elements();
  EXPECT_DOUBLE_EQ(divided, 12 * kH * kH / 4);
}

StageCosts costs(Optimizer optimizer, int shards, double optimizer_bytes = 12) {
  TransformerSpec model = gpt_small();
  model.bytes.optimizer = optimizer_bytes;
  return stage_costs(model, plain_device(), {6, 6},
                     {.sharding = zero_1(shards), .optimizer = optimizer})[1];
}
StageCosts costs(bool muon, int shards, double optimizer_bytes = 12) {
  return costs(muon ? Optimizer::muon : Optimizer::adamw, shards, optimizer_bytes);
}

TEST(Muon, MatricesKeepOneMomentOfTwo) {
  const double matrices = 6 * 12 * kH * kH;
  for (const int shards : {1, 4}) {
    EXPECT_NEAR(static_cast<double>(costs(false, shards).optimizer_bytes -
                                    costs(true, shards).optimizer_bytes),
                4 * matrices / shards, 1);
    EXPECT_EQ(costs(false, shards).reduced_bytes, costs(true, shards).reduced_bytes);
  }
  EXPECT_NEAR(
      static_cast<double>(costs(false, 1, 8).optimizer_bytes - costs(true, 1, 8).optimizer_bytes),
      2 * matrices, 1)
      << "moments of two bytes beside masters of four";
}

TEST(Muon, ItsStepLastsAsLongAsTheMatricesOfTheReplicaWithMost) {
  const DeviceSpec device = plain_device();
  const double rate =
      device.peak_flops_per_s.at(gpt_small().compute_type) * device.efficiency_at(kH);
  const double cube = kH * kH * kH;
  EXPECT_NEAR(costs(true, 1).step_s - costs(false, 1).step_s, 6 * 300 * cube / rate, 1e-12);
  // Twelve matrices of 90 and 24 of 30: four replicas have 3 and 6 of them; of 48, none has more
  // than one of 90.
  EXPECT_NEAR(costs(true, 4).step_s - costs(false, 4).step_s, 450 * cube / rate, 1e-12);
  EXPECT_DOUBLE_EQ(most_flops(layer_matrices(gpt_small(), Layer(gpt_small()), {}, {}, 6),
                              &LayerMatrix::muon_flops, 48),
                   90 * cube);
}

TEST(Muon, PiecesOfMatricesAreGatheredAndGivenBackWhereGradientsOrWeightsAreDivided) {
  const CollectivePrice price{1e-3, 1e-9};
  const auto step_s = [&](Sharded what, Optimizer optimizer) {
    const Sharding sharding{.what = what, .group = 4, .sharers = 4};
    return stage_costs(gpt_small(), plain_device(), {6, 6},
                       {.sharding = sharding, .optimizer = optimizer, .matrix_exchange = price})[1]
        .step_s;
  };
  const double elements = 6 * 12 * kH * kH;
  for (const auto& [optimizer, bytes] :
       {std::pair{Optimizer::muon, 2}, std::pair{Optimizer::basis_rotation, 4}}) {
    const double whole =
        step_s(Sharded::optimizer, optimizer) - step_s(Sharded::optimizer, Optimizer::adamw);
    for (const Sharded what : {Sharded::gradients, Sharded::weights})
      EXPECT_NEAR(step_s(what, optimizer) - step_s(what, Optimizer::adamw) - whole,
                  2 * price.seconds(bytes * elements / 4), 1e-12);
  }
}

// Six layers have four squares of h and two matrices of h x 4h each.
TEST(BasisRotation, ItsMeansAndBasesAreKeptBesideTheMoments) {
  const double sides = 6 * (4 * 2 + 2 * (1 + 16)) * kH * kH;
  for (const int shards : {1, 4})
    EXPECT_NEAR(static_cast<double>(costs(Optimizer::basis_rotation, shards).optimizer_bytes -
                                    costs(Optimizer::adamw, shards).optimizer_bytes),
                4 * 2 * sides / shards, 1);
}

TEST(BasisRotation, ItsStepIsProductsWithBothSidesAndATenthOfTwoDecompositions) {
  const DeviceSpec device = plain_device();
  const double cube = kH * kH * kH;
  const double square = 8 * 2 * cube + 2 * cube * (2 + 8.0 / 3) / 10;
  const double wide = 8 * 4 * 5 * cube + (1 + 64) * cube * (2 + 8.0 / 3) / 10;
  EXPECT_NEAR((LayerMatrix{kH, 4 * kH}).rotation_flops(), wide, 1e-9 * wide);
  const double rate = device.peak_flops_per_s.at("fp32") * device.efficiency_at(kH);
  EXPECT_NEAR(costs(Optimizer::basis_rotation, 1).step_s - costs(Optimizer::adamw, 1).step_s,
              6 * (4 * square + 2 * wide) / rate, 1e-12);
}

/// Mixtral-8x7B's layer: h = 4096, eight experts of SwiGLU with f = 14336, keys of 1024.
TransformerSpec mixtral() {
  TransformerSpec t = llama_3_8b();
  t.name = "mixtral-8x7b";
  t.vocab_size = 32000;
  t.experts = Experts{.count = 8, .top_k = 2, .width = 14336};
  t.bytes.optimizer = 12;
  return t;
}

// Eight GPUs have an expert each; two replicas of sixteen have the same, and divide its states.
TEST(ExpertMatrices, AreDividedAmongThoseThatHaveTheSameExperts) {
  const auto of = [](Optimizer optimizer) {
    Sharding sharding = zero_1(16);
    sharding.expert_sharers = 2;
    return stage_costs(mixtral(), plain_device(), {16, 16},
                       {.sharding = sharding, .optimizer = optimizer, .expert = {.degree = 8}})[0];
  };
  const double h = 4096, f = 14336, kv = 1024, layers = 16;
  const auto sides = [](double r, double c) { return 2 * (r * r + c * c); };
  const double dense_sides = 2 * sides(h, h) + 2 * sides(kv, h) + sides(8, h);
  const double expert_sides = sides(h, 2 * f) + sides(f, h);
  const StageCosts adamw = of(Optimizer::adamw), muon = of(Optimizer::muon),
                   rotated = of(Optimizer::basis_rotation);
  EXPECT_NEAR(static_cast<double>(rotated.optimizer_bytes - adamw.optimizer_bytes),
              4 * layers * (dense_sides / 16 + expert_sides / 2), 1);
  EXPECT_NEAR(static_cast<double>(adamw.optimizer_bytes - muon.optimizer_bytes),
              4 * layers * ((2 * h * h + 2 * kv * h + 8 * h) / 16 + 3 * h * f / 2), 1);
  // Each of the two does eight of an expert's 16 layers; each of the sixteen does two squares, two
  // of keys or values, and a router.
  const auto steps = [](double s, double l) { return 5 * (4 * s * s * l + 2 * s * s * s); };
  const double flops =
      8 * (steps(h, 2 * f) + steps(h, f)) + 2 * steps(h, h) + 2 * steps(kv, h) + steps(8, h);
  const DeviceSpec device = plain_device();
  EXPECT_NEAR(muon.step_s - adamw.step_s,
              flops / (device.peak_flops_per_s.at("bf16") * device.efficiency_at(h)), 1e-9);
}

}  // namespace
}  // namespace penstock::muon_test
