// SPDX-License-Identifier: Apache-2.0
// Writes pages for the browser's tests: sample_report KIND FILE.
//   timeline: 64 devices, 65,536 ops; sweep: 10,000 points, some infeasible; scatter: predicted
//   over measured of a table; learning: two scenarios of one point each; sections: one of each
#include "report/comparison_section.hpp"
#include "report/learning_section.hpp"
#include "report/memory_section.hpp"
#include "report/report.hpp"
#include "report/scatter_section.hpp"
#include "report/sweep_section.hpp"
#include "report/time_section.hpp"
#include "report/timeline_section.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

namespace penstock {
namespace {

/// GPipe-like: forwards from the left, then backwards, one second per op.
TimelineSection timeline_of(int devices, std::uint32_t microbatches) {
  TimelineSection section{{"Timeline", "Made by hand."}, {}};
  for (int d = 0; d < devices; ++d) {
    TimelineLane lane{fmt::format("device {}", d), {}};
    const auto add = [&](double start_s, double length_s, std::uint32_t m, OpKind kind) {
      TimelineBar bar{{start_s, start_s + length_s}, {m, static_cast<std::uint16_t>(d), kind}};
      if (d > 0 && kind == OpKind::forward) bar.message = {start_s - 0.5, start_s};
      if (kind == OpKind::backward) bar.recompute_share = 0.25;
      lane.bars.push_back(bar);
    };
    for (std::uint32_t m = 0; m < microbatches; ++m) add(d + m, 1, m, OpKind::forward);
    const double turn = devices + microbatches - 1 + 2 * (devices - 1 - d);
    for (std::uint32_t m = 0; m < microbatches; ++m) add(turn + 2 * m, 2, m, OpKind::backward);
    section.lanes.push_back(lane);
  }
  return section;
}

/// Two timelines of the same ops, the second ten percent slower.
TimelineSection two_clocks() {
  const TimelineSection one = timeline_of(2, 4);
  TimelineSection both{{"Two clocks"}, {}};
  both.clocks = {{"predicted", {0, 8, 14}}, {"measured", {0, 9, 15.4}}};
  for (const TimelineLane& lane : one.lanes) {
    both.lanes.push_back({lane.name + " predicted", lane.bars, 0});
    both.lanes.push_back({lane.name + " measured", lane.bars, 1});
    for (TimelineBar& bar : both.lanes.back().bars)
      bar.span = {bar.span.start_s * 1.1, bar.span.end_s * 1.1};
  }
  both.end_update = 2;
  return both;
}

MemorySection memory_of(int devices) {
  MemorySection section{{"Memory"}, {}, 20};
  for (int d = 0; d < devices; ++d) {
    MemoryLine line{fmt::format("device {}", d), 8LL << 30, {}, "0F3", {}};
    for (int t = 0; t <= 20; ++t)
      line.samples.emplace_back(t, (1LL << 30) * (1 + std::min({t, 4 - d, 20 - t})));
    line.peak.use[Owner::activations] = (4LL - d) << 30;
    line.peak.use[Owner::weights] = 1LL << 30;
    line.peak.at_s = 4;
    section.lines.push_back(line);
  }
  return section;
}

TimeSection time_of(int devices) {
  TimeSection section{{"Where an update's time goes"},
                      20,
                      {},
                      {{"compute", "computing", {}},
                       {"tensor", "tensor exchanges", {}},
                       {"context", "context exchanges", {}},
                       {"warmup", "idle: warmup", {}},
                       {"drain", "idle: drain", {}}}};
  for (int d = 0; d < devices; ++d) {
    section.rows.push_back({fmt::format("device {}", d)});
    const double parts[] = {13, 3, 0, static_cast<double>(d), 4.0 - d};
    for (std::size_t p = 0; p < std::size(parts); ++p) section.parts[p].seconds.push_back(parts[p]);
  }
  return section;
}

ComparisonSection comparison() {
  return {{"Schedules"},
          {"gpipe", "1f1b", "zb-h1"},
          {{"iteration time", "s", {{"predicted", {2, 1.8, 1.5}}, {"measured", {2.1, NAN, 1.6}}}},
           {"bubble", "fraction", {{"", {0.3, 0.3, 0.12}}}},
           {"peak memory", "bytes", {{"", {8e9, 4e9, 4e9}}}}}};
}

/// Two classes and two panels; one row is ten times as slow as predicted, one has no memory.
ScatterSection scatter() {
  ScatterPanel time{"time of an iteration", "s", {{"depth 1", {}}, {"depth 2", {}}}};
  for (int i = 1; i <= 40; ++i)
    time.groups[i % 2].points.push_back(
        {fmt::format("row {}", i), 0.1 * i, 0.1 * i * (1 + 0.001 * i)});
  time.groups[0].points.push_back({"<b>slow</b>", 20, 2});
  ScatterPanel memory{
      "peak memory", "bytes", {{"depth 1", {{"row 1", 8e9, 9e9}, {"row 2", 8e9, 0}}}}};
  return {{"A table", "Made by hand."}, {time, memory}};
}

/// 5 schedules x 25 stages x 80 microbatches; too many stages times microbatches do not fit.
SweepSection sweep() {
  SweepSection section{{"Sweep", "Made by hand."},
                       {{{"stages"}, SweepRole::axis},
                        {{"microbatches"}, SweepRole::axis},
                        {{"schedule"}, SweepRole::axis},
                        {{"throughput", "samples/s"}, SweepRole::measure, Better::higher},
                        {{"peak_memory", "bytes"}, SweepRole::measure},
                        {{"iteration_time", "s"}, SweepRole::measure},
                        {{"engine"}, SweepRole::other}},
                       {}};
  const char* const schedules[] = {"gpipe", "1f1b", "pipedream", "chimera", "zb-h1"};
  for (int stages = 1; stages <= 25; ++stages) {
    for (int microbatches = 1; microbatches <= 80; ++microbatches) {
      for (int s = 0; s < 5; ++s) {
        const double time = (stages + microbatches - 1.0 - 0.1 * s) / stages;
        const double held = (s == 0 ? microbatches : std::min(stages, microbatches)) * 1e9 / stages;
        SweepPoint point{{double(stages), double(microbatches), schedules[s], {}, {}, {}, "exact"}};
        if (held > 40e9) {
          point.status = PointStatus::infeasible;
          point.reason = "device 0 needs more than it has";
        } else {
          point.cells[3] = microbatches / time;
          point.cells[4] = held;
          point.cells[5] = time;
        }
        if (section.points.size() == 7) {
          point.status = PointStatus::failed;
          point.reason = "killed by signal 9";
          point.cells = {double(stages), double(microbatches), schedules[s], {}, {}, {}, {}};
        }
        section.points.add_point(point);
      }
    }
  }
  return section;
}

/// As a run of one update leaves them: no line has two ends.
LearningSection learning() {
  return {{"Learning", "Made by hand."},
          "loss",
          {{"one", {{1, 16, 0.5, 2.5, 2.5, 2.5}}}, {"other", {{1, 16, 0.25, 2.75, 2.75, 2.75}}}}};
}

TableSection plans() {
  return {{"Plans"},
          {{"plan"}, {"time per stage", "s"}, {"depth"}},
          {{"<b>bold</b>", 0.25, 4.0}, {"second", 0.5, 2.0}, {"third", NAN, {}}}};
}

Report report_of(std::string_view kind) {
  Report report{.title = fmt::format("Sample: {}", kind),
                .summary = "Written by sample_report.",
                .figures = {{"Fits?", "yes", "with room", Verdict::good},
                            {"How fast?", "1.5 s", "per iteration"},
                            {"Why?", "30 %", "idle", Verdict::bad}},
                .sections = {},
                .command = "sample_report <file>",
                .scenario = "name: </script><script>alert(1)</script>\n",
                .version = "0"};
  if (kind == "timeline") report.sections = {section_text(timeline_of(64, 512))};
  if (kind == "scatter") report.sections = {section_text(scatter())};
  if (kind == "learning") report.sections = {section_text(learning())};
  if (kind == "sweep") report.sections = {section_text(sweep())};
  if (kind == "sections")
    report.sections = {section_text(timeline_of(4, 8)), section_text(two_clocks()),
                       section_text(memory_of(4)),      section_text(time_of(4)),
                       section_text(comparison()),      section_text(plans())};
  return report;
}

}  // namespace
}  // namespace penstock

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("usage: sample_report timeline|scatter|sweep|learning|sections FILE\n", stderr);
    return 2;
  }
  penstock::write_report(penstock::report_of(arguments[1]), arguments[2]);
}
