#include "cli/output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr std::size_t kRows = 16;  // devices and links shown

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kGiB);
}

std::string heading(const Simulation& s, const OutputOptions& options) {
  const Scenario& c = s.scenario;
  std::string text = c.name + "\n";
  text += fmt::format("{}, {} stages{}, {} microbatches{} per update, {} {}\n", s.program.schedule,
                      c.shape.depth,
                      c.lowering.width > 1 ? fmt::format(" x {} replicas", c.lowering.width) : "",
                      c.shape.microbatches_per_update,
                      c.microbatch_size > 1 ? fmt::format(" of {}", c.microbatch_size) : "",
                      c.shape.batches, c.shape.batches == 1 ? "update" : "updates");
  text += fmt::format("{} on {}; recompute {}; transfers {}; engine {}",
                      c.transformer ? c.transformer->name : "abstract model", c.cluster.name,
                      kRecomputeNames[static_cast<std::size_t>(c.recompute)],
                      to_string(s.program.transfers), s.engine);
  if (!options.reproducible) text += fmt::format(" ({} CPU)", format_time(s.engine_seconds));
  return text + "\n\n";
}

std::string fits(const Result& r) {
  const auto fullest = std::ranges::max_element(
      r.devices, {}, [](const DeviceResult& d) { return d.memory.use.total(); });
  const std::int64_t peak = fullest->memory.use.total();
  if (r.capacity_bytes == 0) {
    return peak == 0 ? "Fits?      unknown: the scenario gives no sizes\n"
                     : fmt::format(
                           "Fits?      unknown: the cluster gives no memory; device {} needs {}\n",
                           fullest->device, format_bytes(static_cast<double>(peak)));
  }
  if (r.infeasible_because.empty()) {
    return fmt::format("Fits?      yes: the fullest device, {}, uses {} of {} GiB, {} free\n",
                       fullest->device, gib(peak), gib(r.capacity_bytes),
                       format_bytes(static_cast<double>(r.capacity_bytes - peak)));
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
  text +=
      r.iteration_time_s
          ? fmt::format("{} per {}, ", format_time(*r.iteration_time_s),
                        s.program.flushes || s.program.microbatches_per_update > 1 ? "iteration"
                                                                                   : "microbatch")
          : "";
  text += fmt::format("{:.4g} samples/s", r.samples_per_s);
  if (r.tflops_per_device) {
    text += fmt::format(
        ", {:.0f} tokens/s/GPU, {:.1f} TFLOP/s/GPU\n           MFU {}, HFU {} (of the dense {} "
        "peak, attention counted in full; HFU counts recomputation)",
        *r.tokens_per_s_per_device, *r.tflops_per_device, format_percent(*r.mfu),
        format_percent(*r.hfu), s.scenario.transformer->compute_type);
  }
  if (r.epoch_s) text += fmt::format("\n           {:.1f} h per epoch", *r.epoch_s / 3600);
  return text + "\n";
}

std::string why(const Result& r) {
  std::string parts;
  for (std::size_t c = 0; c < kCauses; ++c) {
    if (r.bubble[c] < 5e-4) continue;
    std::string name(kCauseNames[c]);
    std::ranges::replace(name, '_', ' ');
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, format_percent(r.bubble[c]));
  }
  return fmt::format("Why?       bubble {} of the {} simulated{}{}\n",
                     format_percent(r.bubble_fraction), format_time(r.makespan_s),
                     parts.empty() ? "" : ": ", parts);
}

std::string path_summary(const Simulation& s, const Result& r) {
  double compute = 0, transfer = 0, wait = 0;
  std::vector<double> per_device(static_cast<std::size_t>(s.program.ops.devices()), 0.0);
  for (const PathSegment& p : r.critical_path) {
    const double length = p.end_s - p.start_s;
    (p.kind == PathSegment::Kind::compute    ? compute
     : p.kind == PathSegment::Kind::transfer ? transfer
                                             : wait) += length;
    if (p.kind == PathSegment::Kind::compute)
      per_device[static_cast<std::size_t>(p.device)] += length;
  }
  if (r.makespan_s <= 0) return "";
  const auto most = std::ranges::max_element(per_device);
  return fmt::format(
      "           critical path: {} compute ({} of it on device {}), {} messages{}\n",
      format_percent(compute / r.makespan_s), format_percent(*most / r.makespan_s),
      most - per_device.begin(), format_percent(transfer / r.makespan_s),
      wait > 0 ? ", " + format_percent(wait / r.makespan_s) + " waiting" : "");
}

std::string help(const Result& r) {
  std::string text;
  for (const Sensitivity& h : r.what_would_help) {
    if (!r.iteration_time_s || *r.iteration_time_s <= 0) break;
    const double gain = 1 - h.iteration_time_s / *r.iteration_time_s;
    text += fmt::format("{}{}: {:+.1f} %\n", text.empty() ? "Would help?  " : "             ",
                        h.change, -100 * gain);
  }
  return text;
}

std::string stages_text(const std::vector<int>& stages) {
  return fmt::format("{}", fmt::join(stages, ","));
}

/// The first devices and the last one when there are many, and the fullest of those between.
std::vector<const DeviceResult*> rows_of(const Result& r) {
  std::vector<const DeviceResult*> rows;
  for (const DeviceResult& d : r.devices) {
    if (r.devices.size() <= kRows || rows.size() < kRows - 1 ||
        d.device + 1 == static_cast<int>(r.devices.size()))
      rows.push_back(&d);
  }
  return rows;
}

std::string device_table(const Simulation& s, const Result& r) {
  const bool memory = std::ranges::any_of(
      r.devices, [](const DeviceResult& d) { return d.memory.use.total() > 0; });
  std::vector<std::string> header{"device", "stage"};
  if (!s.scenario.layers.empty()) header.emplace_back("layers");
  for (const char* h : {"busy", "idle", "bubble", "stash", "versions", "staleness"})
    header.emplace_back(h);
  if (memory) {
    for (const char* h : {"peak GiB", "weights", "versions", "gradients", "optimizer",
                          "activations", "buffers", "workspace", "at op"})
      header.emplace_back(h);
  }
  TextTable table(header);
  const auto rows = rows_of(r);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DeviceResult& d = *rows[i];
    if (i > 0 && d.device != rows[i - 1]->device + 1) table.add({"..."});
    std::vector<std::string> row{std::to_string(d.device), stages_text(d.stages)};
    if (!s.scenario.layers.empty())
      row.push_back(std::to_string(s.scenario.layers[static_cast<std::size_t>(d.stages.front())]));
    row.push_back(format_time(d.time.busy_s));
    row.push_back(format_time(d.idle_s));
    row.push_back(format_percent(r.makespan_s > 0 ? d.idle_s / r.makespan_s : 0));
    row.push_back(std::to_string(d.order.stash_peak));
    row.push_back(std::to_string(d.order.weight_versions_peak));
    row.push_back(std::to_string(d.order.staleness_max));
    if (memory) {
      row.push_back(gib(d.memory.use.total()));
      for (const std::int64_t bytes : d.memory.use.bytes) row.push_back(gib(bytes));
      row.push_back(d.memory.op == kNoOp ? "-" : to_string(s.program.ops[d.memory.op]));
    }
    table.add(std::move(row));
  }
  std::string text = table.render();
  if (rows.size() < r.devices.size())
    text +=
        fmt::format("({} of {} devices; --format json has all)\n", rows.size(), r.devices.size());
  return text;
}

std::string link_line(const Result& r) {
  const auto busiest = std::ranges::max_element(r.links, {}, &LinkResult::busy_fraction);
  if (busiest == r.links.end() || busiest->busy_fraction <= 0) return "";
  return fmt::format("           busiest link: {} carries {}, busy {}\n", busiest->name,
                     format_bytes(static_cast<double>(busiest->bytes)),
                     format_percent(busiest->busy_fraction));
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

std::string to_table(const Simulation& s, const Result& r, const OutputOptions& options) {
  std::string text = heading(s, options) + fits(r) + how_fast(s, r) + why(r) + path_summary(s, r) +
                     link_line(r) + help(r);
  for (const std::string& note : r.notes) text += "note: " + note + "\n";
  text += "\n" + device_table(s, r);
  if (options.events) text += events_table(s);
  return text;
}

}  // namespace penstock
