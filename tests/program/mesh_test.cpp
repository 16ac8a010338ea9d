// SPDX-License-Identifier: Apache-2.0
// Who is a device, and who adds gradients, along the axes of a mesh.
#include "program/mesh.hpp"

#include <gtest/gtest.h>

namespace penstock::mesh_test {
namespace {

Mesh mesh(int width, int tensor, int context, bool divided = false) {
  Mesh made{.width = width, .divided = divided};
  made.size(Axis::tensor) = tensor;
  made.size(Axis::context) = context;
  return made;
}

TEST(Mesh, HasADeviceForEachReplicaThatTakesTurnsAndOneForThoseThatDivideMicrobatches) {
  EXPECT_EQ(mesh(3, 2, 1).devices(4), 12);
  EXPECT_EQ(mesh(3, 2, 1, true).devices(4), 4);
  EXPECT_EQ(mesh(3, 2, 1).ranks(4), 24);
  EXPECT_EQ(mesh(3, 2, 1, true).ranks(4), 24);
}

TEST(Mesh, GpusOfADeviceAddGradientsWhereTheyHaveTheSameWeightsAndOtherSamplesOrTokens) {
  EXPECT_FALSE(mesh(3, 2, 1).reduces_within()) << "other replicas are other devices";
  EXPECT_TRUE(mesh(3, 1, 1, true).reduces_within());
  EXPECT_TRUE(mesh(1, 1, 2).reduces_within());
}

}  // namespace
}  // namespace penstock::mesh_test
