// SPDX-License-Identifier: Apache-2.0
// Weight versions as buffers, on a device of the host: how many there are, what they hold and when
// one is written over.
#include "hw/host/device.hpp"
#include "hw/math.hpp"
#include "hw/weights.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace penstock::weights_test {
namespace {

/// Four parameters: 1, 2, 3, 4.
class Counting : public Stage {
 public:
  Counting() { sizes_.parameters = 4; }
  const StageSizes& sizes() const override { return sizes_; }
  void initialize(std::span<float> weights) const override {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i + 1);
  }
  void forward(Math&, const StageBuffers&, std::uint32_t) const override {}
  void backward_input(Math&, const StageBuffers&, std::uint32_t) const override {}
  void backward_weight(Math&, const StageBuffers&, std::uint32_t) const override {}

 private:
  StageSizes sizes_;
};

class WeightVersions : public testing::Test {
 protected:
  WeightVersions() {
    plan_.program.placement = loop_placement(1, 1, 1);
    plan_.program.microbatches_per_update = 2;
    plan_.optimizer.learning_rate = 0.5;
    bytes_.weights = 16, bytes_.version = 17, bytes_.gradients = 18, bytes_.optimizer = 19;
  }
  ~WeightVersions() override { device_.close(); }

  WeightStore store(std::vector<std::int64_t> last_use) {
    return {plan_, stage_, bytes_, device_, ledger_, std::move(last_use)};
  }
  /// A step at `position` after a gradient of 2 in every place.
  void step(WeightStore& weights, std::int64_t position) {
    const std::vector<float> gradient(4, 2);
    device_.upload(weights.gradients(), gradient.data(), 16);
    weights.step(position);
  }
  std::vector<float> values(Tensor tensor) {
    std::vector<float> values(4);
    device_.download(values.data(), tensor, 16);
    return values;
  }

  RunPlan plan_;
  Counting stage_;
  StageHoldings bytes_;
  RunControl control_{0};
  HostClock clock_{true};
  HostDevice device_{0, control_, clock_};
  Ledger ledger_;
};

TEST_F(WeightVersions, BeginWithTheStagesOwnAndAGradientOfZero) {
  const WeightStore weights = store({9, -1});
  EXPECT_EQ(values(weights.version(0)), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values(weights.gradients()), std::vector<float>(4, 0));
  EXPECT_EQ(ledger_.peak().use.total(), 16 + 18 + 19);
}

TEST_F(WeightVersions, TakeTheMeanGradientAndClearIt) {
  WeightStore weights = store({0, 9});
  step(weights, 1);
  // 0.5 times the mean of two microbatches whose sum is 2.
  EXPECT_EQ(values(weights.version(1)), (std::vector<float>{0.5, 1.5, 2.5, 3.5}));
  EXPECT_EQ(values(weights.gradients()), std::vector<float>(4, 0));
}

TEST_F(WeightVersions, AreWrittenOverWhenNobodyUsesThemAnyMore) {
  WeightStore weights = store({0, 2, 4, 6});
  for (const std::int64_t position : {1, 3, 5}) step(weights, position);
  EXPECT_EQ(weights.versions_peak(), 1);
  EXPECT_EQ(values(weights.version(3)), (std::vector<float>{-0.5, 0.5, 1.5, 2.5}));
  EXPECT_THROW(weights.version(2), InternalBug);
}

TEST_F(WeightVersions, AreKeptWhileALaterOpUsesThem) {
  WeightStore weights = store({4, 6, 8, 9});
  step(weights, 1);
  step(weights, 2);
  EXPECT_EQ(weights.versions_peak(), 3);
  EXPECT_EQ(values(weights.version(0)), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values(weights.version(1)), (std::vector<float>{0.5, 1.5, 2.5, 3.5}));
  EXPECT_EQ(values(weights.version(2)), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(ledger_.peak().use[Owner::weight_versions], 2 * 17);
  step(weights, 5);  // version 0 has retired: its buffer serves again
  EXPECT_EQ(weights.versions_peak(), 3);
  EXPECT_THROW(weights.version(0), InternalBug);
  EXPECT_EQ(values(weights.version(1)), (std::vector<float>{0.5, 1.5, 2.5, 3.5}));
}

TEST_F(WeightVersions, OfTwoBufferedWeightsAreNeverThree) {
  // 2BW with two microbatches an update: version v is used until its next update's last backward.
  std::vector<std::int64_t> last_use;
  for (int v = 0; v <= 6; ++v) last_use.push_back(10 * v + 15);
  WeightStore weights = store(last_use);
  for (int v = 1; v <= 6; ++v) step(weights, 10 * v);
  EXPECT_EQ(weights.versions_peak(), 2);
}

// PipeMare's T2: w - tau delta, with delta the average of what the steps changed.
TEST_F(WeightVersions, OfABackwardAreCorrectedForTheDelayOfItsForward) {
  plan_.program.versions.kind = VersionRule::Kind::latest;
  plan_.program.versions.backward = VersionRule::Backward::corrected;
  plan_.program.versions.delay = {3};
  const double tau = 3.0 / 2, gamma = std::pow(0.135, 1 / tau);
  WeightStore weights = store({0, 2, 4, 6});
  EXPECT_EQ(values(weights.for_backward(0)), values(weights.version(0)));
  double delta = 0;
  for (std::uint32_t made = 1; made <= 3; ++made) {
    step(weights, 2 * made - 1);
    delta = gamma * delta + (1 - gamma) * -0.5;  // every step takes 0.5 from every weight
    const auto expected = values(weights.version(made)), found = values(weights.for_backward(made));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(static_cast<double>(found[i]), static_cast<double>(expected[i]) - tau * delta,
                  1e-6);
  }
  EXPECT_EQ(weights.versions_peak(), 1);
  EXPECT_EQ(ledger_.peak().use[Owner::weight_versions], 17);
}

TEST_F(WeightVersions, OfABackwardAreMixedByHowStaleTheirsIs) {
  plan_.program.versions.kind = VersionRule::Kind::listed;
  plan_.program.versions.backward = VersionRule::Backward::mixed;
  WeightStore weights = store({9, 9, 9, 9});
  EXPECT_EQ(values(weights.for_backward(0)), (std::vector<float>{1, 2, 3, 4}));
  step(weights, 1);
  step(weights, 2);  // 0, 1, 2, 3
  const auto of_two = values(weights.for_backward(0)), of_one = values(weights.for_backward(1));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(of_two[i]), static_cast<double>(i) + std::exp(-2.0), 1e-6);
    EXPECT_NEAR(static_cast<double>(of_one[i]), static_cast<double>(i) + std::exp(-1.0) / 2, 1e-6);
  }
  EXPECT_EQ(values(weights.for_backward(2)), values(weights.version(2)));
  EXPECT_EQ(ledger_.peak().use[Owner::weight_versions], 3 * 17);  // two versions and the mix
}

TEST_F(WeightVersions, AreReadBackAsBytes) {
  WeightStore weights = store({0, 9});
  step(weights, 1);
  const std::string bytes = weights.newest();
  ASSERT_EQ(bytes.size(), 16U);
  std::vector<float> read(4);
  std::memcpy(read.data(), bytes.data(), 16);
  EXPECT_EQ(read, values(weights.version(1)));
}

}  // namespace
}  // namespace penstock::weights_test
