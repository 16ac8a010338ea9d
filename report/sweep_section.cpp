#include "report/sweep_section.hpp"

namespace penstock {
namespace {

constexpr std::string_view kRoleNames[] = {"axis", "measure", "other"};

std::vector<std::vector<Cell>> with_status(const std::vector<SweepPoint>& points) {
  std::vector<std::vector<Cell>> rows;
  rows.reserve(points.size());
  for (const SweepPoint& point : points) {
    std::vector<Cell>& row = rows.emplace_back(point.cells);
    row.emplace_back(std::string(kPointStatusNames[static_cast<std::size_t>(point.status)]));
    row.emplace_back(point.reason);
  }
  return rows;
}

}  // namespace

std::string section_text(const SweepSection& sweep) {
  SectionJson json = section_json("sweep", sweep.text);
  json["heat_measure"] = sweep.heat_measure;
  json["pareto_x"] = sweep.pareto_x;
  json["pareto_y"] = sweep.pareto_y;
  std::vector<SweptColumn> columns = sweep.columns;
  columns.push_back({{"status"}});
  columns.push_back({{"reason"}});
  const auto rows = with_status(sweep.points);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const SweptColumn& column = columns[c];
    json["columns"].push_back({{"name", column.column.name},
                               {"unit", column.column.unit},
                               {"role", kRoleNames[static_cast<std::size_t>(column.role)]},
                               {"better", column.better == Better::higher ? "higher" : "lower"},
                               {"values", column_json(rows, c)}});
  }
  return to_text(json);
}

}  // namespace penstock
