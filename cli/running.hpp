// SPDX-License-Identifier: Apache-2.0
// What the commands that simulate share: options into values.
#pragma once

#include "cli/options.hpp"
#include "cli/output.hpp"

namespace penstock {

std::vector<Override> overrides_of(const Arguments& arguments);

/// Throws InputError when an argument names no file, as reading a scenario does.
void require_file(const std::string& path);

/// --engine.
EngineChoice engine_of(const Arguments& arguments, EngineChoice usual = EngineChoice::simgrid);

}  // namespace penstock
