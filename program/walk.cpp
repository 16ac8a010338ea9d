// SPDX-License-Identifier: Apache-2.0
#include "program/walk.hpp"

namespace penstock {

Barriers::Barriers(const Program& program)
    : placement_(&program.placement),
      global_step_(program.step_sync == StepSync::global),
      asynchronous_(program.asynchronous) {
  const auto stages = static_cast<std::uint32_t>(placement_->stages());
  const auto replica_groups =
      asynchronous_ ? devices() : static_cast<std::uint32_t>(placement_->depth());
  for (std::uint32_t replica_group = 0; replica_group < replica_groups; ++replica_group) {
    const std::uint32_t position =
        asynchronous_ ? placement_->position_of(static_cast<int>(replica_group)) : replica_group;
    first_.push_back(groups_);
    const bool counted_with_mirror =
        !asynchronous_ && placement_->mirror_of(replica_group) < replica_group;
    const std::uint32_t sharers =
        asynchronous_ ? replicas(position) : replica_group_size(replica_group);
    if (counted_with_mirror || (sharers < 2 && !program.reduces_within)) continue;
    std::uint32_t stage = 0;
    while (stage + 1 < stages && placement_->positions()[stage] != position) ++stage;
    groups_ += program.updates(stage);
  }
  first_.push_back(groups_);
  reductions_ = groups_;
  if (global_step_) groups_ += program.batches;
  detached_ = program.detached_reductions && reductions_ > 0;
  reduces_within_ = program.reduces_within;
}

std::uint32_t Barriers::group(const Op& op, int device) const {
  const std::uint32_t update = op.microbatch / replicas(placement_->position_of(device));
  if (everybody(op)) return reductions_ + update;
  return first_[replica_group_of(device)] + update;
}

}  // namespace penstock
