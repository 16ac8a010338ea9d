// SPDX-License-Identifier: Apache-2.0
// What rings take by the textbook (Patarasuk and Yuan, 2009), for tests of what charges for them.
#pragma once

namespace penstock {

/// Returns the seconds of `rounds` times round n members on links of their own, of `bytes` in all:
/// (n-1) latency + (n-1)/n bytes / bandwidth for each; an all-reduce goes round twice, an
/// all-gather or a reduce-scatter once.
inline double ring_s(int rounds, int members, double bytes, double latency_s, double bytes_per_s) {
  const double steps = rounds * (members - 1.0);
  return steps * latency_s + steps / members * bytes / bytes_per_s;
}

}  // namespace penstock
