#include "cli/sweep_report.hpp"

#include "base/units.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace penstock {
namespace {

/// Columns that say what a point is; the other numbers say what became of it.
constexpr std::string_view kSettings[] = {"stages",         "tensor",
                                          "microbatches",   "microbatch_size",
                                          "batches",        "samples_per_update",
                                          "capacity_bytes", "devices",
                                          "gpus",           "ops",
                                          "optimistic",     "chunks"};

std::string unit_of(std::string_view name) {
  if (name.ends_with("_bytes")) return "bytes";
  if (name == "throughput_samples_per_s") return "samples/s";
  if (name == "throughput_microbatches_per_s") return "microbatches/s";
  if (name == "tokens_per_s_per_device") return "tokens/s";
  if (name == "tflops_per_device") return "TFLOP/s";
  if (name.ends_with("_s")) return "s";
  const bool share = name.find("bubble") != name.npos || name == "mfu" || name == "hfu";
  return share ? "fraction" : "";
}

/// The page shows units by themselves.
std::string label_of(std::string name) {
  static constexpr std::pair<std::string_view, std::string_view> kLabels[] = {
      {"throughput_samples_per_s", "throughput"},
      {"throughput_microbatches_per_s", "throughput in microbatches"},
      {"tokens_per_s_per_device", "tokens per device"},
      {"tflops_per_device", "arithmetic per device"}};
  for (const auto& [column, label] : kLabels)
    if (name == column) return std::string(label);
  const std::string unit = unit_of(name);
  if (unit == "bytes" || unit == "s") name.resize(name.size() - unit.size() - 1);
  return name;
}

Better better(std::string_view name) {
  const bool rate = name.find("_per_s") != name.npos || name == "tflops_per_device";
  return rate || name == "mfu" || name == "hfu" ? Better::higher : Better::lower;
}

SweepRole role_of(const SweepColumn& column, bool several_scenarios) {
  if (column.type == SweepColumn::Type::value) return SweepRole::axis;
  if (column.name == "scenario") return several_scenarios ? SweepRole::axis : SweepRole::other;
  const bool setting = std::ranges::find(kSettings, column.name) != std::end(kSettings);
  const bool number = column.type == SweepColumn::Type::number;
  return number && !setting ? SweepRole::measure : SweepRole::other;
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
  const std::uint64_t ok = overview.count(0);
  return {{"What is best?", best ? best->rate : "nothing fits",
           best ? "with " + best->settings : "no point is feasible",
           best ? Verdict::good : Verdict::bad},
          {"How many points fit?",
           fmt::format("{} of {}", format_count(static_cast<std::int64_t>(ok)),
                       format_count(static_cast<std::int64_t>(overview.points()))),
           fmt::format("{}", fmt::join(overview.others(), "; ")),
           ok > 0 ? Verdict::neutral : Verdict::bad}};
}

}  // namespace

SweepReport::SweepReport(const Space& space, const Columns& columns, Documents& documents)
    : space_(space), status_(columns.at("status")), why_(columns.at("why")) {
  for (std::size_t c = 0; c < columns.all().size(); ++c) {
    const SweepColumn& column = columns.all()[c];
    if (c == status_ || c == why_) continue;  // a point's own
    shown_.push_back(c);
    section_.columns.push_back({{label_of(column.name), unit_of(column.name)},
                                role_of(column, space.files().size() > 1),
                                better(column.name)});
  }
  section_.text = {
      "Points",
      "Cells of the heat map without a colour do not fit or were refused: why stands in "
      "the table."};
  for (const std::string& file : space.files()) scenarios_ += documents.text(file);
  section_.heat_measure = section_.pareto_y = "throughput";
  section_.pareto_x = "peak_memory";
}

void SweepReport::add(const Cells& row) {
  if (section_.points.size() == kMost) {
    ++left_out_;
    return;
  }
  SweepPoint point;
  for (const std::size_t c : shown_) point.cells.push_back(cell_of(row[c]));
  point.status = status_of(row[status_]);
  point.reason = row[why_];
  section_.points.add(point);
}

std::vector<std::string> SweepReport::notes() const {
  if (left_out_ == 0) return {};
  return {fmt::format("the page has the first {} points; {} more are in the file of the sweep only",
                      kMost, left_out_)};
}

Report SweepReport::report(const Overview& overview, const Arguments& arguments) const {
  Report report;
  report.title = fmt::format("Sweep of {}", fmt::join(space_.files(), ", "));
  report.figures = figures(overview);
  report.sections = {section_text(section_)};
  report.notes = notes();
  report.command = arguments.command_line;
  report.scenario = scenarios_;
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace penstock
