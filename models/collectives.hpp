// Collectives in closed form.
#pragma once

#include <cstdint>

namespace penstock {

/// Ring all-reduce of `bytes` over n members (Patarasuk and Yuan, 2009):
/// 2 (n-1) latency + 2 (n-1)/n bytes / bandwidth, seconds; 0 for one member.
double ring_all_reduce_s(int members, double bytes, double latency_s, double bytes_per_s);

}  // namespace penstock
