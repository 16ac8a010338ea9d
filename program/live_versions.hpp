// SPDX-License-Identifier: Apache-2.0
// How many weight versions an order needs at once: those that a later op uses, and the newest.
#pragma once

#include "program/op_lists.hpp"

#include <algorithm>

namespace penstock {

/// The most versions needed after an op of `ops` that makes one (`makes(op)`). `version_of(op)` is
/// what an op uses, kNoOp when nothing; a version is used only once it is made. Linear.
template <class VersionOf, class Makes>
std::uint32_t live_versions(std::span<const Op> ops, const VersionOf& version_of,
                            const Makes& makes) {
  std::vector<std::size_t> last_use;  // by version: one more than the index of the op; 0: none
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::uint32_t version = version_of(ops[i]);
    if (version == kNoOp) continue;
    if (version >= last_use.size()) last_use.resize(std::size_t{version} + 1);
    last_use[version] = i + 1;
  }
  std::uint32_t made = 0, older = 0, most = 1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::uint32_t version = version_of(ops[i]);
    if (version < made && last_use[version] == i + 1) --older;
    if (!makes(ops[i])) continue;
    if (made < last_use.size() && last_use[made] > i + 1) ++older;
    ++made;
    most = std::max(most, older + 1);
  }
  return most;
}

}  // namespace penstock
