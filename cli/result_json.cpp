// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include "base/say.hpp"
#include "base/table.hpp"
#include "base/terminal.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const std::string text = without_controls(value.get<std::string>());
  // A spreadsheet would take it for a formula.
  const bool formula =
      !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  if (!formula && text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = formula ? "\"'" : "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

Json events_json(const Simulation& s) {
  Json events = Json::array();
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    for (std::uint32_t g = s.program.ops.begin(d); g < s.program.ops.end(d); ++g) {
      const Op& op = s.program.ops[g];
      const Span& span = s.timeline->op(g);
      if (s.timeline->never_ran(g)) continue;
      // Steps and reductions that are not modelled take no time and are no events.
      if (!is_compute(op.kind) && span.length_s() == 0) continue;
      events.push_back(
          {{"device", d},
           {"op", to_string(op)},
           {"start_s", span.start_s},
           {"end_s", span.end_s},
           {"weight_version", is_compute(op.kind) ? Json(s.weight_version(op)) : Json(nullptr)}});
    }
  }
  return events;
}

Json to_json(const Simulation& s, const Result& r, const OutputOptions& options) {
  Json out = to_json(Summary{s.scenario, &s, &r, options.reproducible});
  if (options.events) out["events"] = events_json(s);
  return out;
}

namespace {

/// The scalars of a map, at whatever depth.
CsvRow summary_row_of_part(const Json& part) {
  CsvRow row;
  for (const auto& [key, value] : part.items()) {
    if (!value.is_object() && !value.is_array()) row.emplace_back(key, value);
    if (!value.is_object()) continue;
    for (auto& [inner, scalar] : summary_row_of_part(value))
      row.emplace_back(key + "_" + inner, std::move(scalar));
  }
  return row;
}

}  // namespace

CsvRow summary_row(const Json& result) {
  CsvRow row;
  for (const auto& [key, value] : result.items()) {
    if (value.is_object()) {
      for (auto& [inner, scalar] : summary_row_of_part(value))
        row.emplace_back(key + "_" + inner, std::move(scalar));
    } else if (!value.is_array()) {
      row.emplace_back(key, value);
    } else if (key == "width") {
      row.emplace_back(key, fmt::format("{}", fmt::join(value.get<std::vector<int>>(), " ")));
    } else if (key == "infeasible_because") {
      row.emplace_back(key, value.empty() ? Json("") : value[0]);
    }
  }
  for (const Measure& measure : measures()) {
    if (measure.of_device == nullptr) continue;
    Json most;
    for (const Json& device : result.value("devices", Json::array())) {
      const Json* own = device.find(measure.name);
      if (own != nullptr && !own->is_null() &&
          (most.is_null() || own->get<double>() > most.get<double>()))
        most = *own;
    }
    row.emplace_back(measure.name, most);
  }
  return row;
}

CsvRow csv_row(const Json& object) {
  CsvRow row;
  for (const auto& [key, value] : object.items()) {
    std::string cell;
    for (const Json& item : value.is_array() ? value : Json::array())
      cell +=
          (cell.empty() ? "" : " ") + (item.is_string() ? item.get<std::string>() : item.dump());
    row.emplace_back(key, value.is_array() ? Json(cell) : value);
  }
  return row;
}

std::string to_csv(const std::vector<CsvRow>& rows) {
  std::vector<std::string> columns;  // of any row
  for (const auto& row : rows) {
    for (const auto& [key, value] : row) {
      if (std::ranges::find(columns, key) == columns.end()) columns.push_back(key);
    }
  }
  const auto line = [](const auto& cells) { return fmt::format("{}\n", fmt::join(cells, ",")); };
  std::vector<std::string> cells;
  for (const std::string& column : columns) cells.push_back(csv_cell(Json(column)));
  std::string out = columns.empty() ? "" : line(cells);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto own =
          std::ranges::find(row, columns[c], [](const auto& cell) { return cell.first; });
      cells[c] = own == row.end() ? "" : csv_cell(own->second);
    }
    out += line(cells);
  }
  return out;
}

void put_output(const Arguments& arguments, const std::string& text) {
  write_file(arguments.value("output", "-"), text);
}

void put_result(const Arguments& arguments, const std::string& text) {
  const bool for_people = arguments.value("format", "table") == "table";
  put_output(arguments, for_people ? wrapped(without_controls(text), results_width()) : text);
}

}  // namespace penstock
