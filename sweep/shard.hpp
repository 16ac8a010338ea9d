// SPDX-License-Identifier: Apache-2.0
// A part of a sweep for a machine of its own: --shard K/N.
//
// Of every N points that follow one another each shard takes one, another place each time. Shards
// so have the same number of points, give or take one, and each has its part of what is expensive:
// contiguous chunks would leave all large values of the slowest axis to the last shard, and every
// N-th point all large values of the fastest axis to one of them whenever N divides their number.
// The place is a hash, so that it is known without talking to anyone, and `merge` knows it, too.
#pragma once

#include "base/launched_as.hpp"

#include <cstdint>
#include <string>

namespace penstock {

struct Shard {
  std::uint64_t index = 0, count = 1;

  /// Which of `count` shards has the `ordinal`-th point that has a row.
  static std::uint64_t of_ordinal(std::uint64_t ordinal, std::uint64_t count);
  /// How many of so many points are this one's.
  std::uint64_t part_of(std::uint64_t points) const;
};

/// "K/N" with 1 <= K <= N; "env": what the environment says. Throws InputError.
Shard parse_shard(const std::string& text, const Environment& get = environment);
/// "K/N".
std::string to_string(const Shard& shard);

/// The task of a job array (Slurm's SLURM_ARRAY_TASK_ID) and the rank of a launcher (see
/// base/launched_as.hpp), or both: ranks vary within a task. Throws InputError when there is
/// neither, or the array has gaps.
Shard shard_of_environment(const Environment& get);

/// As which of how many ranks a launcher has started this process; none: as the only one. A batch
/// script of Slurm is no rank: srun starts those, and tells them their step.
std::optional<LaunchedAs> rank_of_many(const Environment& get);

/// A file's name with K for %K and N for %N.
std::string file_of_shard(std::string name, const Shard& shard);

}  // namespace penstock
