// SPDX-License-Identifier: Apache-2.0
#include "program/order_facts.hpp"

#include <algorithm>

namespace penstock {

OrderFacts order_facts(const Program& program, int device) {
  OrderFacts facts;
  std::uint32_t stash = 0;
  std::uint32_t updates = 0;
  std::vector<std::uint32_t> oldest_used;  // version, by update
  for (const Op& op : program.ops.of_device(device)) {
    if (is_compute(op.kind)) {
      const std::uint32_t update = program.local(op) / program.per_update(op.stage);
      if (update >= oldest_used.size()) oldest_used.resize(update + 1, kNoOp);
      oldest_used[update] = std::min(oldest_used[update], program.version(op));
    }
    switch (op.kind) {
      case OpKind::forward: facts.stash_peak = std::max(facts.stash_peak, ++stash); break;
      case OpKind::backward:
      case OpKind::backward_weight: stash -= program.microbatches_of(op); break;
      case OpKind::step:
        if (updates < oldest_used.size()) {
          facts.staleness_max =
              std::max(facts.staleness_max, updates - std::min(updates, oldest_used[updates]));
        }
        ++updates;
        facts.weight_versions_peak = std::max(
            facts.weight_versions_peak, std::min(updates + 1, program.versions.held(op.stage)));
        break;
      default: break;
    }
  }
  return facts;
}

}  // namespace penstock
