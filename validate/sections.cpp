// SPDX-License-Identifier: Apache-2.0
#include "validate/sections.hpp"

#include "base/units.hpp"
#include "report/table_section.hpp"
#include "report/timeline_section.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

/// Updates to show first.
struct Window {
  std::uint32_t first, end;
};

/// One iteration after the warm-up and one on each side.
Window window_of(const Program& program, const SteadyUpdates& steady) {
  const std::uint32_t n = program.batches;
  // Without a flush an iteration may be a single microbatch: p of them show the pattern.
  const std::uint32_t m = program.microbatches_per_update;
  const auto depth = static_cast<std::uint32_t>(program.placement.depth());
  const std::uint32_t unit = program.flushes ? 1 : std::max(steady.step, (depth + m - 1) / m);
  if (n <= 3 * unit) return {0, n};
  const std::uint32_t middle = std::min(std::max(steady.first + unit, unit), n - 2 * unit);
  return {middle - unit, middle + 2 * unit};
}

/// The complete run whose median is nearest to that of all.
std::size_t typical_run(const ValidationInput& in, const Validation& v) {
  std::size_t best = 0;
  double nearest = -1;
  for (std::size_t r = 0; r < in.runs.size(); ++r) {
    const auto samples =
        iteration_samples(in.simulation.program, in.runs[r].timeline, v.iteration.steady);
    if (samples.empty()) continue;
    const double distance = std::abs(quantile(samples, 0.5) - *v.iteration.measured_s);
    if (nearest >= 0 && distance >= nearest) continue;
    nearest = distance;
    best = r;
  }
  return best;
}

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:+.1f} %", 100 * *fraction) : "unknown";
}

std::string time_text(const std::optional<double>& seconds) {
  return seconds ? format_time(*seconds) : "unknown";
}

std::string bytes_text(const std::optional<std::int64_t>& bytes) {
  return bytes ? format_bytes(static_cast<double>(*bytes)) : "unknown";
}

template <class T>
double known(const std::optional<T>& value) {
  return value ? static_cast<double>(*value) : std::nan("");
}

std::string iteration_text(const IterationTimes& it) {
  std::string text =
      fmt::format("Iteration: predicted {}, measured {}, error {}", time_text(it.predicted_s),
                  time_text(it.measured_s), percent(it.error));
  if (it.measured_s)
    text += fmt::format(" (measured p5 {}, p95 {} over {} updates in {} runs)",
                        format_time(it.spread.p5), format_time(it.spread.p95), it.samples,
                        it.run_medians.size());
  return text;
}

std::string order_text(const Validation& v) {
  if (v.order_differences.empty()) return "Order of ops: as predicted on every device.";
  std::string text;
  constexpr std::size_t kMost = 4;
  for (std::size_t i = 0; i < std::min(kMost, v.order_differences.size()); ++i) {
    const OrderDifference& d = v.order_differences[i];
    text += fmt::format("Order of ops differs: run {}, device {}, position {}: {} instead of {}. ",
                        d.run, d.device, d.position, to_string(d.measured), to_string(d.expected));
  }
  return text;
}

/// What ran, the iteration time, memory, notes.
std::string headline(const ValidationInput& in, const Validation& v) {
  const Program& program = in.simulation.program;
  std::string text = fmt::format(
      "{}, {} transfers, {} devices, {} microbatches per update, {} updates; backend {}, {} "
      "clock.\n{}",
      program.schedule, to_string(program.transfers), program.ops.devices(),
      program.microbatches_per_update, program.batches, in.recording.backend, in.recording.clock,
      iteration_text(v.iteration));
  if (v.memory_error)
    text += fmt::format("; fullest device: predicted {}, measured {}, error {}",
                        bytes_text(v.predicted_bytes), bytes_text(v.measured_bytes),
                        percent(v.memory_error));
  text += ".\n" + order_text(v);
  for (const std::string& note : v.notes) text += "\nNote: " + note + ".";
  return text;
}

/// Devices in the order of their stages, the replicas of each together.
std::vector<int> by_stage(const Placement& placement) {
  std::vector<int> devices(static_cast<std::size_t>(placement.devices()));
  std::iota(devices.begin(), devices.end(), 0);
  std::ranges::stable_sort(devices, {}, [&](int d) { return placement.position_of(d); });
  return devices;
}

/// "stage 1", "stages 0,7" of a device.
std::string stages_text(const Placement& placement, int device) {
  const auto& stages = placement.stages_at(placement.position_of(device));
  return fmt::format("stage{} {}", stages.size() > 1 ? "s" : "", fmt::join(stages, ","));
}

std::string timeline_section(const ValidationInput& in, const Validation& v) {
  const std::size_t run = typical_run(in, v);
  const SimulationInput& s = in.simulation;
  const Timeline& measured = in.runs[run].timeline;
  const Window window = window_of(s.program, v.iteration.steady);
  TimelineSection section{{v.name, headline(in, v)}, {}};
  if (in.runs.size() > 1)
    section.text.note += fmt::format("\nMeasured: run {} of 0 to {}.", run, in.runs.size() - 1);
  section.clocks = {{"predicted", update_ends(s.program, in.predicted)},
                    {"measured", update_ends(s.program, measured)}};
  section.first_update = window.first;
  section.end_update = window.end;
  const Placement& placement = s.program.placement;
  for (const int d : by_stage(placement)) {
    const auto add = [&](const Timeline& timeline, std::size_t clock) {
      TimelineLane lane = device_lane({s.program, s.table, timeline}, d, s.costs);
      const std::string row = !placement.replicated() ? fmt::format("{}", d)
                              : clock > 0             ? fmt::format("device {}", d)
                                                      : stages_text(placement, d);
      lane.name = fmt::format("{} {}", row, section.clocks[clock].name);
      lane.clock = clock;
      section.lanes.push_back(std::move(lane));
    };
    if (placement.replica_of(d) == 0) add(in.predicted, 0);
    add(measured, 1);
  }
  if (placement.replicated())
    section.text.note +=
        "\nReplicas of a stage stand together, below what is predicted of the first of them.";
  return section_text(section);
}

std::string causes_section(const Validation& v) {
  const Causes& c = *v.causes;
  const double measured = *v.iteration.measured_s;
  TableSection table{
      {"Where the error of the time of an update comes from", "Positive: predicted too slow.",
       true},
      {{"cause"}, {"predicted − measured", "s"}, {"of the measured update", "fraction"}},
      {}};
  const std::pair<const char*, double> parts[] = {{"op times", c.op_time_s},
                                                  {"exchanges inside of ops", c.exchange_s},
                                                  {"message times", c.transfer_time_s},
                                                  {"delayed departures", c.wait_s},
                                                  {"launch overhead", c.launch_overhead_s},
                                                  {"order and jitter", c.rest_s},
                                                  {"all", c.sum_s()}};
  for (auto [name, seconds] : parts) {
    if (std::abs(seconds) < 1e-9 * measured) seconds = 0;  // rounding
    table.rows.push_back({name, seconds, seconds / measured});
  }
  return section_text(table);
}

std::string kinds_section(const Validation& v) {
  TableSection table{{"Ops and messages", "", true},
                     {{"kind"},
                      {"count"},
                      {"predicted", "s"},
                      {"measured p5", "s"},
                      {"measured p50", "s"},
                      {"measured p95", "s"},
                      {"error", "fraction"}},
                     {}};
  for (const KindRow& k : v.kinds) {
    table.rows.push_back({k.kind, static_cast<double>(k.count), k.predicted_median_s, k.measured.p5,
                          k.measured.p50, k.measured.p95, known(k.error)});
  }
  return section_text(table);
}

std::string devices_section(const Validation& v) {
  TableSection table{{"Devices, over the whole run", "", true},
                     {{"device"},
                      {"busy, predicted", "s"},
                      {"busy, measured", "s"},
                      {"error of busy", "fraction"},
                      {"idle, predicted", "s"},
                      {"idle, measured", "s"},
                      {"peak memory, predicted", "bytes"},
                      {"peak memory, measured", "bytes"},
                      {"error of memory", "fraction"}},
                     {}};
  for (const DeviceRow& d : v.devices) {
    const double measured =
        d.measured_memory ? static_cast<double>(d.measured_memory->total()) : std::nan("");
    table.rows.push_back({static_cast<double>(d.device), d.predicted_busy_s, d.measured_busy_s,
                          known(d.busy_error), d.predicted_idle_s, d.measured_idle_s,
                          static_cast<double>(d.predicted_memory.total()), measured,
                          known(d.memory_error)});
  }
  return section_text(table);
}

}  // namespace

std::vector<std::string> validation_sections(const ValidationInput& in, const Validation& v) {
  std::vector<std::string> sections{timeline_section(in, v)};
  if (v.causes && v.iteration.measured_s) sections.push_back(causes_section(v));
  sections.push_back(kinds_section(v));
  sections.push_back(devices_section(v));
  return sections;
}

}  // namespace penstock
