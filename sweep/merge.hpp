// SPDX-License-Identifier: Apache-2.0
// The files of all shards of a sweep become the file that the sweep would have written by itself.
//
// Which shard has the next row is known (sweep/shard.hpp), so one pass over all files proves that
// none is missing, cut short or there twice, and puts the rows in their order. Nothing is kept in
// memory but a row of each file.
#pragma once

#include "sweep/output.hpp"

namespace penstock {

struct Merged {
  std::uint64_t rows = 0;
  std::uint64_t failed = 0;  ///< of them
};

/// Files may be of any of the three kinds. Everything is read, and all that is wrong with it said,
/// before `output` is touched. Throws InputError: shards of other sweeps, missing ones, ones that
/// are there twice, rows that are missing or were changed; SystemError.
Merged merge_shards(const std::vector<std::string>& files, const std::string& output,
                    Existing existing);

}  // namespace penstock
