// SPDX-License-Identifier: Apache-2.0
// A scenario in the forms of other programs, one text each: what `penstock export` and `penstock
// plan --write` write.
#pragma once

#include "scenarios/scenario.hpp"

namespace penstock {

/// Megatron-LM's --pipeline-model-parallel-layout, a line. Throws InputError where the scenario has
/// no layers, or virtual stages elsewhere than Megatron-LM puts them.
std::string layout_text(const Scenario& scenario);

/// The table of torch.distributed.pipelining, compute only: of one batch, or of the run where the
/// schedule does not flush, of one pipeline. Throws InputError where stages have different numbers
/// of replicas.
std::string torch_csv(const Scenario& scenario);

}  // namespace penstock
