// SPDX-License-Identifier: Apache-2.0
// Files of other tools that say a part of a scenario, as YAML of ours; whole jobs are imported by
// scenarios/megatron_import.hpp and config_import.hpp. All throw InputError.
#pragma once

#include <string>

namespace penstock {

/// Megatron's layout string, as keys of `pipeline`. `stages`: devices of the pipeline, as text;
/// empty: one of each virtual stage.
std::string import_layout(const std::string& layout, const std::string& stages);

/// A schedule of torch.distributed.pipelining, the text of the file at `path`, with unit costs.
std::string import_csv(const std::string& text, const std::string& path);

/// The model file that says what another tool's does, or the nearest, with what that leaves out.
std::string import_model(const std::string& path);

/// A scenario of a profile's layers, with the cluster to be filled in. `stages`: as text; empty: up
/// to 4.
std::string import_profile(const std::string& path, const std::string& stages);

/// A table of layers names its columns; one of torch.distributed.pipelining has none.
bool is_layer_table(const std::string& text);

}  // namespace penstock
