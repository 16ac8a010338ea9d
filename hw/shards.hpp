// SPDX-License-Identifier: Apache-2.0
// How a rank that has a stage with others divides it with them (models/sharding.hpp), unit by unit:
// a unit's weights are gathered and its gradients reduced at once. A rank owns of each unit what it
// begins an all-gather of it with, and what a reduce-scatter of it ends with there; its shard is
// all of that, one after the other.
#pragma once

#include "hw/run_plan.hpp"
#include "hw/stage.hpp"

namespace penstock {

/// Elements of a stage that a rank owns, and where they begin in its shard.
struct OwnedRange {
  std::int64_t first, end, at;
};

struct ShardUnit {
  std::int64_t first, end;  ///< elements of the stage
  std::vector<OwnedRange> owned = {};
  std::vector<CollectiveStep> gather = {}, reduce = {};  ///< the rank's; of elements of the stage

  std::int64_t elements() const { return end - first; }
};

/// The units of a stage on a rank: its pieces, or parts of the gradients where those are reduced
/// when an update ends. None where the plan divides nothing.
struct StageShards {
  StageShards() = default;
  StageShards(const RunPlan& plan, int rank, std::uint32_t number, const Stage& stage);

  std::vector<ShardUnit> units;
  std::int64_t owned = 0;    ///< elements, of all units
  std::int64_t largest = 0;  ///< elements of a unit

  explicit operator bool() const { return !units.empty(); }
};

/// Are the weights of a stage divided between its ops?
inline bool divides_weights(const RunPlan& plan) {
  return plan.sharding.what == Sharded::weights && plan.sharding.gathering == Gathering::each_pass;
}
/// Are its gradients, which every backward then reduces?
inline bool divides_gradients(const RunPlan& plan) { return plan.sharding.reduces_each_backward(); }
/// Does this op of a plan that divides weights gather all of a stage's before it computes?
inline bool gathers_all(const RunPlan& plan, const Op& op) {
  if (op.kind != OpKind::forward || !plan.sharding.sharded() || divides_weights(plan)) return false;
  return plan.sharding.gathering == Gathering::forward || op.has(Op::gathers);
}

}  // namespace penstock
