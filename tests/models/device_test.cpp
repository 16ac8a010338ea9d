// SPDX-License-Identifier: Apache-2.0
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::device_test {
namespace {

TEST(Device, CapacityIsWhatIsLeftOfTheMemory) {
  DeviceSpec v100;
  v100.memory_bytes = std::int64_t{16160} << 20;
  v100.reserved_bytes = 900'000'000;
  v100.allocator_slack = 0.06;
  // (16160 MiB - 0.9 GB) * 0.94
  EXPECT_EQ(v100.capacity_bytes(), 15'082'288'870);
}

TEST(Device, CapacityOfAnUnknownMemoryIsUnknown) {
  DeviceSpec d;
  d.reserved_bytes = 1'000;
  EXPECT_EQ(d.capacity_bytes(), 0);
}

TEST(Device, EfficiencyIsLinearInTheLogarithmOfTheSize) {
  DeviceSpec d;
  d.efficiency = {{1024, 0.3}, {4096, 0.5}, {8192, 0.6}};
  EXPECT_DOUBLE_EQ(d.efficiency_at(1024), 0.3);
  EXPECT_DOUBLE_EQ(d.efficiency_at(2048), 0.4);  // halfway, in the logarithm
  EXPECT_DOUBLE_EQ(d.efficiency_at(4096), 0.5);
  EXPECT_NEAR(d.efficiency_at(4096 * std::sqrt(2.0)), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(d.efficiency_at(8192), 0.6);
}

TEST(Device, EfficiencyIsFlatOutsideOfTheCurve) {
  DeviceSpec d;
  d.efficiency = {{1024, 0.3}, {4096, 0.5}};
  EXPECT_DOUBLE_EQ(d.efficiency_at(1), 0.3);
  EXPECT_DOUBLE_EQ(d.efficiency_at(1e6), 0.5);
  d.efficiency = {{1024, 0.3}};
  EXPECT_DOUBLE_EQ(d.efficiency_at(10), 0.3);
  EXPECT_DOUBLE_EQ(d.efficiency_at(10'000), 0.3);
  d.efficiency.clear();
  EXPECT_DOUBLE_EQ(d.efficiency_at(10), 1.0);
}

}  // namespace
}  // namespace penstock::device_test
