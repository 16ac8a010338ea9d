// SPDX-License-Identifier: Apache-2.0
// The order in which a device with several stages gathers new weights, one stage after the other:
// those of the first two when the step has ended, those of each further one when the first forward
// of the stage before it starts. A stage's first forward waits for all of its own (Op::prefetched).
// (Megatron-LM's param_sync_func, core/pipeline_parallel/schedules.py. A device with one stage
// gathers in its first forward, Op::gathers.)
#pragma once

#include "program/program.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace penstock {

class GatherQueue {
 public:
  explicit GatherQueue(const Program& program) {
    if (!program.gathers) return;
    const OpLists& ops = program.ops;
    for (int d = 0; d < ops.devices(); ++d) {
      std::uint32_t before = kNoOp;
      begins_.push_back(kNoOp);
      for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g) {
        const bool gathered = ops[g].has(Op::prefetched);
        if (gathered && before == kNoOp) begins_.back() = g;
        if (gathered && before != kNoOp) next_.emplace_back(before, g);
        if (gathered || ops[g].kind == OpKind::step) before = g;
      }
    }
  }

  /// Returns the forward whose weights a device gathers first of all; kNoOp: none is.
  std::uint32_t first(int device) const {
    return begins_.empty() ? kNoOp : begins_[static_cast<std::size_t>(device)];
  }
  /// Returns the forward whose weights are gathered next after those of forward `g` or after step
  /// `g`; kNoOp: none are.
  std::uint32_t next(std::uint32_t g) const {
    const auto found = std::ranges::lower_bound(next_, g, {}, &Pair::first);
    return found == next_.end() || found->first != g ? kNoOp : found->second;
  }

 private:
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  std::vector<std::uint32_t> begins_;  // per device
  std::vector<Pair> next_;             // sorted
};

/// What is gathered for a forward whose weights come before it starts.
struct Gathered {
  double bytes = 0, calls = 0;
};
inline Gathered gathered_before(const std::vector<StageCosts>& costs, const Op& op) {
  Gathered all;
  const PassCosts& pass = costs[op.stage].pass(op);
  if (!op.has(Op::prefetched) || !pass.gathering) return all;
  pass.gathering->recipe.for_each([&](const Segment& s) {
    if (s.axis != Axis::data || !s.exchanges()) return;
    all.bytes += static_cast<double>(s.bytes);
    all.calls += s.calls;
  });
  return all;
}

}  // namespace penstock
