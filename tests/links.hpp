// SPDX-License-Identifier: Apache-2.0
// Shorthand of tests: links.
#pragma once

#include "models/topology.hpp"

namespace penstock {

inline LinkSpec wire(double latency_s, double bytes_per_s, bool full_duplex = true) {
  LinkSpec link;
  link.latency_s = latency_s;
  link.bytes_per_s = bytes_per_s;
  link.full_duplex = full_duplex;
  return link;
}

}  // namespace penstock
