// SPDX-License-Identifier: Apache-2.0
#include "report/table_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

std::string words_of(double number) { return std::isnan(number) ? "" : fmt::format("{}", number); }

template <class T>
bool all_the_same(const std::vector<T>& values) {
  const auto same = [&](T v) { return v == values[0] || (v != v && values[0] != values[0]); };
  return values.size() > 1 && std::ranges::all_of(values, same);
}

}  // namespace

void ColumnValues::add_cell(const Cell& cell) {
  const std::string* text = std::get_if<std::string>(&cell);
  const double* number = std::get_if<double>(&cell);
  if (text != nullptr) become_words();
  const double value = number != nullptr ? *number : NAN;
  if (text != nullptr || !at_.empty()) {
    at_.push_back(word(text != nullptr ? *text : words_of(value)));
  } else {
    numbers_.push_back(value);
  }
}

std::uint32_t ColumnValues::word(const std::string& text) {
  return words_.try_emplace(text, static_cast<std::uint32_t>(words_.size())).first->second;
}

void ColumnValues::become_words() {
  for (const double number : numbers_) at_.push_back(word(words_of(number)));
  numbers_ = {};
}

Json ColumnValues::json() const {
  Json values = Json::array();
  if (at_.empty()) {
    if (all_the_same(numbers_)) return {{"all", number_json(numbers_[0])}};
    for (const double number : numbers_) values.push_back(number_json(number));
    return values;
  }
  std::vector<const std::string*> words(words_.size());
  for (const auto& [text, at] : words_) words[at] = &text;
  if (all_the_same(at_)) return {{"all", *words[0]}};
  for (const std::string* text : words) values.push_back(*text);
  return {{"words", values}, {"at", at_}};
}

std::string section_text(const TableSection& table) {
  Json json = section_json("table", table.text);
  json["rows"] = table.rows.size();
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    ColumnValues values;
    for (const auto& row : table.rows) values.add_cell(row[c]);
    json["columns"].push_back({{"name", table.columns[c].name},
                               {"unit", table.columns[c].unit},
                               {"values", values.json()}});
  }
  return to_text(json);
}

}  // namespace penstock
