// SPDX-License-Identifier: Apache-2.0
// Names of the causes of idle time for sentences: those of JSON (kCauseNames) without underscores,
// so that a cause has one name. "Imbalance" is all waiting for an op of another device; a schedule
// makes devices of equal work wait so, too (half of (p-1)/(m+p-1)).
#pragma once

#include "traces/metrics.hpp"

namespace penstock {

inline constexpr std::string_view kCauseWords[kCauses] = {"warmup", "imbalance", "transfer wait",
                                                          "drain", "gradient reduction"};

}  // namespace penstock
