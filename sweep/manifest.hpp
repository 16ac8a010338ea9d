// SPDX-License-Identifier: Apache-2.0
// What sweep a file's rows are of, so that only the same sweep continues it.
#pragma once

#include "sweep/elsewhere.hpp"
#include "sweep/space.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// A file and the hash of its text.
struct SweptFile {
  std::string file, hash;
};

struct Manifest {
  std::string version;                      ///< of penstock
  std::vector<SweptFile> scenarios, named;  ///< and the files that they name
  std::vector<std::string> changes;         ///< --set
  std::vector<SweepAxis> axes;
  std::vector<std::string> conditions;
  std::string engine;
  std::string shard = "1/1";  ///< K of N; 1/1: all
  std::uint64_t points = 0;   ///< that have a row, of all shards
};

/// FNV-1a, 64 bits, as hexadecimal.
std::string hash_of(std::string_view text);

/// Of this version of penstock and this shard.
Manifest manifest_of(const SweepRecipe& recipe, const Space& space, const std::string& version,
                     const std::string& shard);

std::string to_json(const Manifest& manifest);

/// Throws InputError naming `origin` when this is none.
Manifest parse_manifest(const std::string& text, const std::string& origin);

/// What `now` does otherwise than `then`, a sentence each; none: they are the same sweep.
std::vector<std::string> differences(const Manifest& then, const Manifest& now);

}  // namespace penstock
