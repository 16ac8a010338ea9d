// SPDX-License-Identifier: Apache-2.0
#include "report/sweep_section.hpp"

namespace penstock {
namespace {

constexpr std::string_view kRoleNames[] = {"axis", "measure", "other"};

Json column_json(const SweptColumn& column, const ColumnValues& values) {
  return {{"name", column.column.name},
          {"unit", column.column.unit},
          {"role", kRoleNames[static_cast<std::size_t>(column.role)]},
          {"better", column.better == Better::higher ? "higher" : "lower"},
          {"values", values.json()}};
}

}  // namespace

SweepPoints::SweepPoints(std::initializer_list<SweepPoint> points) {
  for (const SweepPoint& point : points) add_point(point);
}

void SweepPoints::add_point(const SweepPoint& point) {
  ++size_;
  columns_.resize(point.cells.size() + 2);
  for (std::size_t c = 0; c < point.cells.size(); ++c) columns_[c].add_cell(point.cells[c]);
  columns_.rbegin()[1].add_cell(
      std::string(kPointStatusNames[static_cast<std::size_t>(point.status)]));
  columns_.back().add_cell(point.reason);
}

std::string section_text(const SweepSection& sweep) {
  Json json = section_json("sweep", sweep.text);
  json["heat_measure"] = sweep.heat_measure;
  json["pareto_x"] = sweep.pareto_x;
  json["pareto_y"] = sweep.pareto_y;
  json["heat_map"] = sweep.heat_map;
  json["rows"] = sweep.points.size();
  std::vector<SweptColumn> columns = sweep.columns;
  columns.push_back({{"status"}});
  columns.push_back({{"reason"}});
  // One column at a time becomes JSON values, which take several times the memory of their text.
  const auto& values = sweep.points.columns();
  std::string text = to_text(json);
  text.back() = ',';
  text += "\"columns\":";
  for (std::size_t c = 0; c < columns.size(); ++c)
    text += (c == 0 ? '[' : ',') +
            to_text(column_json(columns[c], c < values.size() ? values[c] : ColumnValues()));
  return text + "]}";
}

}  // namespace penstock
