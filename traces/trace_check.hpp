// SPDX-License-Identifier: Apache-2.0
// Checks a Chrome trace against what the real viewers need (docs/trace-format.md): lanes without
// overlap, no pid or tid 0, matched flows inside slices, one counter sample per instant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

struct TraceReport {
  std::int64_t events = 0, slices = 0, counters = 0, flows = 0, lanes = 0, processes = 0;
  std::int64_t violations = 0;
  std::vector<std::string> first;  ///< the first twenty violations, one sentence each
};

/// Reads a `.json` or `.json.gz` trace. Throws SystemError, or InputError when it is not JSON.
TraceReport check_trace(const std::string& path);

}  // namespace penstock
