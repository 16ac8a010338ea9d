// SPDX-License-Identifier: Apache-2.0
// A shard is a part of a sweep for a machine of its own: --shard K/N.
//
// Of every N points in a row each shard takes one, at another place each time. So shards have the
// same number of points, up to one, and each has its part of the expensive ones: contiguous chunks
// would leave all large values of the slowest axis to the last shard, and every N-th point would
// leave all large values of the fastest axis to one shard whenever N divides their number. The
// place is a hash, so every shard and `merge` know it without messages.
#pragma once

#include "base/launched_as.hpp"

#include <cstdint>
#include <string>

namespace penstock {

struct Shard {
  std::uint64_t index = 0, count = 1;

  /// Returns which of `count` shards has the `ordinal`-th point that has a row.
  static std::uint64_t of_ordinal(std::uint64_t ordinal, std::uint64_t count);
  /// Returns how many of so many points are in this shard.
  std::uint64_t part_of(std::uint64_t points) const;
};

/// Returns the shard "K/N" with 1 <= K <= N, or for "env" that of the environment. Throws
/// InputError.
Shard parse_shard(const std::string& text, const Environment& get = environment);
/// Returns "K/N".
std::string to_string(const Shard& shard);

/// Returns the shard of the task of a job array (Slurm's SLURM_ARRAY_TASK_ID), of the rank of a
/// launcher (base/launched_as.hpp), or of both, where ranks vary within a task. Throws InputError
/// when there is neither, or the array has gaps.
Shard shard_of_environment(const Environment& get);

/// Returns as which of how many ranks a launcher has started this process; none where it is the
/// only one. A batch script of Slurm is no rank, as srun starts these and tells them their step.
std::optional<LaunchedAs> rank_of_many(const Environment& get);

/// Returns a file's name with K in place of %K and N in place of %N.
std::string file_of_shard(std::string name, const Shard& shard);

}  // namespace penstock
