// SPDX-License-Identifier: Apache-2.0
// The options of a torchtitan job: its TOML, or the flags of a script that launches it.
#pragma once

#include "scenarios/shell_words.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Returns them in their order, the last of a name counts; `origin` and `defined` as in
/// scenario_of_torchtitan(). Throws InputError where there is none of torchtitan's.
std::vector<ScriptOption> titan_options(const std::string& text, const std::string& origin,
                                        const ScriptSurroundings& defined);

/// A schedule by its names there and here, and the stages that a rank usually has.
struct TitanSchedule {
  const char *theirs, *ours;
  std::int64_t chunks;
};
inline constexpr TitanSchedule kTitanSchedules[] = {
    {"1F1B", "1f1b", 1},
    {"GPipe", "gpipe", 1},
    {"Interleaved1F1B", "interleaved-1f1b-torch", 2},
    {"LoopedBFS", "looped-bfs", 2},
    {"InterleavedZeroBubble", "interleaved-zb", 2},
    {"ZBVZeroBubble", "zb-v", 2},
    {"DualPipeV", "dualpipev", 2}};

/// Returns the layers of each stage by torchtitan's rule, which counts the embedding and the output
/// as so many layers and gives what remains to the first stages (generate_llm_fqn_per_model_part of
/// torchtitan/distributed/pipeline_parallel.py); empty where it has too few.
std::vector<std::int64_t> titan_split(std::int64_t layers, std::int64_t stages,
                                      std::int64_t first_less, std::int64_t last_less);

}  // namespace penstock
