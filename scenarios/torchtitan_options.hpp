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

}  // namespace penstock
