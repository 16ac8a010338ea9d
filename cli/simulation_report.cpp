#include "cli/simulation_report.hpp"

#include "base/units.hpp"
#include "cli/output.hpp"
#include "report/bubble_section.hpp"
#include "report/memory_section.hpp"
#include "report/table_section.hpp"
#include "report/timeline_section.hpp"
#include "program/iterations.hpp"
#include "results/expected_error.hpp"
#include "traces/cause_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
    detail = fmt::format("{:.0f} tokens/s, {:.1f} TFLOP/s of each GPU", *r.tokens_per_s_per_gpu,
                         *r.tflops_per_gpu);
  if (r.mfu)
    detail += fmt::format("; MFU {}, HFU {}", format_percent(*r.mfu), format_percent(*r.hfu));
  return {"Throughput", fmt::format("{:.4g} samples/s", r.samples_per_s), detail};
}

KeyFigure bubble(const Result& r) {
  const auto most = std::ranges::max_element(r.bubble);
  const std::string_view cause = kCauseWords[static_cast<std::size_t>(most - r.bubble.begin())];
  return {"Why? The bubble", format_percent(r.bubble_fraction),
          *most > 0 ? fmt::format("most of it {}: {} of the run", cause, format_percent(*most))
                    : "of the devices' time is idle"};
}

/// None of what was measured, or given by times.
std::vector<KeyFigure> sure_figure(const Simulation& s) {
  const auto error = s.measured ? std::nullopt : expected_error(s.scenario);
  if (!error) return {};
  const bool near = error->at("near").get<bool>();
  const double fraction = error->at("fraction").get<double>();
  return {{"How sure?", near ? "± " + format_percent(fraction) : "unknown",
           expected_error_text(*error)}};
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

std::string memory_section(const Simulation& s, const Result& r) {
  MemorySection section{{"Memory"}, {}, r.makespan_s};
  for (const DeviceResult& d : r.devices)
    section.lines.push_back(memory_line(s.memory(), d.device, d.capacity_bytes));
  return section_text(section);
}

std::string bubble_section(const Result& r) {
  BubbleSection section{
      {"Bubble", "Every idle moment of a device has one cause (docs/metrics.md)."},
      r.makespan_s,
      {}};
  for (const DeviceResult& d : r.devices) section.devices.push_back(d.time);
  return section_text(section);
}

std::string links_section(const Result& r) {
  TableSection section{
      {"Links"}, {{"link"}, {"bytes", "bytes"}, {"busy", "fraction"}, {"flows at once"}}, {}};
  for (const LinkResult& link : r.links) {
    const double flows = link.peak_flows ? double(*link.peak_flows) : NAN;
    section.rows.push_back({link.name, static_cast<double>(link.bytes), link.busy_fraction, flows});
  }
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

}  // namespace

std::string timeline_section(const Simulation& s, SectionText text, std::uint32_t replicas,
                             TimeWindow window) {
  TimelineSection section{std::move(text), {}};
  std::string& note = section.text.note;
  const auto add = [&](const std::string& sentence) {
    note += (note.empty() ? "" : " ") + sentence;
  };
  if (!section.text.sub)
    add("Numbers are microbatches. Ctrl and the wheel, or + and −, zoom; dragging or the arrows "
        "move; Shift and arrows go from op to op.");
  section.clocks[0].update_ends_s = update_ends(s.program, *s.timeline);
  section.end_update = updates_shown_first(s.scenario.shape, section.clocks[0].update_ends_s);
  const Placement& placement = s.program.placement;
  for (int d = 0; d < s.program.ops.devices(); ++d)
    if (replicas == 0 || placement.replica_of(d) < replicas)
      section.lanes.push_back(device_lane(s.view(), d, s.scenario.costs));
  if (const double end_s = beginning_of(section); end_s > 0) {
    section.end_update = 0;
    section.open_to_s = end_s;
    if (!section.text.sub)
      add("It opens on the beginning, where microbatches can be told apart: All, or 0, shows the "
          "whole run.");
  }
  if (section.end_update > 0 && replicas == 0)
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

Report simulation_report(const Simulation& s, const Result& r, const Arguments& arguments,
                         TimeWindow window) {
  Report report;
  report.title = s.scenario.name;
  report.summary = summary(s);
  report.figures = {does_it_fit(s, r), iteration(s, r), throughput(r), bubble(r)};
  std::ranges::copy(sure_figure(s), std::back_inserter(report.figures));
  report.sections = {timeline_section(s, {"Timeline"}, 0, window)};
  const bool sizes = std::ranges::any_of(
      r.devices, [](const DeviceResult& d) { return d.memory.use.total() > 0; });
  if (sizes) report.sections.push_back(memory_section(s, r));
  report.sections.push_back(bubble_section(r));
  if (!r.what_would_help.empty() || !r.what_to_change.empty())
    report.sections.push_back(help_section(r));
  if (!r.links.empty()) report.sections.push_back(links_section(r));
  report.notes = r.notes;
  report.command = arguments.command_line;
  report.scenario = s.scenario.text;
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace penstock
