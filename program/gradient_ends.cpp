// SPDX-License-Identifier: Apache-2.0
#include "program/gradient_ends.hpp"

#include <algorithm>

namespace penstock {

GradientEnds::GradientEnds(const Program& program) {
  const OpLists& ops = program.ops;
  std::vector<std::uint32_t> last(static_cast<std::size_t>(program.placement.stages()));
  for (int d = 0; d < ops.devices(); ++d) {
    std::ranges::fill(last, kNoOp);
    for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g) {
      const Op& op = ops[g];
      if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight) last[op.stage] = g;
      if (op.kind != OpKind::reduce_grad) continue;
      const std::size_t before = ends_.size();
      for (const std::uint32_t stage :
           program.placement.stages_at(program.placement.position_of(d))) {
        if (last[stage] == kNoOp) continue;
        ends_.push_back({last[stage], g, static_cast<std::uint16_t>(stage)});
        last[stage] = kNoOp;
      }
      std::sort(ends_.begin() + static_cast<std::ptrdiff_t>(before), ends_.end(),
                [](const End& a, const End& b) { return a.op < b.op; });
    }
  }
}

std::uint32_t GradientEnds::reduced_by(std::uint32_t g) const {
  const auto end = std::ranges::lower_bound(ends_, g, {}, &End::op);
  return end != ends_.end() && end->op == g ? end->reduce : kNoOp;
}

auto GradientEnds::ends_of(std::uint32_t reduce) const
    -> std::pair<std::vector<End>::const_iterator, std::vector<End>::const_iterator> {
  const auto before = [](const End& end, std::uint32_t wanted) { return end.reduce < wanted; };
  const auto first = std::lower_bound(ends_.begin(), ends_.end(), reduce, before);
  return {first,
          std::find_if(first, ends_.end(), [&](const End& e) { return e.reduce != reduce; })};
}

std::uint32_t GradientEnds::last_of(std::uint32_t reduce, std::uint32_t stage) const {
  const auto [first, end] = ends_of(reduce);
  const auto found = std::find_if(first, end, [&](const End& e) { return e.stage == stage; });
  return found == end ? kNoOp : found->op;
}

std::vector<std::uint16_t> GradientEnds::stages_in_order(std::uint32_t reduce) const {
  const auto [first, end] = ends_of(reduce);
  std::vector<std::uint16_t> stages;
  for (auto e = first; e != end; ++e) stages.push_back(e->stage);
  return stages;
}

}  // namespace penstock
