#include "report/table_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace penstock {
namespace {

SectionJson numbers_json(const std::vector<std::vector<Cell>>& rows, std::size_t column) {
  SectionJson values = SectionJson::array();
  for (const auto& row : rows) {
    const double* number = std::get_if<double>(&row[column]);
    values.push_back(number ? number_json(*number) : nullptr);
  }
  return values;
}

std::string words_of(const Cell& cell) {
  if (const double* number = std::get_if<double>(&cell)) return fmt::format("{}", *number);
  const std::string* words = std::get_if<std::string>(&cell);
  return words ? *words : "";
}

}  // namespace

SectionJson column_json(const std::vector<std::vector<Cell>>& rows, std::size_t column) {
  const bool text = std::ranges::any_of(
      rows, [&](const auto& row) { return std::holds_alternative<std::string>(row[column]); });
  if (!text) return numbers_json(rows, column);
  SectionJson words = SectionJson::array(), at = SectionJson::array();
  std::unordered_map<std::string, std::size_t> known;
  for (const auto& row : rows) {
    const auto [it, fresh] = known.try_emplace(words_of(row[column]), known.size());
    if (fresh) words.push_back(it->first);
    at.push_back(it->second);
  }
  return {{"words", words}, {"at", at}};
}

std::string section_text(const TableSection& table) {
  SectionJson json = section_json("table", table.text);
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    json["columns"].push_back({{"name", table.columns[c].name},
                               {"unit", table.columns[c].unit},
                               {"values", column_json(table.rows, c)}});
  }
  return to_text(json);
}

}  // namespace penstock
