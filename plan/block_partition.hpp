// SPDX-License-Identifier: Apache-2.0
// Divides a sequence into blocks that are nearly equal: Barany and Grinberg, "Block partitions of
// sequences", arXiv:1308.2452, as torchgpipe uses it (Kim et al., arXiv:2004.09910;
// torchgpipe/balance).
//
// The costs are shifted and scaled to 0 ... 1. Then any sequence has a partition into k blocks of
// which the largest is at most 1 more than the smallest: as long as it is more, an element moves
// into the smallest block from its neighbour on the side of the largest. O(k n^3).
#pragma once

#include <vector>

namespace penstock {

/// Returns the number of elements of each block. Ties are broken as in torchgpipe: the last of the
/// largest blocks and the first of the smallest are chosen. Requires 1 <= blocks <= costs.size().
std::vector<int> block_partition(const std::vector<double>& costs, int blocks);

}  // namespace penstock
