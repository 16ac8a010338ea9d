// SPDX-License-Identifier: Apache-2.0
#include "program/dependencies.hpp"

#include <algorithm>

namespace penstock {

DependencyTable::DependencyTable(const OpLists& lists, const Placement& placement,
                                 std::uint32_t microbatches)
    : lists_(&lists),
      placement_(&placement),
      stages_(static_cast<std::uint32_t>(placement.stages())),
      microbatches_(microbatches) {
  const std::size_t cells = std::size_t{stages_} * microbatches_;
  forward_.assign(cells, kNoOp);
  backward_.assign(cells, kNoOp);
  for (std::uint32_t i = 0; i < lists.size(); ++i) {
    const Op& op = lists[i];
    if (!is_compute(op.kind)) continue;
    if (op.stage >= stages_ || op.microbatch >= microbatches_) {
      rejected_.push_back(i);
      continue;
    }
    if (op.kind == OpKind::backward_weight && weight_.empty()) weight_.assign(cells, kNoOp);
    auto& column = op.kind == OpKind::forward ? forward_
                   : is_backward(op.kind)     ? backward_
                                              : weight_;
    std::uint32_t& cell = column[at(op.stage, op.microbatch)];
    if (cell == kNoOp) {
      cell = i;
    } else {
      rejected_.push_back(i);
    }
  }
}

}  // namespace penstock
