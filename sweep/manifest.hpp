// What sweep a file's rows are of, so that only the same sweep continues it.
#pragma once

#include "sweep/space.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

struct Manifest {
  std::string version;                                         ///< of penstock
  std::vector<std::pair<std::string, std::string>> scenarios;  ///< file, hash of its text
  std::vector<std::pair<std::string, std::string>> named;      ///< the same of files they name
  std::vector<std::string> changes;                            ///< --set
  std::vector<SweepAxis> axes;
  std::vector<std::string> conditions;
  std::string engine;
  std::string shard = "1/1";  ///< K of N; 1/1: all
  std::uint64_t points = 0;   ///< that have a row, of all shards
};

/// FNV-1a, 64 bits, as hexadecimal.
std::string hash_of(std::string_view text);

std::string to_json(const Manifest& manifest);

/// Throws InputError naming `origin` when this is none.
Manifest parse_manifest(const std::string& text, const std::string& origin);

/// What `now` does otherwise than `then`, a sentence each; none: they are the same sweep.
std::vector<std::string> differences(const Manifest& then, const Manifest& now);

}  // namespace penstock
