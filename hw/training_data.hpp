// SPDX-License-Identifier: Apache-2.0
// What a model is trained and evaluated on: which tokens the sequences of a microbatch have.
// Held-out microbatches (kHeldOut) are the same whatever the seed of the run.
#pragma once

#include "hw/math.hpp"
#include "hw/run_plan.hpp"

#include <optional>

namespace penstock {

/// Tokens of a microbatch of so many sequences of the plan's model.
TokenSource token_source(const TrainingSpec& training, const std::string* text,
                         const TransformerSpec& model, std::int64_t sequences,
                         std::uint32_t microbatch);

/// Reads the text of a plan that has one. Throws InputError where it is too short, or has bytes
/// beyond the model's vocabulary, SystemError where it cannot be read.
void load_text(RunPlan& plan);

/// Why the model cannot learn from the data; empty: it can.
std::string why_no_data(const RunPlan& plan);

/// Nats per token that no model's mean loss can be below, where they are known.
std::optional<double> loss_floor(const RunPlan& plan);

}  // namespace penstock
