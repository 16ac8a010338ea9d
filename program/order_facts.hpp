// SPDX-License-Identifier: Apache-2.0
// What follows from the order of a device's ops alone, whatever they cost.
#pragma once

#include "program/program.hpp"

namespace penstock {

struct OrderFacts {
  std::uint32_t stash_peak = 0;            ///< microbatches in flight: +1 at F, -1 at W or B
  std::uint32_t weight_versions_peak = 1;  ///< the live one and those the rule still holds
  /// Updates made minus version used, at the update; of the oldest weights that an F or B of the
  /// update used, where they differ.
  std::uint32_t staleness_max = 0;
};

OrderFacts order_facts(const Program& program, int device);

}  // namespace penstock
