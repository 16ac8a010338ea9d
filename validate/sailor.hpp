// SPDX-License-Identifier: Apache-2.0
// Sailor's measurements (Strati et al., SOSP'25): JSON, a configuration that was run in each file,
// beside layer times of the models and bandwidths of the NICs. The converter
// validate/sailor_runs.py, which says how, makes a table of runs of them.
#pragma once

#include "validate/run_rows.hpp"

namespace penstock {

/// Returns the row of each file, with its model and what there is to say of the model's profiles.
/// `options`: profiles and model. Throws InputError with what is wrong with a file or those around
/// it, SystemError where there is no Python to run the converter.
std::vector<RunRow> sailor_rows(const std::vector<std::string>& files, const RowOptions& options);

}  // namespace penstock
