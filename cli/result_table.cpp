// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/perturbation_lines.hpp"
#include "results/attention_share.hpp"
#include "results/expected_error.hpp"
#include "traces/cause_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

namespace penstock {
namespace {

constexpr std::size_t kRows = 16;  // rows of devices shown, and that of the fullest one

/// "17.23 of 73.12 GiB", "3.10 MiB of 73.12 GiB".
std::string of_capacity(std::int64_t bytes, std::int64_t capacity) {
  const ByteUnit used = byte_unit(bytes), all = byte_unit(capacity);
  return fmt::format("{}{} of {} {}", used.text(bytes),
                     used.name == all.name ? "" : fmt::format(" {}", used.name), all.text(capacity),
                     all.name);
}

std::string ends(const Result& r) {
  return r.stalled_because.empty() ? "" : "Ends?      NO: " + r.stalled_because + "\n";
}

/// Is the memory of the real job more than this, or less?
std::string bound_of(const Scenario& s) {
  if (s.missing_saves.empty()) return "at least ";
  return s.missing.empty() ? "at most " : "about ";
}

std::string fits(const Simulation& s, const Result& r) {
  const auto fullest = std::ranges::min_element(
      r.devices, {}, [](const DeviceResult& d) { return d.capacity_bytes - d.memory.use.total(); });
  const std::int64_t peak = fullest->memory.use.total();
  if (fullest->capacity_bytes == 0) {
    return peak == 0 ? "Fits?      unknown: the scenario gives no sizes\n"
                     : fmt::format(
                           "Fits?      unknown: the cluster gives no memory; device {} needs {}\n",
                           fullest->device, format_bytes(static_cast<double>(peak)));
  }
  if (const std::string left_out = s.scenario.left_out(); !left_out.empty()) {
    const auto truth = s.scenario.fits_in_truth(r.infeasible_because.empty());
    if (!truth || *truth)
      return fmt::format("Fits?      {}: {}{} of device {}, the fullest, without {}\n",
                         truth ? "yes" : "unknown", bound_of(s.scenario),
                         of_capacity(peak, fullest->capacity_bytes), fullest->device, left_out);
  }
  if (r.infeasible_because.empty()) {
    const std::int64_t free = fullest->capacity_bytes - peak;
    const std::string barely = barely_fits(peak, fullest->capacity_bytes);
    return fmt::format("Fits?      yes{}: the fullest device, {}, uses {}, {} free{}\n",
                       barely.empty() ? "" : ", barely", fullest->device,
                       of_capacity(peak, fullest->capacity_bytes),
                       format_bytes(static_cast<double>(free)),
                       barely.empty() ? "" : fmt::format(" ({})", barely));
  }
  std::string text = "Fits?      NO: ";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, r.infeasible_because.size()); ++i) {
    text += (i == 0 ? "" : "           ") + r.infeasible_because[i] + "\n";
  }
  if (r.infeasible_because.size() > 3)
    text += fmt::format(
        "           and {}\n",
        counted(static_cast<std::int64_t>(r.infeasible_because.size()) - 3, "more stage"));
  return text;
}

std::string flops_text(double tflops) {
  return tflops >= 1 ? fmt::format("{:.1f} TFLOP/s", tflops)
                     : fmt::format("{:.3g} GFLOP/s", tflops * 1e3);
}

/// Does the real job take longer than this, or less time?
const char* time_bound_of(const Scenario& s) {
  if (s.left_out().empty()) return "";
  if (s.missing_saves.find(kFrozenWeights) == std::string::npos) return "at best ";
  return s.left_out() == kFrozenWeights ? "at most " : "about ";
}

std::string how_fast(const Simulation& s, const Result& r) {
  std::string text = fmt::format("How fast?  {}", time_bound_of(s.scenario));
  const bool each = s.program.versions.kind == VersionRule::Kind::stash;
  const std::string per = !each                              ? "update"
                          : s.program.placement.replicated() ? "microbatch of every replica"
                                                             : "microbatch";
  if (r.iteration_time_s) text += fmt::format("{} per {}, ", format_time(*r.iteration_time_s), per);
  text += fmt::format("{:.4g} samples/s", r.samples_per_s);
  if (r.tflops_per_gpu) {
    text += fmt::format(", {:.0f} tokens/s/GPU, {}/GPU", *r.tokens_per_s_per_gpu,
                        flops_text(*r.tflops_per_gpu));
  }
  if (r.mfu) {
    text += fmt::format(
        "\n           MFU {}, HFU {} (of the dense {} peak, attention counted in full; HFU counts "
        "recomputation)",
        format_percent(*r.mfu), format_percent(*r.hfu),
        s.scenario.transformer->peak_of(ProductClass::mlp));
  }
  if (r.mfu && r.mfu_causal && much_attention(*r.mfu, *r.mfu_causal))
    text += fmt::format(
        "\n           MFU {} with causal attention counted by half: attention is {} of the FLOPs",
        format_percent(*r.mfu_causal), format_percent(2 * (1 - *r.mfu_causal / *r.mfu)));
  if (r.epoch_s) text += fmt::format("\n           {:.1f} h per epoch", *r.epoch_s / 3600);
  return text + "\n";
}

/// None of what was measured, or given by times.
std::string how_sure(const Simulation& s) {
  const auto error = s.measured ? std::nullopt : expected_error(s.scenario);
  return error ? how_sure_text(*error) : "";
}

/// A bubble of F and B alone, as a share of updates that end with an optimizer step as well.
double beside_steps(double bubble, const Scenario& s) {
  double work = 0, steps = 0;
  for (const StageCosts& c : s.costs) {
    work += s.shape.per_batch(0) *
            (c[OpKind::forward].seconds + c[OpKind::backward].seconds / c.backward_microbatches);
    steps += c.step_s;
  }
  if (!(work > 0)) return bubble;
  const double idle = bubble / (1 - bubble);  // per work
  return idle / (idle + 1 + steps / work);
}

/// How much of it is the schedule's own, however well the stages are balanced.
std::string ideal(const Simulation& s) {
  const ScheduleShape shape = told_shape(s.scenario, s.scenario.costs, s.scenario.cluster);
  const double claimed = s.scenario.schedule->claimed_bubble(shape);
  if (!(claimed > 0)) return "";  // none, or none claimed for this shape
  const double own = beside_steps(claimed, s.scenario);
  const bool steps_count = format_percent(own) != format_percent(claimed);
  const std::string text = fmt::format(
      "           equal stages and free transfers would leave {}{}:", format_percent(own),
      s.scenario.schedule->of_stage_time ? " of the longest device" : "");
  const std::string formula =
      fmt::format("{} per {}{}\n", s.scenario.schedule->bubble,
                  shape.accumulation_steps > 1 ? "accumulation step" : "update",
                  steps_count ? ", and the optimizer step is work, too" : "");
  constexpr std::size_t kColumns = 120;
  const bool fits = text.size() + formula.size() <= kColumns;
  return text + (fits ? " " : "\n             ") + formula;
}

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
  std::vector<double> lost(s.traffic->links().size(), 0.0);
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
  constexpr std::size_t kColumns = 120;
  const std::string_view head = "           exposed communication, of device time: ";
  std::string text;
  std::size_t column = head.size();
  const auto add = [&](std::string_view what, const Communication& c) {
    if (device_s <= 0 || c.total_s <= 0) return;
    const double hidden = 1 - c.exposed_s / c.total_s;
    std::string part = fmt::format("{} {}", what, format_percent(c.exposed_s / device_s));
    if (hidden >= 0.0005) part += fmt::format(" ({} hidden)", format_percent(hidden));
    const bool fits = column + part.size() + 2 <= kColumns;
    if (!text.empty()) text += fits ? ", " : ",\n             ";
    column = (fits ? column : 13) + part.size() + 2;
    text += part;
  };
  add("pipeline", r.communication.pipeline);
  add("data", r.communication.data);
  for (const Axis axis : r.communication.axes())
    add(traits(axis).name, r.communication.inner[static_cast<std::size_t>(axis)]);
  return text.empty() ? "" : fmt::format("{}{}\n", head, text);
}

std::string help(const Result& r) {
  std::string text;
  const auto add = [&](const std::string& change, const std::string& effect) {
    text +=
        fmt::format("{}{}: {}\n", text.empty() ? "Would help?  " : "             ", change, effect);
  };
  const auto time = [](double ratio) {
    const double percent = 100 * (ratio - 1);
    return std::abs(percent) < 0.05 ? "no change" : fmt::format("update time {:+.1f} %", percent);
  };
  if (r.nothing_to_change)
    add("nothing that was tried of schedule, split, recomputation, microbatch size, degrees",
        r.infeasible_because.empty() ? "by more than 0.2 %" : "to make it fit on as many GPUs");
  for (const Advice& a : r.what_to_change)
    add(a.change, (a.makes_it_fit ? "fits, " : "") + time(a.time_ratio));
  for (const Sensitivity& h : r.what_would_help) {
    if (!r.iteration_time_s || *r.iteration_time_s <= 0) break;
    const double ratio = h.iteration_time_s / *r.iteration_time_s;
    if (worth_saying(r, h)) add(h.change, time(ratio));
  }
  if (!r.help_not_tried.empty()) add("not tried", r.help_not_tried);
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

/// Devices of which a table says the same.
struct AlikeDevices {
  const DeviceResult* first;
  std::vector<int> devices;
  std::vector<std::string> cells;
};

using DeviceCells = std::function<std::vector<std::string>(const DeviceResult&)>;

/// Of a layer of a pipeline all replicas are often alike. In the order of the first of each.
std::vector<AlikeDevices> alike(const Result& r, const DeviceCells& cells) {
  std::map<std::vector<std::string>, std::size_t> known;
  std::vector<AlikeDevices> found;
  for (const DeviceResult& d : r.devices) {
    const auto [at, added] = known.try_emplace(cells(d), found.size());
    if (added) found.push_back({&d, {}, at->first});
    found[at->second].devices.push_back(d.device);
  }
  return found;
}

/// A row for devices that are alike (`of_first`: the last cell, of the first of them): the first
/// rows and the last one when there are many, and of those between that of the fullest and of the
/// busiest device.
std::string device_rows(std::vector<std::string> header, const Result& r, std::size_t width,
                        const std::vector<std::string>& least, const DeviceCells& cells,
                        const std::function<std::string(const DeviceResult&)>& of_first = nullptr,
                        std::string_view stash = "") {
  const auto fullest = std::ranges::max_element(
      r.devices, {}, [](const DeviceResult& d) { return d.memory.use.total(); });
  const auto busiest =
      std::ranges::max_element(r.devices, {}, [](const DeviceResult& d) { return d.time.busy_s; });
  header.insert(header.begin(), "device");
  TextTable table(std::move(header));
  const std::vector<AlikeDevices> rows = alike(r, cells);
  std::size_t shown = 0;
  bool dots = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto has = [&](const auto& d) {
      return std::ranges::count(rows[i].devices, d->device) > 0;
    };
    if (i >= kRows && i + 1 < rows.size() && !has(fullest) && !has(busiest)) {
      dots = true;
      continue;
    }
    if (dots) table.add_row({"..."});
    dots = false;
    ++shown;
    std::vector<std::string> row{devices_text(rows[i].devices)};
    row.insert(row.end(), rows[i].cells.begin(), rows[i].cells.end());
    if (of_first) row.push_back(of_first(*rows[i].first));
    table.add_row(std::move(row));
  }
  const std::string gone = table.fit(width, least);
  std::string text = table.render() + gone;
  if (shown < rows.size())
    text += fmt::format("({} of {} rows; --format json has all)\n", shown, rows.size());
  if (stash.empty()) return text;
  return text + table.legend({{"stash", stash},
                              {"versions", "of the weights"},
                              {"staleness", "updates that the weights of a gradient are behind"}},
                             width);
}

/// Do weight versions mean anything here?
bool has_versions(const Result& r) {
  return std::ranges::any_of(r.devices, [](const DeviceResult& d) {
    return d.order.weight_versions_peak > 1 || d.order.staleness_max > 0;
  });
}

std::string time_table(const Simulation& s, const Result& r, const OutputOptions& options) {
  std::vector<std::string> header{"stage"};
  const bool layers = !s.scenario.layers.empty(), versions = has_versions(r);
  const std::uint32_t chunks = s.scenario.shape.chunks;
  if (layers) header.emplace_back("layers");
  for (const char* h : {"busy", "idle", "bubble", "stash"}) header.emplace_back(h);
  if (versions) header.insert(header.end(), {"versions", "staleness"});
  return device_rows(
      std::move(header), r, options.width, {"idle", "layers", "stash"},
      [&](const DeviceResult& d) {
        std::vector<std::string> row{stages_text(d.stages)};
        if (layers) row.push_back(layers_text(d));
        row.push_back(format_time(d.time.busy_s));
        row.push_back(format_time(d.idle_s));
        row.push_back(format_percent(r.makespan_s > 0 ? d.idle_s / r.makespan_s : 0));
        row.push_back(stash_text(d.order.stash_peak, chunks, chunks > 1));
        if (!versions) return row;
        row.push_back(std::to_string(d.order.weight_versions_peak));
        row.push_back(std::to_string(d.order.staleness_max));
        return row;
      },
      nullptr,
      chunks > 1 ? "microbatches whose activations are held, a chunk's counting as its part"
                 : "microbatches whose activations are held");
}

/// What the memory of each device consists of at its peak; empty when the scenario gives no sizes.
std::string memory_table(const Simulation& s, const Result& r, const OutputOptions& options) {
  std::int64_t most = 0;
  std::array<bool, kOwners> any{};
  for (const DeviceResult& d : r.devices) {
    most = std::max(most, d.memory.use.total());
    for (std::size_t o = 0; o < kOwners; ++o) any[o] |= d.memory.use.bytes[o] > 0;
  }
  if (std::ranges::none_of(any, std::identity())) return "";
  const ByteUnit unit = byte_unit(most);
  std::vector<std::string> header{"peak"};
  const bool known =
      std::ranges::any_of(r.devices, [](const DeviceResult& d) { return d.capacity_bytes > 0; });
  if (known) header.emplace_back("free");
  for (std::size_t o = 0; o < kOwners; ++o)
    if (any[o])
      header.emplace_back(static_cast<Owner>(o) == Owner::weight_versions ? "versions"
                                                                          : kOwnerNames[o]);
  header.emplace_back("at op");
  const std::string rows = device_rows(
      std::move(header), r, options.width, {"at op", "buffers", "workspace", "free"},
      [&](const DeviceResult& d) {
        const std::int64_t peak = d.memory.use.total();
        std::vector<std::string> row{unit.text(peak)};
        if (known) row.push_back(d.capacity_bytes > 0 ? unit.text(d.capacity_bytes - peak) : "-");
        for (std::size_t o = 0; o < kOwners; ++o)
          if (any[o]) row.push_back(unit.text(d.memory.use.bytes[o]));
        return row;
      },
      [&](const DeviceResult& d) {
        return d.memory.op == kNoOp ? "-" : to_string(s.program.ops[d.memory.op]);
      });
  return fmt::format("\nmemory at the peak, {}\n{}", unit.name, rows);
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

/// What `--samples` drew.
std::string sample_lines(const SampleStudy& study) {
  if (!study.differ)
    return "Varies?    no: nothing in the scenario is drawn (routing, documents, jitter)\n";
  const auto line = [](const char* what, const Quantiles& q, const auto& text) {
    return fmt::format("           {}: p5 {}, p50 {}, p95 {}, worst {}\n", what, text(q.p5),
                       text(q.p50), text(q.p95), text(q.worst));
  };
  const auto bytes = [](double value) { return format_bytes(value); };
  std::string out =
      fmt::format("Varies?    over {}, the first of which is shown:\n", counted(study.n, "draw")) +
      line("iteration", study.iteration_time_s, [](double s) { return format_time(s); });
  if (study.tokens_per_s)
    out += line("tokens/s", *study.tokens_per_s,
                [](double rate) { return format_count(std::llround(rate)); });
  out += line("bubble", study.bubble_fraction, [](double share) { return format_percent(share); });
  if (study.peak_memory_bytes.worst > 0) out += line("peak memory", study.peak_memory_bytes, bytes);
  if (study.infeasible > 0)
    out += fmt::format("           {} of them do not fit\n", study.infeasible);
  return out;
}

std::string events_table(const Simulation& s) {
  TextTable table({"device", "op", "start s", "end s", "version"});
  for (const Json& e : events_json(s)) {
    table.add_row({e["device"].dump(), e["op"].get<std::string>(),
                   fmt::format("{:.9g}", e["start_s"].get<double>()),
                   fmt::format("{:.9g}", e["end_s"].get<double>()),
                   e["weight_version"].is_null() ? "" : e["weight_version"].dump()});
  }
  return "\n" + table.render();
}

}  // namespace

std::string stash_text(double chunks_held, double chunks, bool decimal) {
  return fmt::format("{:.{}f}", chunks_held / chunks, decimal ? 1 : 0);
}

std::string to_table(const Simulation& s, const Result& r, const OutputOptions& options) {
  std::string text = heading_text(s, options.reproducible) + ends(r) + fits(s, r) + how_fast(s, r) +
                     how_sure(s) + why(s, r) + communication_line(s, r) + path_summary(s, r) +
                     contention_line(s, r) + link_line(s, r) + help(r);
  if (r.perturbed) text += perturbation_lines(*r.perturbed);
  if (r.samples) text += sample_lines(*r.samples);
  for (const std::string& note : r.notes) text += "note: " + note + "\n";
  text += "\n" + time_table(s, r, options) + memory_table(s, r, options);
  if (options.events) text += events_table(s);
  return text;
}

}  // namespace penstock
