// SPDX-License-Identifier: Apache-2.0
// Layers of a chain with their measured times, as a table: what torchgpipe's profile_times and
// profile_sizes measure (github.com/kakaobrain/torchgpipe, torchgpipe/balance/profile.py), or any
// timing of a sequential model. The first line names the columns, in any order; values carry units:
//
//   layer,forward,backward,activation,parameters
//   conv1,1.5 ms,3.1 ms,98 MiB,37 KB
//
// A unit may stand in the first line instead, for all cells that have none (`forward [ms]`,
// `fwd_ms`, `act (MB)`), and columns may have their usual other names (fwd, bwd, act, params,
// "Forward time", num_params), separated by semicolons or tabs, too. A bare number of parameters
// counts them, 4 bytes each (`params [M]`: millions). `time` may stand for forward and backward
// together (a third and two thirds of it). `activation` (the layer's output), `stash` (what it
// keeps for its backward beside the output) and `parameters` (fp32 bytes) may be left out; they are
// then zero. Blank lines and lines that begin with '#' are skipped. `load_pipedream_profile` takes
// files that end in .csv for such tables.
#pragma once

#include "models/pipedream_profile.hpp"

namespace penstock {

/// Reads a table as the profile of a chain; `origin` names it in errors. Throws InputError with
/// everything wrong with it.
PipedreamProfile parse_layer_table(const std::string& text, const std::string& origin);

}  // namespace penstock
