// SPDX-License-Identifier: Apache-2.0
// Who is a device, and who adds gradients, along the axes of a mesh.
#include "program/mesh.hpp"

#include "program/op_lists.hpp"

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

using Groups = std::vector<std::vector<int>>;

/// One position of two replicas of four tensor ranks, the GPUs numbered.
TEST(Mesh, GpusOfAPositionAreFactoredOnceMoreForExperts) {
  Mesh both = mesh(2, 4, 1);
  both.gpus = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  const Placement placement = loop_placement({2}, 1);
  both.expert = 4;
  EXPECT_EQ(expert_groups(placement, both, 0), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(expert_reduction_groups(placement, both, 0), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(both.expert_sharers(0), 2);
  both.expert = 2;
  both.expert_tensor = 2;  // neighbours divide an expert, the next two have the other experts
  EXPECT_EQ(expert_groups(placement, both, 0), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(expert_reduction_groups(placement, both, 0), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  both.expert = 8;
  both.expert_tensor = 1;
  EXPECT_EQ(expert_groups(placement, both, 0), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(both.expert_sharers(0), 1);
}

TEST(Mesh, TensorRanksWithTheSameExpertsAddTheirGradients) {
  Mesh one = mesh(1, 4, 1);
  EXPECT_FALSE(one.reduces_within());
  one.expert = 2;
  EXPECT_TRUE(one.reduces_within());
  one.expert = 4;
  EXPECT_FALSE(one.reduces_within());
}

}  // namespace
}  // namespace penstock::mesh_test
