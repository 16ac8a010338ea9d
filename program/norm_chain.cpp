// SPDX-License-Identifier: Apache-2.0
#include "program/norm_chain.hpp"

namespace penstock {

NormChain::NormChain(const Program& program) : program_(&program) {
  if (program.step_sync != StepSync::post_validation) return;
  const OpLists& ops = program.ops;
  takers_.resize(static_cast<std::size_t>(ops.devices()));
  steps_.resize(static_cast<std::size_t>(ops.devices()));
  for (int d = 0; d < ops.devices(); ++d) {
    from_.push_back(program.placement.norm_from(d));
    if (from_.back() >= 0) takers_[static_cast<std::size_t>(from_.back())].push_back(d);
    for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g)
      if (ops[g].kind == OpKind::step) steps_[static_cast<std::size_t>(d)].push_back(g);
  }
}

std::uint32_t NormChain::giver(const Op& step, int device) const {
  const int from = from_[static_cast<std::size_t>(device)];
  return steps_[static_cast<std::size_t>(from)][program_->local(step)];
}

}  // namespace penstock
