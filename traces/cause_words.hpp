// What the causes of idle time are called in a sentence. "Imbalance" in a file is one word for all
// waiting for an op of another device, which a schedule makes devices of equal work do, too: half
// of (p-1)/(m+p-1) is such waiting. So tables do not call it that.
#pragma once

#include "traces/metrics.hpp"

namespace penstock {

inline constexpr std::string_view kCauseWords[kCauses] = {
    "warmup", "peer not done", "transfer wait", "drain", "gradient reduction"};

}  // namespace penstock
