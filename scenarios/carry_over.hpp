// SPDX-License-Identifier: Apache-2.0
// A job under another schedule than its file's: what the file says for its own schedule alone.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

#include <span>

namespace penstock {

/// Where an override names another schedule: takes out the keys of `pipeline` that have no meaning
/// for it, and divides lists of virtual stages anew, so that every device has the work it had, or
/// all are balanced where the last stage moves to another device (chunks that the new schedule does
/// not admit become its usual ones); `transfers: coupled`, which devices of several stages cannot
/// have, becomes `overlapped`. Keys that are `given` stay. What was changed is noted. The
/// document is after the overrides, `before` the schedule of the file; what has no sensible reading
/// is left to be refused.
void carry_over(Value& document, const Value* before, std::span<const std::string> given,
                Diagnostics& diagnostics);

}  // namespace penstock
