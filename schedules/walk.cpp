#include "schedules/walk.hpp"

namespace penstock {

Barriers::Barriers(const Program& program)
    : global_step_(program.global_step),
      devices_(static_cast<std::uint32_t>(program.placement.devices())),
      depth_(static_cast<std::uint32_t>(program.placement.depth)),
      width_(static_cast<std::uint32_t>(program.placement.width)),
      batches_(program.batches),
      groups_((width_ > 1 ? depth_ * batches_ : 0) + (global_step_ ? batches_ : 0)) {}

std::uint32_t Barriers::group(const Op& op, int device) const {
  const std::uint32_t update = op.microbatch / width_;
  const std::uint32_t reductions = width_ > 1 ? depth_ * batches_ : 0;
  if (op.kind == OpKind::step) return reductions + update;
  return static_cast<std::uint32_t>(device) % depth_ * batches_ + update;
}

}  // namespace penstock
