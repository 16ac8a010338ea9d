// SPDX-License-Identifier: Apache-2.0
#include "base/csv.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// Names that differ in case, blanks or the like are one to whoever reads a table.
void require_different(const std::vector<std::string>& columns, const std::string& origin,
                       int line) {
  std::vector<std::string> bare;
  for (const std::string& column : columns) {
    bare.push_back(folded(column));
    std::erase_if(bare.back(), [](char c) { return c == '-' || c == ' ' || c == '\t'; });
  }
  std::vector<Diagnostic> twice;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto own = bare.begin() + static_cast<std::ptrdiff_t>(i);
    const auto again = std::find(own + 1, bare.end(), *own);
    if (own->empty() || again == bare.end() || std::find(bare.begin(), own, *own) != own) continue;
    const std::string& other = columns[static_cast<std::size_t>(again - bare.begin())];
    twice.push_back({{origin, line, 0},
                     other == columns[i]
                         ? fmt::format("column '{}' is there more than once", other)
                         : fmt::format("columns '{}' and '{}' are one", columns[i], other),
                     "",
                     1});
  }
  if (!twice.empty()) throw InputError(std::move(twice));
}

}  // namespace

std::size_t CsvTable::place(std::string_view column) const {
  return static_cast<std::size_t>(std::ranges::find(columns, column) - columns.begin());
}

std::vector<std::string> csv_cells(std::string_view line) {
  std::vector<std::string> cells;
  std::string cell;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool quote = line[i] == '"';
    if (quote && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cell += line[i++];
    } else if (quote) {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back(trimmed(cell));
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  cells.emplace_back(trimmed(cell));
  return cells;
}

CsvTable parse_csv(std::string_view text, const std::string& origin) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  CsvTable table;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::vector<std::string> cells = csv_cells(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (table.columns.empty()) {
      require_different(cells, origin, line);
      table.columns = std::move(cells);
    } else if (cells.size() != table.columns.size()) {
      throw InputError(origin, fmt::format("line {} has {} cells, the header {}", line,
                                           cells.size(), table.columns.size()));
    } else {
      table.rows.push_back({line, std::move(cells)});
    }
  }
  if (table.rows.empty()) throw InputError(origin, "holds no row below a header");
  return table;
}

}  // namespace penstock
