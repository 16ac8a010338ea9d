// SPDX-License-Identifier: Apache-2.0
#include "validate/validation.hpp"

#include "sim/durations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace penstock {
namespace {

/// Kinds of ops, messages of activations and of gradients, then what is exchanged inside of ops.
constexpr std::size_t kExchanges = kOpKinds + 2, kGroups = kExchanges + kOpKinds;

std::string group_name(std::size_t group) {
  if (group >= kExchanges)
    return fmt::format("{} exchanges", token(static_cast<OpKind>(group - kExchanges)));
  return group < kOpKinds    ? std::string(token(static_cast<OpKind>(group)))
         : group == kOpKinds ? "SEND_F"
                             : "SEND_B";
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Lengths of ops and messages of the compared iterations: [stage][group].
class Lengths {
 public:
  Lengths(const Program& program, const DependencyTable& table)
      : program_(program),
        table_(table),
        steady_(compared_updates(program)),
        values_(static_cast<std::size_t>(program.placement.stages()) * kGroups) {}

  /// `exchange_s(g)`: seconds that were exchanged inside of an op.
  template <class Exchange>
  void add_timeline(const Timeline& timeline, const Exchange& exchange_s) {
    for (std::uint32_t g = 0; g < program_.ops.size(); ++g) {
      const Op& op = program_.ops[g];
      if (!steady_.contains(update_of(program_, op))) continue;
      if (happened(timeline, g)) {
        const auto kind = static_cast<std::size_t>(op.kind);
        lengths_of(op.stage, kind).push_back(timeline.op(g).length_s());
        if (const double exchanged_s = exchange_s(g); exchanged_s > 0)
          lengths_of(op.stage, kExchanges + kind).push_back(exchanged_s);
      }
      if (!op.has(Op::receives) || !timeline.has_message(g)) continue;
      // A message counts for the stage that sends it.
      const std::uint32_t from = table_.producer(op);
      lengths_of(program_.ops[from].stage, kOpKinds + (op.kind == OpKind::forward ? 0 : 1))
          .push_back(timeline.message(g).length_s());
    }
  }
  const std::vector<double>& lengths_of(std::size_t stage, std::size_t group) const {
    return values_[stage * kGroups + group];
  }
  std::vector<double> of_all_stages(std::size_t group) const {
    std::vector<double> all;
    for (std::size_t i = group; i < values_.size(); i += kGroups)
      all.insert(all.end(), values_[i].begin(), values_[i].end());
    return all;
  }
  std::size_t stages() const { return values_.size() / kGroups; }

 private:
  std::vector<double>& lengths_of(std::size_t stage, std::size_t group) {
    return values_[stage * kGroups + group];
  }

  const Program& program_;
  const DependencyTable& table_;
  SteadyUpdates steady_;
  std::vector<std::vector<double>> values_;
};

/// One row, unless nothing was measured or the kind takes no time on either side.
void add_kind(std::vector<KindRow>& rows, std::size_t group, int stage,
              const std::vector<double>& predicted, const std::vector<double>& measured) {
  if (predicted.empty() || measured.empty()) return;
  KindRow row{
      group_name(group),   stage, measured.size(), mean(predicted), quantile(predicted, 0.5),
      spread_of(measured), {}};
  if (row.predicted_median_s == 0 && row.measured.p95 == 0) return;
  row.error = signed_error(row.predicted_median_s, row.measured.p50);
  rows.push_back(std::move(row));
}

void compare_kinds(const ValidationInput& in, Validation& out) {
  Lengths predicted(in.simulation.program, in.simulation.table);
  Lengths measured(in.simulation.program, in.simulation.table);
  const Durations durations(in.simulation);
  const OpLists& ops = in.simulation.program.ops;
  predicted.add_timeline(in.predicted, [&](std::uint32_t g) {
    return durations.exchange_s(ops[g], in.simulation.table.device_of(ops[g]), g);
  });
  for (const RecordedTimeline& run : in.runs)
    measured.add_timeline(run.timeline, [&](std::uint32_t g) {
      return run.exchange_s.empty() ? 0.0 : run.exchange_s[g];
    });
  for (std::size_t group = 0; group < kGroups; ++group)
    add_kind(out.kinds, group, -1, predicted.of_all_stages(group), measured.of_all_stages(group));
  for (std::size_t stage = 0; stage < predicted.stages(); ++stage) {
    for (std::size_t group = 0; group < kGroups; ++group) {
      add_kind(out.stages, group, static_cast<int>(stage),
               std::as_const(predicted).lengths_of(stage, group),
               std::as_const(measured).lengths_of(stage, group));
    }
  }
}

/// Compute, recomputation and optimizer steps of a device.
double busy_s(const OpLists& ops, const Timeline& timeline, int device) {
  double busy = 0;
  for (std::uint32_t g = ops.begin(device); g < ops.end(device); ++g) {
    if (happened(timeline, g) && ops[g].kind != OpKind::reduce_grad)
      busy += timeline.op(g).length_s();
  }
  return busy;
}

/// First start to last end of a run.
double length_of_run(const OpLists& ops, const Timeline& timeline) {
  double start = timeline.makespan_s;
  for (std::uint32_t g = 0; g < ops.size(); ++g) {
    if (happened(timeline, g)) start = std::min(start, timeline.op(g).start_s);
  }
  return timeline.makespan_s - start;
}

void compare_memory(const ValidationInput& in, DeviceRow& row) {
  for (const RecordedRun& run : in.recording.runs) {
    for (const RecordedDevice& d : run.devices) {
      if (d.device != row.device) continue;
      if (!row.measured_memory || d.peak.total() > row.measured_memory->total())
        row.measured_memory = d.peak;
      if (d.allocator_peak_bytes)
        row.allocator_peak_bytes =
            std::max(*d.allocator_peak_bytes, row.allocator_peak_bytes.value_or(0));
    }
  }
  if (!row.measured_memory) return;
  row.memory_error = signed_error(static_cast<double>(row.predicted_memory.total()),
                                  static_cast<double>(row.measured_memory->total()));
}

void compare_devices(const ValidationInput& in, Validation& out) {
  const OpLists& ops = in.simulation.program.ops;
  const auto runs = static_cast<double>(in.runs.size());
  for (int d = 0; d < ops.devices(); ++d) {
    DeviceRow& row = out.devices.emplace_back();
    row.device = d;
    row.predicted_busy_s = busy_s(ops, in.predicted, d);
    row.predicted_idle_s = in.predicted.makespan_s - row.predicted_busy_s;
    row.predicted_memory = in.predicted_memory[static_cast<std::size_t>(d)].use;
    for (const RecordedTimeline& run : in.runs) {
      const double busy = busy_s(ops, run.timeline, d);
      row.measured_busy_s += busy / runs;
      row.measured_idle_s += (length_of_run(ops, run.timeline) - busy) / runs;
    }
    row.busy_error = signed_error(row.predicted_busy_s, row.measured_busy_s);
    compare_memory(in, row);
  }
  for (const DeviceRow& row : out.devices) {
    if (!row.measured_memory) continue;
    out.predicted_bytes = std::max(row.predicted_memory.total(), out.predicted_bytes.value_or(0));
    out.measured_bytes = std::max(row.measured_memory->total(), out.measured_bytes.value_or(0));
  }
  if (out.measured_bytes)
    out.memory_error = signed_error(static_cast<double>(*out.predicted_bytes),
                                    static_cast<double>(*out.measured_bytes));
}

void compare_order(const ValidationInput& in, Validation& out) {
  const OpLists& ops = in.simulation.program.ops;
  for (std::size_t r = 0; r < in.runs.size(); ++r) {
    for (int d = 0; d < ops.devices(); ++d) {
      const auto& measured = in.runs[r].order[static_cast<std::size_t>(d)];
      auto expected = measured;
      std::ranges::sort(expected);  // op indices of a device stand in the Program's order
      const auto [at, is] = std::ranges::mismatch(expected, measured);
      if (at == expected.end()) continue;
      out.order_differences.push_back({r, d, *at - ops.begin(d), ops[*at], ops[*is]});
    }
  }
}

void compare_iterations(const ValidationInput& in, Validation& out) {
  const Program& program = in.simulation.program;
  IterationTimes& it = out.iteration;
  it.steady = compared_updates(program);
  it.predicted_s = quantile(iteration_samples(program, in.predicted, it.steady), 0.5);
  std::vector<double> all;
  for (const RecordedTimeline& run : in.runs) {
    const auto samples = iteration_samples(program, run.timeline, it.steady);
    if (samples.empty()) continue;
    it.run_medians.push_back(quantile(samples, 0.5));
    all.insert(all.end(), samples.begin(), samples.end());
  }
  it.samples = all.size();
  if (all.empty()) {
    out.notes.push_back("no whole update after the warm-up was recorded: no time of an update");
    return;
  }
  it.spread = spread_of(all);
  it.measured_s = it.spread.p50;
  it.error = signed_error(*it.predicted_s, *it.measured_s);
  out.causes =
      attribute_error(in.simulation, in.predicted, in.runs, *it.predicted_s, *it.measured_s);
  out.own_ops_error = signed_error(*it.predicted_s - out.causes->op_time_s - out.causes->exchange_s,
                                   *it.measured_s);
}

void note_protocol(const ValidationInput& in, Validation& out) {
  const SteadyUpdates& steady = out.iteration.steady;
  const std::uint32_t updates = in.simulation.program.batches;
  if (steady.whole_run) {
    out.notes.push_back(
        fmt::format("too few updates for a steady state ({}): the whole run is compared", updates));
  } else {
    out.notes.push_back(fmt::format("the first {} of {} updates are warm-up and left out{}",
                                    steady.first, updates,
                                    steady.end < updates ? ", and so is the drain" : ""));
  }
  if (out.causes && out.causes->links_shared)
    out.notes.push_back(
        "links are shared: the causes replay the median time of each channel's messages");
}

void note_runs(const ValidationInput& in, Validation& out) {
  for (std::size_t r = 0; r < in.runs.size(); ++r) {
    const RecordedRun& run = in.recording.runs[r];
    if (!run.complete)
      out.notes.push_back(fmt::format("run {} was stopped: {}", r, run.stopped_because));
    const auto& missing = in.runs[r].missing;
    const OpLists& ops = in.simulation.program.ops;
    const auto lost =
        std::ranges::count_if(missing, [&](std::uint32_t g) { return is_compute(ops[g].kind); });
    if (lost > 0)
      out.notes.push_back(fmt::format("run {} lacks {} of {} ops", r, lost, ops.size()));
    if (run.weights_equal == false)
      out.notes.push_back(
          fmt::format("run {}: the final weights are not those of a sequential run", r));
  }
}

}  // namespace

Validation validate(const ValidationInput& input) {
  Validation out;
  out.name = input.recording.name;
  out.depth = input.simulation.program.placement.depth();
  compare_iterations(input, out);
  compare_kinds(input, out);
  compare_devices(input, out);
  compare_order(input, out);
  note_protocol(input, out);
  note_runs(input, out);
  return out;
}

ValidationSummary summarize(const std::vector<RowErrors>& rows) {
  std::vector<double> time, memory, own_ops;
  std::map<int, std::vector<double>> by_depth;
  for (const RowErrors& row : rows) {
    if (row.time) {
      time.push_back(*row.time);
      if (row.depth > 0) by_depth[row.depth].push_back(*row.time);
    }
    if (row.memory) memory.push_back(*row.memory);
    if (row.own_ops) own_ops.push_back(*row.own_ops);
  }
  ValidationSummary s{
      summarize_errors(time), summarize_errors(memory), summarize_errors(own_ops), {}};
  for (const auto& [depth, errors] : by_depth) s.time_by_depth[depth] = summarize_errors(errors);
  return s;
}

}  // namespace penstock
