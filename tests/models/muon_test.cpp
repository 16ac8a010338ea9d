// SPDX-License-Identifier: Apache-2.0
// What Muon changes of a stage's costs, against formulas written down for one shape.
#include "models/muon.hpp"

#include "models/stage_costs.hpp"
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::muon_test {
namespace {

constexpr double kH = 768;

TEST(Muon, NewtonSchulzOfASquareTakes30CubesOfItsSide) {
  EXPECT_DOUBLE_EQ((MuonMatrix{100, 100}).flops(), 30e6);
  EXPECT_DOUBLE_EQ((MuonMatrix{100, 400}).flops(), 5 * (4 * 100e2 * 400 + 2e6));
  EXPECT_DOUBLE_EQ((MuonMatrix{400, 100}).flops(), (MuonMatrix{100, 400}).flops());
}

TEST(Muon, AGptLayerHasFourSquaresAndTwoOfTheMlp) {
  double elements = 0, flops = 0;
  for (const MuonMatrix& m : muon_matrices(gpt_small(), Layer(gpt_small()))) {
    elements += m.elements();
    flops += m.flops();
  }
  EXPECT_DOUBLE_EQ(elements, 12 * kH * kH);
  // Four squares of 30 h^3, two of h x 4h with 5 (16 + 2) h^3.
  EXPECT_DOUBLE_EQ(flops, (4 * 30 + 2 * 90) * kH * kH * kH);
  double divided = 0;
  for (const MuonMatrix& m : muon_matrices(gpt_small(), Layer(gpt_small()), {4}))
    divided += m.elements();
  EXPECT_DOUBLE_EQ(divided, 12 * kH * kH / 4);
}

StageCosts costs(bool muon, int shards, double optimizer_bytes = 12) {
  TransformerSpec model = gpt_small();
  model.bytes.optimizer = optimizer_bytes;
  return stage_costs(model, plain_device(), {6, 6}, {.sharding = zero_1(shards), .muon = muon})[1];
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
  EXPECT_DOUBLE_EQ(most_muon_flops(muon_matrices(gpt_small(), Layer(gpt_small()), {}, {}, 6), 48),
                   90 * cube);
}

}  // namespace
}  // namespace penstock::muon_test
