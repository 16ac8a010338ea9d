// SPDX-License-Identifier: Apache-2.0
// Tables of measured kernels. A row has a kernel's shape, its device and how long it took on the
// GPU; it is predicted by its device's file of kernel times (models/kernels/kernel_times.hpp).
// Columns, in any order (`device` may stand for `gpu`; others are ignored):
//
//   products      gpu, dtype, m, n, k, latency_us           fp8: with amax and cast of A before it
//   experts       gpu, dtype, tokens, hidden, inter, topk, experts, gated, tp, ep, dist, [load],
//                 latency_us
//   attention     gpu, kind, dtype, batch, seq, heads, kv_heads, head_dim, [src], latency_us
//   collectives   gpu, op, ranks, bytes, latency_us         bytes as nccl-tests counts them
//   memory-bound  gpu, op, bytes, latency_us                cast_fp8, amax
#pragma once

#include "validate/measured_rows.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Returns whether a header names all columns of one of these tables.
bool is_kernel_table(const std::vector<std::string>& columns);

/// Returns every row with its prediction. Rows that cannot be predicted are left out, and noted
/// with the reason. Throws InputError with everything that is wrong, or with the reasons where no
/// row is left.
MeasuredReport kernels_report(const std::string& text, const std::string& origin);

}  // namespace penstock
