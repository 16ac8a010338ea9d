// SPDX-License-Identifier: Apache-2.0
// A section that is a table, which the page sorts and divides into pages. Every chart has such a
// table, too.
#pragma once

#include "base/one_of.hpp"
#include "report/section.hpp"

#include <unordered_map>
#include <vector>

namespace penstock {

using Cell = OneOf<std::monostate, double, std::string>;  ///< monostate and NaN mean "unknown"

struct Column {
  std::string name;
  /// The unit of its numbers. The page shows "s", "bytes" and "bytes/s" with a prefix, "fraction"
  /// as percent, and other units as written. It is empty for text and for plain numbers.
  std::string unit = {};
};

struct TableSection {
  SectionText text;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  ///< in each a cell for each column
};

/// Returns the section as JSON text for `Report::sections`.
std::string section_text(const TableSection& table);

/// Keeps the values of a column, row after row, in about the memory that their text takes: as
/// numbers, or, where any value is a text, as indices into the different texts.
class ColumnValues {
 public:
  void add_cell(const Cell& cell);
  /// Returns them as the page reads them: {all} where every row has the same value, else a list of
  /// numbers or {words, at}.
  Json json() const;

 private:
  std::uint32_t word(const std::string& text);
  void become_words();

  std::vector<double> numbers_;  ///< NaN: unknown
  std::vector<std::uint32_t> at_;
  std::unordered_map<std::string, std::uint32_t> words_;
};

}  // namespace penstock
