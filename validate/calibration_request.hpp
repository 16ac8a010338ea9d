// SPDX-License-Identifier: Apache-2.0
// What `penstock calibrate` measures: a model, at the microbatch sizes and recomputation of a
// scenario where one is named.
#pragma once

#include "hw/calibration.hpp"

namespace penstock {

/// `name`: of a scenario's file, or a model or its file; empty: a GPT that a laptop computes in
/// milliseconds. Throws InputError.
CalibrationRequest calibration_request(const std::string& name);

/// The host computes in fp32; a GPU in what is asked for, by the model if by nobody else, fp16 as
/// bf16. Throws InputError.
void set_precision(CalibrationRequest& request, const std::string& backend,
                   const std::string& asked);

/// The messages of the model itself, at every microbatch size, so that none is interpolated.
void add_message_sizes(CalibrationRequest& request);

}  // namespace penstock
