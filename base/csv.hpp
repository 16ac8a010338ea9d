// SPDX-License-Identifier: Apache-2.0
// Tables of comma-separated values with a header line (RFC 4180): a cell in double quotes may hold
// commas, and a quote twice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct CsvTable {
  struct Row {
    int line = 0;                    ///< in the file, from 1
    std::vector<std::string> cells;  ///< as many as there are columns
  };
  std::vector<std::string> columns;
  std::vector<Row> rows;

  /// Where a column stands; `columns.size()` when there is none of this name.
  std::size_t place(std::string_view column) const;
};

/// The names in a header line.
std::vector<std::string> csv_cells(std::string_view line);

/// Empty lines are left out. Throws InputError when there is no row, or one of another length than
/// the header.
CsvTable parse_csv(std::string_view text, const std::string& origin);

}  // namespace penstock
