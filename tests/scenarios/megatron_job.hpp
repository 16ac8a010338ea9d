// SPDX-License-Identifier: Apache-2.0
// A job of Megatron-LM that tests of its importer change.
#pragma once

#include "base/error.hpp"
#include "scenarios/megatron_import.hpp"
#include "scenarios/scenario.hpp"

#include <string>

namespace penstock {

/// A whole job; of a flag that stands twice the later one counts.
inline const std::string kJob =
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--vocab-size 50257 --bf16 --micro-batch-size 1 --global-batch-size 64 ";

inline std::string imported(const std::string& flags, const std::string& cluster = "") {
  return scenario_of_megatron(kJob + flags, "x.sh", cluster);
}

inline Scenario job_of(const std::string& flags) {
  return parse_scenario(imported(flags), "test.yaml");
}

inline std::string refusal_of(const std::string& text, const std::string& origin = "x.sh",
                              const ScriptSurroundings& defined = {},
                              const std::string& model = "") {
  try {
    scenario_of_megatron(text, origin, "", defined, model);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace penstock
