// SPDX-License-Identifier: Apache-2.0
// The manifest of a sweep's file says what sweep its rows are of, so that only the same sweep
// continues it.
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
  std::string version;                      ///< the version of penstock
  std::vector<SweptFile> scenarios, named;  ///< the scenarios, and the files that they name
  std::vector<std::string> changes;         ///< the arguments of --set
  std::vector<SweepAxis> axes;
  std::vector<std::string> conditions;
  std::string engine;
  std::string shard = "1/1";  ///< "K/N"; "1/1" is the whole sweep
  std::uint64_t points = 0;   ///< how many points of all shards have a row
};

/// Returns the 64-bit FNV-1a hash of a text in hexadecimal.
std::string hash_of(std::string_view text);

/// Returns the manifest of a shard of a sweep.
Manifest manifest_of(const SweepRecipe& recipe, const Space& space, const std::string& version,
                     const std::string& shard);

std::string to_json(const Manifest& manifest);

/// Returns the manifest of a text. Throws InputError that names `origin` when it is none.
Manifest parse_manifest(const std::string& text, const std::string& origin);

/// Returns how two sweeps differ, a sentence for each difference; none where they are the same
/// sweep.
std::vector<std::string> differences(const Manifest& then, const Manifest& now);

}  // namespace penstock
