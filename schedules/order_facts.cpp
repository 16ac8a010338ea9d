#include "schedules/order_facts.hpp"

#include <algorithm>

namespace penstock {

OrderFacts order_facts(const Program& program, int device) {
  OrderFacts facts;
  std::uint32_t stash = 0;
  std::uint32_t updates = 0;
  std::uint32_t oldest_used = kNoOp;  // version, of the gradients since the last update
  for (const Op& op : program.ops.of(device)) {
    switch (op.kind) {
      case OpKind::forward: facts.stash_peak = std::max(facts.stash_peak, ++stash); break;
      case OpKind::backward:
      case OpKind::backward_weight:
        --stash;
        oldest_used = std::min(oldest_used, program.version(op));
        break;
      case OpKind::step:
        facts.staleness_max =
            std::max(facts.staleness_max, updates - std::min(updates, oldest_used));
        oldest_used = kNoOp;
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
