// SPDX-License-Identifier: Apache-2.0
// What the ledger writes for a stage: its real sizes, or those that an abstract model states.
#pragma once

#include "hw/run_plan.hpp"
#include "hw/shards.hpp"
#include "hw/stage.hpp"
#include "program/holdings.hpp"

namespace penstock {

/// For a stand-in its stated costs (see StageCosts), for a transformer what is really allocated.
/// `stored`: of microbatches of which nothing is recomputed (Op::stored). `shards`: of a rank that
/// divides the stage with others.
StageHoldings accounted_bytes(const RunPlan& plan, std::uint32_t stage, const StageSizes& sizes,
                              int element_bytes, bool stored = false,
                              const StageShards& shards = {});

/// Bytes a message must carry: what the stage makes, and on a wall clock at least what is stated.
std::int64_t payload_bytes(const RunPlan& plan, bool logical_clock, const Op& sender,
                           std::int64_t made_bytes);

}  // namespace penstock
