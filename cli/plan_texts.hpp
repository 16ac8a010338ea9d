// SPDX-License-Identifier: Apache-2.0
// Words about plans of our own search that its text and its report share.
#pragma once

#include "cli/full_plan.hpp"

#include <string>
#include <vector>

namespace penstock {

/// What the mark '*' says.
inline constexpr const char* kOptimistic =
    "microbatches smaller than the device's efficiency curve was measured with: optimistic";

/// "full", or how many stages: "full 3, none 5".
std::string recompute_column(const Choice& choice);
/// "runs in: PyTorch (from its table, --write); not in Megatron-LM: ..."; "": nothing is known.
std::string frameworks_text(const Offer& offer);
/// "6 6 6 5", or "6" where all have as many.
std::string layers_text(const std::vector<int>& layers);
/// Replicas; "8z": they share the optimizer (ZeRO-1).
std::string width_text(const Choice& choice);
/// The tensor degree; "4s": with sequence parallelism.
std::string tensor_text(const Shape& shape);
/// What the best plan costs in money and time; empty where it was not asked. Precondition: there
/// is one.
std::string terms_text(const FullPlan& plan);
/// What GPUs of one kind reach alone, where there are several: a line for each kind.
std::vector<std::string> alone_lines(const FullPlan& plan);
/// What a better plan would be: "faster", "smaller", "cheaper".
std::string better_word(Objective objective);
/// What leaving memory free costs, a line; "": it makes no difference.
std::string headroom_text(const FullPlan& plan);
/// How much better another plan could be; with `statistics` also which, and what would tell.
/// Precondition: there is a plan.
std::string proof(const FullPlan& plan, bool statistics = true);
/// What 1e9 tokens cost, or an update where samples have no length; and the head of its column.
double price_of(const FullPlan& full, const FoundPlan& plan);
std::string price_header(const FullPlan& full);
/// Which plan to run, a line. Precondition: there is one.
std::string recommendation_text(const FullPlan& full);
std::string no_plan(const FullPlan& plan);
/// What the published planners took for granted; empty: nothing.
std::string planner_notes(const FullPlan& plan);
/// "64 GPUs of dgx-h100 (H100): 1024 samples of 8192 tokens per update (8,388,608 tokens), ...".
std::string task_text(const FullPlan& plan);

}  // namespace penstock
