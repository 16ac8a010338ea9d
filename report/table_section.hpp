// SPDX-License-Identifier: Apache-2.0
// A table: sortable and paged. Also the rows under every other chart.
#pragma once

#include "base/one_of.hpp"
#include "report/section.hpp"

#include <unordered_map>
#include <vector>

namespace penstock {

using Cell = OneOf<std::monostate, double, std::string>;  ///< monostate, NaN: unknown

struct Column {
  std::string name;
  /// "s", "bytes", "bytes/s" and "fraction" are shown with a prefix or as percent; others as
  /// written. Empty: text, or a plain number.
  std::string unit = {};
};

struct TableSection {
  SectionText text;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  ///< a cell per column
};

std::string section_text(const TableSection& table);

/// The values of a column, row after row, in about the memory that their text takes: a number for
/// each, or where any of them is a text, each text once.
class ColumnValues {
 public:
  void add_cell(const Cell& cell);
  /// As the page reads them: {all} where every row has the same, numbers, or {words, at}.
  Json json() const;

 private:
  std::uint32_t word(const std::string& text);
  void become_words();

  std::vector<double> numbers_;  ///< NaN: unknown
  std::vector<std::uint32_t> at_;
  std::unordered_map<std::string, std::uint32_t> words_;
};

}  // namespace penstock
