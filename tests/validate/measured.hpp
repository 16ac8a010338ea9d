// SPDX-License-Identifier: Apache-2.0
// Recordings made from a simulated run, as if a machine had been slower, or had stumbled.
#pragma once

#include "tests/rig.hpp"
#include "validate/validation.hpp"

#include <functional>

namespace penstock {

/// A run whose times are those of the timeline times `factor`.
inline RecordedRun run_of(const Rig& rig, const Timeline& timeline, double factor = 1) {
  RecordedRun run;
  const auto scaled = [&](const Span& s) { return Span{s.start_s * factor, s.end_s * factor}; };
  for (int d = 0; d < rig.program.ops.devices(); ++d) {
    for (std::uint32_t g = rig.program.ops.begin(d); g < rig.program.ops.end(d); ++g) {
      RecordedOp& op = run.ops.emplace_back();
      op.device = d;
      op.op = rig.program.ops[g];
      op.span = scaled(timeline.op(g));
      if (op.op.has(Op::receives)) op.message = scaled(timeline.message(g));
    }
  }
  return run;
}

/// A prediction and recordings of the same Program.
struct Measured {
  explicit Measured(const RigSpec& spec)
      : rig(spec), input(rig.input()), predicted(simulate_exact(input)) {
    recording.name = "made";
    memory.resize(static_cast<std::size_t>(rig.program.ops.devices()));
  }
  void add_run(const RecordedRun& run) {
    recording.runs.push_back(run);
    runs.push_back(to_timeline(rig.program.ops, rig.table, run));
  }
  Validation result() const { return validate({input, predicted, memory, recording, runs}); }

  Rig rig;
  SimulationInput input;
  Timeline predicted;
  std::vector<MemoryPeak> memory;
  Recording recording;
  std::vector<RecordedTimeline> runs;
};

}  // namespace penstock
