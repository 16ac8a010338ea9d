#include "schedules/walk.hpp"

namespace penstock {

Barriers::Barriers(const Program& program)
    : placement_(&program.placement), global_step_(program.global_step) {
  const auto stages = static_cast<std::uint32_t>(placement_->stages());
  const auto depth = static_cast<std::uint32_t>(placement_->depth());
  for (std::uint32_t position = 0; position < depth; ++position) {
    first_.push_back(groups_);
    if (placement_->widths()[position] < 2 && !program.divided) continue;
    std::uint32_t stage = 0;
    while (stage + 1 < stages && placement_->positions()[stage] != position) ++stage;
    groups_ += program.updates(stage);
  }
  first_.push_back(groups_);
  reductions_ = groups_;
  if (global_step_) groups_ += program.batches;
  detached_ = program.detached_reductions && reductions_ > 0;
  divided_ = program.divided;
}

std::uint32_t Barriers::group(const Op& op, int device) const {
  const std::uint32_t width = this->width(device);
  const std::uint32_t update = op.microbatch / width;
  if (everybody(op)) return reductions_ + update;
  return first_[placement_->position_of(device)] + update;
}

}  // namespace penstock
