// A table: sortable and paged. Also the rows under every other chart.
#pragma once

#include "report/section.hpp"

#include <vector>

namespace penstock {

using Cell = std::variant<std::monostate, double, std::string>;  ///< monostate, NaN: unknown

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

/// One column of all rows: numbers, or {words, at} where texts repeat.
SectionJson column_json(const std::vector<std::vector<Cell>>& rows, std::size_t column);

}  // namespace penstock
