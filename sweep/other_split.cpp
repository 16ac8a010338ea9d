// SPDX-License-Identifier: Apache-2.0
#include "sweep/other_split.hpp"

namespace penstock {

void look_for_split(Overview& overview, const Evaluator& evaluator, const Space& space,
                    const std::atomic<bool>& stop) {
  for (const std::uint64_t point : overview.faster_unfit()) {
    if (stop) return;
    Point other = space.point(point);
    const auto split = evaluator.fitting_split(other);
    if (!split) continue;
    other.changes.push_back({"pipeline.split", *split});
    const Row row = evaluator.row(other);
    if (row.status == Row::Status::ok && overview.would_fit(point, *split, row)) return;
  }
}

}  // namespace penstock
