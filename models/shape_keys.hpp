// SPDX-License-Identifier: Apache-2.0
// A model by shape as the keys of a scenario's `model` that make it again.
#pragma once

#include "models/transformer.hpp"

#include <string>
#include <utility>
#include <vector>

namespace penstock {

/// Returns its keys and values but for `name` and `bytes_per_parameter`, in the order of the table
/// of keys; of those that a family is a preset of, the ones that differ from it.
std::vector<std::pair<std::string, std::string>> shape_keys(const TransformerSpec& model);

}  // namespace penstock
