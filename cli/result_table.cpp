#include "cli/output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/perturbation_study.hpp"
#include "scenarios/schedule_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr std::size_t kRows = 16;  // devices shown, and the fullest one

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kGiB);
}

/// The GPUs of a stage, where there are several.
std::string shared_by(const Scenario& scenario) {
  if (scenario.tensor == 1) return "";
  return fmt::format(" of {} GPUs{}", scenario.tensor,
                     scenario.sequence_parallel ? " (sequence parallel)" : "");
}

std::string replicas(const Scenario& c) {
  const std::vector<int> widths = c.widths();
  const bool alike = std::ranges::adjacent_find(widths, std::not_equal_to()) == widths.end();
  if (alike && widths.front() == 1) return "";
  const std::string divided = c.split.empty() ? "" : " that split microbatches";
  return alike ? fmt::format(" x {} replicas{}", widths.front(), divided)
               : fmt::format(" of {} replicas{}", fmt::join(widths, ", "), divided);
}

std::string heading(const Simulation& s, const OutputOptions& options) {
  const Scenario& c = s.scenario;
  std::string text = c.name;
  if (!c.overrides.empty()) text += fmt::format(" [{}]", fmt::join(c.overrides, ", "));
  text += "\n";
  text += fmt::format("{}, {}{}{}, {}{} per update, {}\n", s.program.schedule,
                      counted(c.shape.depth, "stage"), shared_by(c), replicas(c),
                      counted(c.shape.microbatches_per_update, "microbatch"),
                      c.microbatch_size > 1 ? fmt::format(" of {}", c.microbatch_size) : "",
                      counted(c.shape.batches, "update"));
  if (c.transformer) {
    text +=
        fmt::format("{} on {} ({}); {:.0f} sequences of {} tokens per update; recompute {}\n",
                    c.transformer->name, c.cluster.name, device_names(c.cluster),
                    c.samples_per_update(), c.transformer->seq_length, recompute_text(c.recompute));
  } else {
    const std::string model =
        c.profile ? counted(c.profile->layers.size(), "profiled layer") : "abstract model";
    text +=
        fmt::format("{} on {}; recompute {}\n", model, c.cluster.name, recompute_text(c.recompute));
  }
  text += fmt::format("transfers {}; engine {}", to_string(s.program.transfers), s.engine);
  if (!options.reproducible && !s.measured)
    text += fmt::format(" ({} CPU)", format_time(s.engine_seconds));
  return text + "\n\n";
}

std::string ends(const Result& r) {
  return r.stalled_because.empty() ? "" : "Ends?      NO: " + r.stalled_because + "\n";
}

std::string fits(const Result& r) {
  const auto fullest = std::ranges::min_element(
      r.devices, {}, [](const DeviceResult& d) { return d.capacity_bytes - d.memory.use.total(); });
  const std::int64_t peak = fullest->memory.use.total();
  if (fullest->capacity_bytes == 0) {
    return peak == 0 ? "Fits?      unknown: the scenario gives no sizes\n"
                     : fmt::format(
                           "Fits?      unknown: the cluster gives no memory; device {} needs {}\n",
                           fullest->device, format_bytes(static_cast<double>(peak)));
  }
  if (r.infeasible_because.empty()) {
    return fmt::format("Fits?      yes: the fullest device, {}, uses {} of {} GiB, {} free\n",
                       fullest->device, gib(peak), gib(fullest->capacity_bytes),
                       format_bytes(static_cast<double>(fullest->capacity_bytes - peak)));
  }
  std::string text = "Fits?      NO: ";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, r.infeasible_because.size()); ++i) {
    text += (i == 0 ? "" : "           ") + r.infeasible_because[i] + "\n";
  }
  if (r.infeasible_because.size() > 3)
    text += fmt::format("           and {} more devices\n", r.infeasible_because.size() - 3);
  return text;
}

std::string how_fast(const Simulation& s, const Result& r) {
  std::string text = "How fast?  ";
  const bool each = s.program.versions.kind == VersionRule::Kind::stash;
  const std::string per = !each                              ? "iteration"
                          : s.program.placement.replicated() ? "microbatch of every replica"
                                                             : "microbatch";
  if (r.iteration_time_s) text += fmt::format("{} per {}, ", format_time(*r.iteration_time_s), per);
  text += fmt::format("{:.4g} samples/s", r.samples_per_s);
  if (r.tflops_per_device) {
    text += fmt::format(", {:.0f} tokens/s/GPU, {:.1f} TFLOP/s/GPU", *r.tokens_per_s_per_device,
                        *r.tflops_per_device);
  }
  if (r.mfu) {
    text += fmt::format(
        "\n           MFU {}, HFU {} (of the dense {} peak, attention counted in full; HFU counts "
        "recomputation)",
        format_percent(*r.mfu), format_percent(*r.hfu), s.scenario.transformer->compute_type);
  }
  if (r.epoch_s) text += fmt::format("\n           {:.1f} h per epoch", *r.epoch_s / 3600);
  return text + "\n";
}

/// How much of it is the schedule's own, however well the stages are balanced.
std::string ideal(const Simulation& s) {
  Scenario told = s.scenario;
  tell_costs(told);
  const double own = s.scenario.schedule->ideal_bubble(told.shape);
  if (!(own > 0)) return "";  // none, or none claimed for this shape
  const std::string text = fmt::format(
      "           equal stages and free transfers would leave {}{}:", format_percent(own),
      s.scenario.schedule->of_stage_time ? " of the longest device" : "");
  const std::string formula = fmt::format("{} per update\n", s.scenario.schedule->bubble);
  constexpr std::size_t kColumns = 120;
  const bool fits = text.size() + formula.size() <= kColumns;
  return text + (fits ? " " : "\n             ") + formula;
}

/// What a cause is called in a sentence.
constexpr std::string_view kCauseWords[kCauses] = {"warmup", "peer not done (imbalance)",
                                                   "transfer wait", "drain", "gradient reduction"};

std::string why(const Simulation& s, const Result& r) {
  std::string parts;
  for (std::size_t c = 0; c < kCauses; ++c) {
    if (r.bubble[c] < 5e-4) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", kCauseWords[c],
                         format_percent(r.bubble[c]));
  }
  return fmt::format("Why?       bubble {} of the {} {}{}{}\n", format_percent(r.bubble_fraction),
                     format_time(r.makespan_s), s.measured ? "measured" : "simulated",
                     parts.empty() ? "" : "\n           ", parts) +
         ideal(s);
}

std::string path_summary(const Simulation& s, const Result& r) {
  std::array<double, std::size(kPathKindNames)> share{};
  std::vector<double> per_device(static_cast<std::size_t>(s.program.ops.devices()), 0.0);
  for (const PathSegment& p : r.critical_path) {
    const double length = p.end_s - p.start_s;
    share[static_cast<std::size_t>(p.kind)] += length;
    if (p.kind == PathSegment::Kind::compute)
      per_device[static_cast<std::size_t>(p.device)] += length;
  }
  if (r.makespan_s <= 0) return "";
  const auto [compute, transfer, reduction, wait] = share;
  const auto most = std::ranges::max_element(per_device);
  std::string text =
      fmt::format("           critical path: {} compute", format_percent(compute / r.makespan_s));
  // Only a device that really carries the path is worth naming.
  if (compute > 0 && *most / compute >= 0.1) {
    text += fmt::format(" ({} of it on device {})", format_percent(*most / compute),
                        most - per_device.begin());
  }
  text += fmt::format(", {} messages", format_percent(transfer / r.makespan_s));
  if (reduction > 0)
    text += fmt::format(", {} gradient reduction", format_percent(reduction / r.makespan_s));
  if (wait > 0) text += fmt::format(", {} waiting", format_percent(wait / r.makespan_s));
  return text + "\n";
}

/// What shared links cost the critical path, and the one that costs most.
std::string contention_line(const Simulation& s, const Result& r) {
  std::vector<double> lost(s.channels->links().size(), 0.0);
  double sum = 0;
  for (const PathSegment& p : r.critical_path) {
    sum += p.contended_s;
    if (p.link >= 0) lost[static_cast<std::size_t>(p.link)] += p.contended_s;
  }
  if (r.makespan_s <= 0 || sum < 5e-4 * r.makespan_s) return "";
  std::string text =
      fmt::format("           {} of it lost on shared links", format_percent(sum / r.makespan_s));
  const auto most = std::ranges::max_element(lost);
  if (most != lost.end() && *most > 0) {
    text += fmt::format(", {} on {}",
                        *most >= sum * (1 - 1e-9) ? "all" : format_percent(*most / r.makespan_s),
                        link_name(s, static_cast<int>(most - lost.begin())));
  }
  return text + "\n";
}

/// How much of the devices' time communication takes that nothing hides.
std::string communication_line(const Simulation& s, const Result& r) {
  const double device_s = r.makespan_s * s.program.ops.devices();
  std::string text;
  const auto add = [&](const char* what, const Communication& c) {
    if (device_s <= 0 || c.total_s <= 0) return;
    const double hidden = 1 - c.exposed_s / c.total_s;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what,
                        format_percent(c.exposed_s / device_s));
    if (hidden >= 0.0005) text += fmt::format(" ({} hidden)", format_percent(hidden));
  };
  add("pipeline", r.communication.pipeline);
  add("data", r.communication.data);
  add("tensor", r.communication.tensor);
  return text.empty() ? "" : "           exposed communication, of device time: " + text + "\n";
}

std::string help(const Result& r) {
  std::string text;
  const auto add = [&](const std::string& change, const std::string& effect) {
    text +=
        fmt::format("{}{}: {}\n", text.empty() ? "Would help?  " : "             ", change, effect);
  };
  const auto time = [](double ratio) {
    const double percent = 100 * (ratio - 1);
    return std::abs(percent) < 0.05 ? "no change"
                                    : fmt::format("iteration time {:+.1f} %", percent);
  };
  for (const Advice& a : r.what_to_change)
    add(a.change, (a.makes_it_fit ? "fits, " : "") + time(a.time_ratio));
  for (const Sensitivity& h : r.what_would_help) {
    if (!r.iteration_time_s || *r.iteration_time_s <= 0) break;
    if (!r.what_to_change.empty() && h.of_stage) continue;  // nobody can change that alone
    add(h.change, time(h.iteration_time_s / *r.iteration_time_s));
  }
  return text;
}

std::string stages_text(const std::vector<int>& stages) {
  return fmt::format("{}", fmt::join(stages, ","));
}

/// "embed+4+5+head": the layers of each of its stages.
std::string layers_text(const DeviceResult& d) {
  return fmt::format("{}{}{}", d.embedding ? "embed+" : "", fmt::join(d.layers, "+"),
                     d.head ? "+head" : "");
}

/// The first devices and the last one when there are many, and the fullest of those between.
std::vector<const DeviceResult*> rows_of(const Result& r) {
  const auto fullest = std::ranges::max_element(
      r.devices, {}, [](const DeviceResult& d) { return d.memory.use.total(); });
  std::vector<const DeviceResult*> rows;
  const auto busiest =
      std::ranges::max_element(r.devices, {}, [](const DeviceResult& d) { return d.time.busy_s; });
  for (const DeviceResult& d : r.devices) {
    const bool telling = &d == &*fullest || &d == &*busiest || &d == &r.devices.back();
    if (r.devices.size() <= kRows || rows.size() < kRows || telling) rows.push_back(&d);
  }
  return rows;
}

/// A row per device, with dots where some are left out.
template <class Cells>
std::string device_rows(TextTable table, const Result& r, Cells&& cells) {
  const DeviceResult* before = nullptr;
  for (const DeviceResult* d : rows_of(r)) {
    if (before != nullptr && d->device != before->device + 1) table.add({"..."});
    table.add(cells(*d));
    before = d;
  }
  return table.render();
}

std::string time_table(const Simulation& s, const Result& r) {
  std::vector<std::string> header{"device", "stage"};
  const bool layers = !s.scenario.layers.empty();
  if (layers) header.emplace_back("layers");
  for (const char* h : {"busy", "idle", "bubble", "stash", "versions", "staleness"})
    header.emplace_back(h);
  return device_rows(TextTable(header), r, [&](const DeviceResult& d) {
    std::vector<std::string> row{std::to_string(d.device), stages_text(d.stages)};
    if (layers) row.push_back(layers_text(d));
    row.push_back(format_time(d.time.busy_s));
    row.push_back(format_time(d.idle_s));
    row.push_back(format_percent(r.makespan_s > 0 ? d.idle_s / r.makespan_s : 0));
    row.push_back(std::to_string(d.order.stash_peak));
    row.push_back(std::to_string(d.order.weight_versions_peak));
    row.push_back(std::to_string(d.order.staleness_max));
    return row;
  });
}

/// What the memory of each device consists of at its peak; empty when the scenario gives no sizes.
std::string memory_table(const Simulation& s, const Result& r) {
  const bool any = std::ranges::any_of(
      r.devices, [](const DeviceResult& d) { return d.memory.use.total() > 0; });
  if (!any) return "";
  std::vector<std::string> header{"device", "peak"};
  const bool known =
      std::ranges::any_of(r.devices, [](const DeviceResult& d) { return d.capacity_bytes > 0; });
  if (known) header.emplace_back("free");
  for (const char* h : {"weights", "versions", "gradients", "optimizer", "activations", "buffers",
                        "workspace", "at op"})
    header.emplace_back(h);
  return "\nmemory at the peak, GiB\n" +
         device_rows(TextTable(header), r, [&](const DeviceResult& d) {
           const std::int64_t peak = d.memory.use.total();
           std::vector<std::string> row{std::to_string(d.device), gib(peak)};
           if (known) row.push_back(d.capacity_bytes > 0 ? gib(d.capacity_bytes - peak) : "-");
           for (const std::int64_t bytes : d.memory.use.bytes) row.push_back(gib(bytes));
           row.push_back(d.memory.op == kNoOp ? "-" : to_string(s.program.ops[d.memory.op]));
           return row;
         });
}

std::string device_table(const Simulation& s, const Result& r) {
  std::string text = time_table(s, r) + memory_table(s, r);
  const std::size_t shown = rows_of(r).size();
  if (shown < r.devices.size())
    text += fmt::format("({} of {} devices; --format json has all)\n", shown, r.devices.size());
  return text;
}

std::string link_line(const Simulation& s, const Result& r) {
  const auto busiest = std::ranges::max_element(r.links, {}, &LinkResult::busy_fraction);
  const bool free = s.program.transfers == Transfers::free;
  if (free || busiest == r.links.end() || busiest->busy_fraction <= 0) return "";
  const std::string flows = busiest->peak_flows > 1
                                ? fmt::format(", at most {} flows at a time", *busiest->peak_flows)
                                : "";
  return fmt::format("           busiest link: {} carries {}, busy {}{}\n", busiest->name,
                     format_bytes(static_cast<double>(busiest->bytes)),
                     format_percent(busiest->busy_fraction), flows);
}

std::string events_table(const Simulation& s) {
  TextTable table({"device", "op", "start s", "end s", "version"});
  for (const Json& e : events_json(s)) {
    table.add({e["device"].dump(), e["op"].get<std::string>(),
               fmt::format("{:.9g}", e["start_s"].get<double>()),
               fmt::format("{:.9g}", e["end_s"].get<double>()),
               e["weight_version"].is_null() ? "" : e["weight_version"].dump()});
  }
  return "\n" + table.render();
}

}  // namespace

const std::string& link_name(const Simulation& s, int link) {
  return s.channels->links()[static_cast<std::size_t>(link)].name;
}

std::string counted(std::int64_t count, std::string_view what) {
  const char* ending = count == 1 ? "" : what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, ending);
}

std::string to_table(const Simulation& s, const Result& r, const OutputOptions& options) {
  std::string text = heading(s, options) + ends(r) + fits(r) + how_fast(s, r) + why(s, r) +
                     communication_line(s, r) + path_summary(s, r) + contention_line(s, r) +
                     link_line(s, r) + help(r);
  if (r.perturbed) text += perturbation_lines(*r.perturbed);
  for (const std::string& note : r.notes) text += "note: " + note + "\n";
  text += "\n" + device_table(s, r);
  if (options.events) text += events_table(s);
  return text;
}

}  // namespace penstock
