// SPDX-License-Identifier: Apache-2.0
// Programs and timelines written by hand: what the rooms above make, without them.
#pragma once

#include "traces/memory.hpp"
#include "traces/metrics.hpp"

#include <optional>

namespace penstock {

inline constexpr std::uint8_t kIn = Op::receives, kOut = Op::sends;

struct TimedOp {
  OpKind kind;
  std::uint16_t stage;
  std::uint32_t microbatch;
  int flags;
  double start_s, end_s;
  Span message{-1, -1};  ///< that it waits for
};

/// A run with everything that traces look at, kept alive together.
struct HandMade {
  /// One list per device; stage s lives on device s mod the number of devices.
  explicit HandMade(const std::vector<std::vector<TimedOp>>& devices, int stages_per_device = 1) {
    program.placement = loop_placement(static_cast<int>(devices.size()), stages_per_device, 1);
    std::uint32_t microbatches = 0;
    for (const auto& device : devices) {
      for (const TimedOp& t : device) {
        program.ops.add_op({t.microbatch, t.stage, t.kind, static_cast<std::uint8_t>(t.flags)});
        microbatches = std::max(microbatches, t.microbatch + 1);
      }
      program.ops.end_device();
    }
    table.emplace(program.ops, program.placement, microbatches);
    timeline.emplace(program.ops.size());
    std::uint32_t g = 0;
    for (const auto& device : devices) {
      for (const TimedOp& t : device) {
        timeline->op(g) = {t.start_s, t.end_s};
        timeline->message(g++) = t.message;
        timeline->makespan_s = std::max(timeline->makespan_s, t.end_s);
      }
    }
    costs.resize(static_cast<std::size_t>(program.placement.stages()));
    more_versions.resize(costs.size(), 0);
  }
  HandMade(const HandMade&) = delete;
  HandMade& operator=(const HandMade&) = delete;

  TimelineView view() const { return {program, *table, *timeline}; }
  MemoryInput memory() const { return {program.ops, *table, *timeline, costs, more_versions}; }
  std::vector<Gap> gaps(int device) const {
    std::vector<Gap> found;
    for_each_gap(view(), device, [&](const Gap& gap) { found.push_back(gap); });
    return found;
  }

  Program program;
  std::optional<DependencyTable> table;
  std::optional<Timeline> timeline;
  std::vector<StageCosts> costs;
  std::vector<std::uint32_t> more_versions;
};

/// Two stages, one microbatch, messages of one second: F F B B, and eight seconds in all.
inline std::vector<std::vector<TimedOp>> two_stages() {
  return {{{OpKind::forward, 0, 0, kOut, 0, 1}, {OpKind::backward, 0, 0, kIn, 6, 8, {5, 6}}},
          {{OpKind::forward, 1, 0, kIn, 2, 3, {1, 2}}, {OpKind::backward, 1, 0, kOut, 3, 5}}};
}

}  // namespace penstock
