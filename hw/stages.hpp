// SPDX-License-Identifier: Apache-2.0
// Which stage of a plan computes what, and which plans can be executed at all.
#pragma once

#include "hw/run_plan.hpp"
#include "hw/stage.hpp"

#include <string>
#include <vector>

namespace penstock {

/// The stage `stage` of the plan, of the real model or a stand-in; `stored`: for microbatches of
/// which nothing is recomputed (Op::stored). Its weights are the same. `share`: of the rank among
/// those that share it (share_of_rank).
std::unique_ptr<Stage> make_stage(const RunPlan& plan, std::uint32_t stage, int element_bytes,
                                  bool stored = false, int share = 0);

/// Why no backend can compute what the plan's stages do, each with what to do instead.
std::vector<std::string> why_not_computable(const RunPlan& plan);

/// Why the executor cannot run the plan, each with what to do instead; empty when it can.
std::vector<std::string> why_not_executable(const RunPlan& plan);

/// Bytes that executing one rank's stages takes at most, on a device with elements this large.
std::int64_t bytes_needed(const RunPlan& plan, int rank, int element_bytes);

}  // namespace penstock
