// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_report.hpp"

#include "base/units.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace penstock {
namespace {

std::string unit_of(const SweepColumn& column) {
  const Measure* m = measure_of(column);
  return m == nullptr ? "" : std::string(kUnitNames[static_cast<std::size_t>(m->unit)]);
}

/// The page shows units by themselves.
std::string label_of(const SweepColumn& column) {
  const Measure* m = measure_of(column);
  if (m == nullptr) return column.name;
  if (!m->column.label.empty()) return std::string(m->column.label);
  const bool named = m->unit == Unit::seconds || m->unit == Unit::bytes;
  return named ? column.name.substr(0, column.name.rfind('_')) : column.name;
}

Better better(const SweepColumn& column) {
  const Measure* m = measure_of(column);
  return m != nullptr && m->column.higher_is_better ? Better::higher : Better::lower;
}

SweepRole role_of(const SweepColumn& column, bool several_scenarios) {
  if (column.type == SweepColumn::Type::value) return SweepRole::axis;
  if (column.name == "scenario") return several_scenarios ? SweepRole::axis : SweepRole::other;
  const Measure* m = measure_of(column);
  return m != nullptr && !m->column.setting ? SweepRole::measure : SweepRole::other;
}

/// A number where the text is one.
Cell cell_of(const std::string& text) {
  if (text.empty()) return std::monostate();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return text;
}

PointStatus status_of(const std::string& name) {
  const auto found = std::ranges::find(kPointStatusNames, name);
  return static_cast<PointStatus>(found - std::begin(kPointStatusNames));
}

std::vector<KeyFigure> figures(const Overview& overview) {
  const auto best = overview.best_point();
  const std::uint64_t ok = overview.count(0), unknown = overview.count(1);
  return {{"What is best?", best ? best->rate : "nothing fits",
           best ? "with " + best->settings : "no point is feasible",
           best ? Verdict::good : Verdict::bad},
          {"How many points fit?",
           fmt::format("{} of {}", format_count(static_cast<std::int64_t>(ok)),
                       format_count(static_cast<std::int64_t>(overview.points()))),
           fmt::format("{}", fmt::join(overview.others(), "; ")),
           ok + unknown > 0 ? Verdict::neutral : Verdict::bad}};
}

}  // namespace

SweepReport::SweepReport(const Space& space, const Columns& columns, Documents& documents)
    : space_(space), status_(columns.at("status")), why_(columns.at("why")) {
  for (std::size_t c = 0; c < columns.all().size(); ++c) {
    const SweepColumn& column = columns.all()[c];
    if (c == status_ || c == why_) continue;  // a point's own
    shown_.push_back(c);
    section_.columns.push_back({{label_of(column), unit_of(column)},
                                role_of(column, space.files().size() > 1),
                                better(column)});
  }
  section_.text = {
      "Points",
      "Cells of the heat map without a colour do not fit or were refused: why stands in "
      "the table."};
  for (const std::string& file : space.files()) scenarios_ += documents.text(file);
  section_.heat_measure = section_.pareto_y = "throughput";
  section_.pareto_x = "peak_memory";
}

void SweepReport::add_row(const Cells& row) {
  if (section_.points.size() == kMost) {
    ++left_out_;
    return;
  }
  SweepPoint point;
  for (const std::size_t c : shown_) point.cells.push_back(cell_of(row[c]));
  point.status = status_of(row[status_]);
  point.reason = row[why_];
  section_.points.add_point(point);
}

std::vector<std::string> SweepReport::notes() const {
  if (left_out_ == 0) return {};
  return {fmt::format("the page has the first {} points; {} more are in the file of the sweep only",
                      kMost, left_out_)};
}

Report SweepReport::report(const Overview& overview, const std::vector<std::string>& cautions,
                           const Arguments& arguments) {
  if (overview.rate_unit() == "tokens/s") section_.heat_measure = section_.pareto_y = "tokens";
  Report report;
  std::vector<std::string> names;
  for (const std::string& file : space_.files())
    names.push_back(std::filesystem::path(file).stem().string());
  report.title = fmt::format("Sweep of {}", fmt::join(names, ", "));
  report.figures = figures(overview);
  report.sections = {section_text(section_)};
  report.notes = cautions;
  for (const std::string& note : notes()) report.notes.push_back(note);
  if (!overview.other_split().empty()) report.notes.push_back(overview.other_split());
  report.command = arguments.command_line;
  report.scenario = scenarios_;
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace penstock
