// SPDX-License-Identifier: Apache-2.0
// SimuMax's results (github.com/MooreThreads/SimuMax, docs/b200) as a table of training runs
// (validate/run_table.hpp): JSON with `rows[]` of `case`, `model`, `layer_num`, `mbc`, `real_ms`
// and `real_alloc_gib`, where a case such as llama3_70b_l12_tp2_cp4_pp1_dp1_seq32768_mbc4 has its
// degrees in its name. Llama 3 of 70 and 405 billion parameters is known, cut to `layer_num`
// layers; mixtures of experts are left out, with the reason.
#pragma once

#include "base/csv.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// Returns whether this text is JSON of that kind.
bool is_simumax(std::string_view text);

/// Returns its rows as a table of runs. Microbatches of one sequence (of 4,096 tokens unless the
/// case says otherwise) and ZeRO-1 are assumed. Throws InputError.
CsvTable simumax_as_runs(const std::string& text, const std::string& origin);

}  // namespace penstock
