// SPDX-License-Identifier: Apache-2.0
// What Megatron-LM's and Megatron-DeepSpeed's flags mean for a prediction where they become no key
// of a scenario: nothing, or something that is not modelled.
#pragma once

#include "scenarios/import_notes.hpp"

namespace penstock {

const KnownOptions& megatron_flags();

}  // namespace penstock
