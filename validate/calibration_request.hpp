// SPDX-License-Identifier: Apache-2.0
// Makes the request of `penstock calibrate`: which model is measured, and at which microbatch sizes
// and recomputation (those of a scenario where one is named).
#pragma once

#include "hw/calibration.hpp"

namespace penstock {

/// Returns the request for a name: that of a scenario's file, of a model, or of a model's file. An
/// empty name means a GPT that a laptop computes in milliseconds. Throws InputError.
CalibrationRequest calibration_request(const std::string& name);

/// Sets the number type: fp32 on the host; on a GPU the one that is `asked` for, else the model's,
/// with bf16 for fp16. Throws InputError.
void set_precision(CalibrationRequest& request, const std::string& backend,
                   const std::string& asked);

/// Adds the sizes of the model's own messages at every microbatch size, so that none is
/// interpolated.
void add_message_sizes(CalibrationRequest& request);

}  // namespace penstock
