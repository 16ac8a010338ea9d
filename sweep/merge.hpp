// SPDX-License-Identifier: Apache-2.0
// Merges the files of all shards of a sweep into the file that the undivided sweep would have
// written.
//
// It is known which shard has the next row (sweep/shard.hpp), so one pass over all files proves
// that none is missing, cut short or given twice, and puts the rows in order. Only one row of each
// file is kept in memory.
#pragma once

#include "sweep/output.hpp"

namespace penstock {

struct Merged {
  std::uint64_t rows = 0;
  std::uint64_t failed = 0;  ///< how many of the rows are `failed`
};

/// Merges files, each of any of the three kinds. Reads everything before it touches `output`.
/// Throws InputError with all that is wrong: shards of other sweeps, missing shards, shards given
/// twice, rows that are missing or were changed. Throws SystemError.
Merged merge_shards(const std::vector<std::string>& files, const std::string& output,
                    Existing existing);

}  // namespace penstock
