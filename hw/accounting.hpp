// What the ledger writes for a stage: its real sizes, or those that an abstract model states.
#pragma once

#include "hw/run_plan.hpp"
#include "hw/stage.hpp"

namespace penstock {

/// Bytes of one stage, as StageCosts splits them.
struct AccountedBytes {
  std::int64_t weights = 0, version = 0, gradients = 0, optimizer = 0;
  std::int64_t until_input = 0;   ///< activations from F to the end of I or B
  std::int64_t until_weight = 0;  ///< from F to the end of W or B
  std::int64_t kept = 0;          ///< from I to the end of W
  std::int64_t forward_workspace = 0, backward_workspace = 0;  ///< while F (or I, B, W) runs
  std::int64_t input_message = 0, output_message = 0;          ///< of F; gradients are as large
};

/// For a stand-in its stated costs (see StageCosts), for a transformer what is really allocated.
/// `stored`: of microbatches of which nothing is recomputed (Op::stored).
AccountedBytes accounted_bytes(const RunPlan& plan, std::uint32_t stage, const StageSizes& sizes,
                               int element_bytes, bool stored = false);

/// Bytes a message must carry: what the stage makes, and on a wall clock at least what is stated.
std::int64_t payload_bytes(const RunPlan& plan, bool logical_clock, const Op& sender,
                           std::int64_t made_bytes);

}  // namespace penstock
