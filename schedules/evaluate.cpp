// SPDX-License-Identifier: Apache-2.0
#include "schedules/evaluate.hpp"

#include "schedules/order_run.hpp"

#include <algorithm>

namespace penstock {
namespace {

double peak(std::span<const Op> ops, const std::vector<StageTimes>& times) {
  double held = 0, most = 0;
  for (const Op& op : ops) {
    const StageTimes& t = times[op.stage];
    switch (op.kind) {
      case OpKind::forward: most = std::max(most, held += t.activation); break;
      case OpKind::backward: held -= t.activation; break;
      case OpKind::backward_input: held -= t.activation - t.activation_after_input; break;
      case OpKind::backward_weight: held -= t.activation_after_input; break;
      default: break;
    }
  }
  return most;
}

}  // namespace

Evaluation evaluate(const OpLists& order, const Placement& where, const ScheduleShape& shape) {
  const auto stages = static_cast<std::uint32_t>(where.stages());
  std::vector<StageTimes> times;
  std::vector<OpParts> duration;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const StageTimes& t = times.emplace_back(shape.time(s));
    duration.push_back({t.forward, t.backward_input, t.backward_weight});
  }
  OrderRun run(order, stages, shape.microbatches_per_update);
  run.run_order(duration, shape.transfer);
  Evaluation out;
  out.stuck = run.stuck();
  for (int d = 0; d < order.devices(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    out.stage_times.push_back(run.ends()[i] - run.begins()[i]);
    out.makespan = std::max(out.makespan, run.ends()[i]);
    out.stage_time = std::max(out.stage_time, out.stage_times.back());
    out.peaks.push_back(peak(order.of_device(d), times));
  }
  return out;
}

}  // namespace penstock
