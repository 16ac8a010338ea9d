// SPDX-License-Identifier: Apache-2.0
#include "cli/simulation_report.hpp"

#include "base/units.hpp"
#include "cli/output.hpp"
#include "report/memory_section.hpp"
#include "report/table_section.hpp"
#include "report/time_section.hpp"
#include "report/timeline_section.hpp"
#include "program/iterations.hpp"
#include "program/op_costs.hpp"
#include "results/attention_share.hpp"
#include "results/expected_error.hpp"
#include "traces/cause_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace penstock {
namespace {

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

KeyFigure does_it_fit(const Simulation& s, const Result& r) {
  const auto fullest = std::ranges::min_element(
      r.devices, {}, [](const DeviceResult& d) { return d.capacity_bytes - d.memory.use.total(); });
  const std::int64_t peak = fullest->memory.use.total();
  const auto truth = s.scenario.fits_in_truth(r.infeasible_because.empty());
  if (!truth && fullest->capacity_bytes > 0)
    return {"Fits?", "unknown",
            fmt::format("{} {} of {} of device {}, without {}",
                        s.scenario.missing_saves.empty() ? "at least"
                        : s.scenario.missing.empty()     ? "at most"
                                                         : "about",
                        bytes_text(peak), bytes_text(fullest->capacity_bytes), fullest->device,
                        s.scenario.left_out())};
  if (!r.infeasible_because.empty()) {
    const std::size_t more = r.infeasible_because.size() - 1;
    return {"Fits?", "no",
            r.infeasible_because[0] +
                (more > 0 ? fmt::format(", and {}",
                                        counted(static_cast<std::int64_t>(more), "more stage"))
                          : ""),
            Verdict::bad};
  }
  if (fullest->capacity_bytes == 0)
    return {"Fits?", "unknown",
            peak == 0 ? "the scenario gives no sizes"
                      : fmt::format("no capacity given; device {} needs {}", fullest->device,
                                    bytes_text(peak))};
  const std::string barely = barely_fits(peak, fullest->capacity_bytes);
  return {
      "Fits?", barely.empty() ? "yes" : "yes, barely",
      fmt::format("device {}, the fullest, uses {} of {}{}", fullest->device, bytes_text(peak),
                  bytes_text(fullest->capacity_bytes),
                  barely.empty() ? ""
                                 : fmt::format(": {} free ({})",
                                               bytes_text(fullest->capacity_bytes - peak), barely)),
      barely.empty() ? Verdict::good : Verdict::neutral};
}

KeyFigure iteration(const Simulation& s, const Result& r) {
  if (!r.stalled_because.empty())
    return {"How fast?", "never ends", r.stalled_because, Verdict::bad};
  const bool each = s.program.versions.kind == VersionRule::Kind::stash;
  if (r.iteration_time_s)
    return {"How fast?", format_time(*r.iteration_time_s),
            fmt::format("per {}, in the steady state", each ? "microbatch" : "update")};
  return {"How fast?", format_time(r.makespan_s), "the whole run: too short for a steady state"};
}

KeyFigure throughput(const Result& r) {
  std::string detail;
  if (r.tokens_per_s_per_gpu)
    detail = fmt::format("{:.0f} tokens/s, {:.0f} TFLOP/s of each GPU", *r.tokens_per_s_per_gpu,
                         *r.tflops_per_gpu);
  if (r.mfu)
    detail += fmt::format("; MFU {}, HFU {}", format_percent(*r.mfu), format_percent(*r.hfu));
  if (r.mfu && r.mfu_causal && much_attention(*r.mfu, *r.mfu_causal))
    detail += fmt::format("; MFU {} with causal attention counted by half",
                          format_percent(*r.mfu_causal));
  return {"Throughput", rate_text(r.samples_per_s) + " samples/s", detail};
}

KeyFigure bubble(const Result& r) {
  const auto most = std::ranges::max_element(r.bubble);
  const std::string_view cause = kCauseWords[static_cast<std::size_t>(most - r.bubble.begin())];
  return {"Why? The bubble", format_percent(r.bubble_fraction),
          *most > 0 ? fmt::format("most of it {}: {} of the run", cause, format_percent(*most))
                    : "of the devices' time is idle"};
}

/// What `penstock simulate` says first, without the name, which is the title.
std::string summary(const Simulation& s) {
  std::string text = heading_text(s, true);
  text.erase(0, text.find('\n') + 1);
  text.erase(text.find_last_not_of('\n') + 1);
  if (!s.scenario.overrides.empty())
    text += fmt::format("\nwith {}", fmt::join(s.scenario.overrides, ", "));
  return text;
}

/// Whole updates that a pipeline needs to fill and drain: one with a flush.
std::size_t updates_shown_first(const ScheduleShape& shape, const std::vector<double>& ends_s) {
  const std::size_t each = std::max<std::size_t>(1, shape.microbatches_per_update);
  const std::size_t filled = (2 * static_cast<std::size_t>(shape.depth) + each - 1) / each;
  return filled + 1 < ends_s.size() && !std::isnan(ends_s[filled]) ? filled : 0;
}

/// Where a device has so many boxes that none can be told from the next, the time of its first
/// ones, of any device; else, or where what is shown first is shorter, 0.
double beginning_of(const TimelineSection& section) {
  constexpr std::size_t kMostAtOnce = 256, kShown = 48;
  double to_s = std::numeric_limits<double>::infinity();
  for (const TimelineLane& lane : section.lanes)
    if (lane.bars.size() > kMostAtOnce) to_s = std::min(to_s, lane.bars[kShown].span.start_s);
  const double first_s =
      section.end_update > 0 ? section.clocks[0].update_ends_s[section.end_update] : to_s;
  return std::isfinite(to_s) && to_s <= first_s ? to_s : 0;
}

/// Devices that do the same, as those of a stage's replicas often do.
struct AlikeRow {
  std::string name;
  std::vector<int> devices;
};

/// Rows of a report: of devices with the same stages, the same peak and, to a thousandth of the
/// run, the same times, the first of which stands for all. In the order of the first of each.
std::vector<AlikeRow> alike_rows(const Result& r) {
  const auto key = [&](const DeviceResult& d) {
    std::vector<std::int64_t> numbers{d.memory.use.total(), d.capacity_bytes};
    const auto add = [&](double seconds) {
      numbers.push_back(r.makespan_s > 0 ? std::llround(1e3 * seconds / r.makespan_s) : 0);
    };
    add(d.time.busy_s);
    for (const double idle_s : d.time.idle_s) add(idle_s);
    return std::pair(d.stages, numbers);
  };
  std::map<std::vector<int>, std::size_t> devices_of;
  for (const DeviceResult& d : r.devices) ++devices_of[d.stages];
  std::map<decltype(key(r.devices[0])), std::size_t> known;
  std::vector<AlikeRow> rows;
  for (const DeviceResult& d : r.devices) {
    const auto [at, added] = known.try_emplace(key(d), rows.size());
    if (added) rows.push_back({});
    rows[at->second].devices.push_back(d.device);
  }
  for (AlikeRow& row : rows) {
    const std::vector<int>& stages = r.devices[static_cast<std::size_t>(row.devices[0])].stages;
    row.name =
        row.devices.size() == 1
            ? fmt::format("device {}", row.devices[0])
            : (row.devices.size() == devices_of[stages]
                   ? fmt::format("stage{} {}", stages.size() > 1 ? "s" : "", fmt::join(stages, ","))
                   : fmt::format("devices {}", fmt::join(row.devices, ",")));
  }
  return rows;
}

std::string memory_section(const Simulation& s, const Result& r,
                           const std::vector<AlikeRow>& rows) {
  MemorySection section{{"Memory"}, {}, r.makespan_s};
  for (const AlikeRow& row : rows) {
    const DeviceResult& d = r.devices[static_cast<std::size_t>(row.devices[0])];
    section.lines.push_back(memory_line(s.memory(), d.device, d.capacity_bytes));
    section.lines.back().name = row.name;
  }
  return section_text(section);
}

/// Of the seconds that a device computes, how much is recomputation.
double recomputed_share(const Simulation& s, int device) {
  const OpLists& ops = s.program.ops;
  double all_s = 0, again_s = 0;
  for (std::uint32_t g = ops.begin(device); g < ops.end(device); ++g) {
    const Op& op = ops[g];
    if (op.kind == OpKind::reduce_grad || s.timeline->never_ran(g)) continue;
    const StageCosts& costs = s.scenario.costs[op.stage];
    if (!ops.second_of_pair(g)) all_s += computing_s(ops, s.program.placement, s.scenario.costs, g);
    if (is_compute(op.kind)) again_s += recompute_share(op, costs) * costs[op.kind].seconds;
  }
  return all_s > 0 ? std::min(1.0, again_s / all_s) : 0;
}

std::string time_section(const Simulation& s, const Result& r, const std::vector<AlikeRow>& rows) {
  TimeSection section{{"Where an update's time goes",
                       "Shares of the whole run, of all devices together and of each. Exchanges "
                       "are those that nothing hides; every "
                       "idle moment has one cause (docs/metrics.md)."},
                      r.makespan_s,
                      {},
                      {{"compute", "computing", {}}, {"recompute", "recomputation", {}}}};
  const std::vector<Axis> axes = r.communication.axes();
  for (const Axis axis : axes)
    section.parts.push_back(
        {std::string(traits(axis).name), fmt::format("{} exchanges", traits(axis).name), {}});
  for (std::size_t c = 0; c < kCauses; ++c)
    section.parts.push_back(
        {std::string(kCauseNames[c]), fmt::format("idle: {}", kCauseWords[c]), {}});
  for (const AlikeRow& row : rows) {
    const auto d = static_cast<std::size_t>(row.devices[0]);
    const DeviceMetrics& time = r.devices[d].time;
    const ByExchangeAxis<double>& exchanges = r.communication.exposed_of_device[d];
    double computing_s = time.busy_s;
    for (const double seconds : exchanges) computing_s -= seconds;
    const double again_s = computing_s * recomputed_share(s, row.devices[0]);
    section.rows.push_back({row.name, static_cast<int>(row.devices.size())});
    auto part = section.parts.begin();
    (part++)->seconds.push_back(computing_s - again_s);
    (part++)->seconds.push_back(again_s);
    for (const Axis axis : axes)
      (part++)->seconds.push_back(exchanges[static_cast<std::size_t>(axis)]);
    for (const double seconds : time.idle_s) (part++)->seconds.push_back(seconds);
  }
  return section_text(section);
}

std::string links_section(const Result& r) {
  TableSection section{
      {"Links", "The busiest first; a row stands for all links that carry as much."},
      {{"link"}, {"bytes", "bytes"}, {"busy", "fraction"}, {"flows at once"}, {"alike"}},
      {}};
  std::vector<LinkResult> links = r.links;
  std::ranges::stable_sort(links, [](const LinkResult& a, const LinkResult& b) {
    return std::tie(a.busy_fraction, a.bytes) > std::tie(b.busy_fraction, b.bytes);
  });
  const auto alike = [](const LinkResult& a, const LinkResult& b) {
    return a.bytes == b.bytes && a.peak_flows == b.peak_flows &&
           std::abs(a.busy_fraction - b.busy_fraction) < 5e-4;  // as much as is shown
  };
  for (auto link = links.begin(); link != links.end();) {
    const auto next = std::find_if(link, links.end(),
                                   [&](const LinkResult& other) { return !alike(*link, other); });
    const double flows = link->peak_flows ? double(*link->peak_flows) : NAN;
    section.rows.push_back({link->name, static_cast<double>(link->bytes), link->busy_fraction,
                            flows, static_cast<double>(next - link)});
    link = next;
  }
  return section_text(section);
}

/// Returns the section that shows what `--samples` drew.
std::string samples_section(const SampleStudy& study) {
  const std::string note = study.differ
                               ? fmt::format("Over {}, the first of which the other sections show.",
                                             counted(study.n, "draw"))
                               : "Nothing in the scenario is drawn (routing, documents, jitter).";
  TableSection section{
      {"What varies", note}, {{"of a draw"}, {"p5"}, {"p50"}, {"p95"}, {"worst"}}, {}};
  const auto add = [&](const char* name, const Quantiles& q, const auto& text) {
    section.rows.push_back({name, text(q.p5), text(q.p50), text(q.p95), text(q.worst)});
  };
  add("iteration", study.iteration_time_s, [](double s) { return format_time(s); });
  if (study.tokens_per_s)
    add("tokens/s", *study.tokens_per_s,
        [](double rate) { return format_count(std::llround(rate)); });
  add("bubble", study.bubble_fraction, [](double share) { return format_percent(share); });
  add("peak memory, fullest device", study.peak_memory_bytes,
      [](double bytes) { return format_bytes(bytes); });
  return section_text(section);
}

std::string help_section(const Result& r) {
  TableSection section{
      {"What would help"}, {{"change"}, {"update", "s"}, {"difference", "fraction"}}, {}};
  for (const Advice& advice : r.what_to_change) {
    section.rows.push_back({advice.change + (advice.makes_it_fit ? " (fits)" : ""),
                            r.iteration_time_s ? *r.iteration_time_s * advice.time_ratio : NAN,
                            advice.time_ratio - 1});
  }
  for (const Sensitivity& change : r.what_would_help) {
    if (!worth_saying(r, change)) continue;
    double difference =
        r.iteration_time_s ? change.iteration_time_s / *r.iteration_time_s - 1 : NAN;
    if (std::abs(difference) < 1e-9) difference = 0;  // rounding
    section.rows.push_back({change.change, change.iteration_time_s, difference});
  }
  return section_text(section);
}

/// `whole`: the page is about this run alone.
std::string run_timeline(const Simulation& s, SectionText text, const std::vector<AlikeRow>& rows,
                         TimeWindow window, bool whole) {
  TimelineSection section{std::move(text), {}};
  std::string& note = section.text.note;
  const auto add = [&](const std::string& sentence) {
    note += (note.empty() ? "" : " ") + sentence;
  };
  if (!section.text.sub) add("Numbers are microbatches.");
  if (std::ranges::any_of(rows, [](const AlikeRow& row) { return row.devices.size() > 1; }))
    add("A row stands for all replicas of a stage, which do the same.");
  section.clocks[0].update_ends_s = update_ends(s.program, *s.timeline);
  section.end_update = updates_shown_first(s.scenario.shape, section.clocks[0].update_ends_s);
  for (const AlikeRow& row : rows) {
    section.lanes.push_back(device_lane(s.view(), row.devices[0], s.scenario.costs));
    section.lanes.back().name = row.name;
  }
  if (const double end_s = beginning_of(section); end_s > 0) {
    section.end_update = 0;
    section.open_to_s = end_s;
    if (!section.text.sub)
      add("It opens on the beginning, where microbatches can be told apart: All, or 0, shows the "
          "whole run.");
  }
  if (section.end_update > 0 && whole)
    add(fmt::format(
        "It opens on the first {}: All, or 0, shows the whole run.",
        section.end_update == 1 ? "update" : fmt::format("{} updates", section.end_update)));
  if (std::isfinite(window.to_s)) {
    add(fmt::format("Only {} to {} of {}.", format_time(window.from_s), format_time(window.to_s),
                    format_time(s.timeline->makespan_s)));
    section.end_update = 0;
    section.open_from_s = window.from_s;
    section.open_to_s = window.to_s;
    for (TimelineLane& lane : section.lanes)
      std::erase_if(lane.bars, [&](const TimelineBar& bar) {
        return !window.shows(bar.span.start_s, bar.span.end_s);
      });
  }
  return section_text(section);
}

}  // namespace

std::string rate_text(double per_s) {
  if (per_s > 1e15) return fmt::format("{:.4g}", per_s);  // more than is counted
  return per_s < 1000 ? fmt::format("{:.3g}", per_s) : format_count(std::llround(per_s));
}

std::string timeline_section(const Simulation& s, SectionText text, std::uint32_t replicas,
                             TimeWindow window) {
  const Placement& placement = s.program.placement;
  std::vector<AlikeRow> rows;
  for (int d = 0; d < placement.devices(); ++d) {
    if (replicas > 0 && placement.replica_of(d) >= replicas) continue;
    const std::vector<std::uint32_t>& stages = placement.stages_at(placement.position_of(d));
    rows.push_back(
        {replicas == 1 && placement.replicated()
             ? fmt::format("stage{} {}", stages.size() > 1 ? "s" : "", fmt::join(stages, ","))
             : fmt::format("device {}", d),
         {d}});
  }
  return run_timeline(s, std::move(text), rows, window, replicas == 0);
}

std::optional<KeyFigure> sure_figure(const Scenario& scenario) {
  const auto error = expected_error(scenario);
  if (!error) return std::nullopt;
  const Json& fraction = error->at("fraction");  // null: no runs of its kind were measured
  const std::string figure =
      fraction.is_null() ? "unknown" : "± " + format_percent(fraction.get<double>());
  return KeyFigure{"How sure?", figure, expected_error_text(*error).substr(figure.size() + 2)};
}

Report simulation_report(const Simulation& s, const Result& r, const Arguments& arguments,
                         TimeWindow window) {
  Report report;
  report.title = s.scenario.name;
  report.summary = summary(s);
  report.figures = {does_it_fit(s, r), iteration(s, r), throughput(r), bubble(r)};
  if (const auto sure = s.measured ? std::nullopt : sure_figure(s.scenario))
    report.figures.push_back(*sure);
  const std::vector<AlikeRow> rows = alike_rows(r);
  report.sections = {time_section(s, r, rows), run_timeline(s, {"Timeline"}, rows, window, true)};
  const bool sizes = std::ranges::any_of(
      r.devices, [](const DeviceResult& d) { return d.memory.use.total() > 0; });
  if (sizes) report.sections.push_back(memory_section(s, r, rows));
  if (r.samples) report.sections.push_back(samples_section(*r.samples));
  if (!r.what_would_help.empty() || !r.what_to_change.empty())
    report.sections.push_back(help_section(r));
  if (!r.links.empty()) report.sections.push_back(links_section(r));
  report.notes = r.notes;
  report.command = arguments.command_line;
  report.scenario = s.scenario.text();
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace penstock
