// SPDX-License-Identifier: Apache-2.0
// Schedules as JSON: building blocks, and what the checker finds of a table of the user's.
#pragma once

#include "base/error.hpp"
#include "base/json.hpp"
#include "schedules/blocks.hpp"
#include "schedules/formats/torch_reader.hpp"

#include <string>

namespace penstock {

/// With what keeps every device busy, and the bound on what each holds.
Json to_json(const BuildingBlock& without_weights);

/// What a schedule of the user's is, with times of equal stages, F = I = W = 1, and free transfers.
Json check_json(const ImportedSchedule& schedule, const std::string& file);
/// Why it is none.
Json check_json(const InputError& error, const std::string& file);

}  // namespace penstock
