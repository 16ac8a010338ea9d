// SPDX-License-Identifier: Apache-2.0
// A section that shows the points of a sweep: a heat map of a measure over two axes, the Pareto
// front of two measures, and every point as a row of a table. The reader of the page chooses axes
// and measures.
//
// With more than two axes several points fall into one cell of the heat map; it shows the best of
// them, or those at chosen values of the other axes. Infeasible points are marked, with their
// reason.
#pragma once

#include "report/table_section.hpp"

#include <initializer_list>

namespace penstock {

enum class SweepRole : std::uint8_t {
  axis,
  measure,
  other
};  ///< `other` columns stand in the table alone
enum class Better : std::uint8_t { higher, lower };

struct SweptColumn {
  Column column;
  SweepRole role = SweepRole::other;
  Better better = Better::lower;  ///< which values of a measure are better
};

enum class PointStatus : std::uint8_t { ok, unknown, infeasible, refused, failed };
inline constexpr std::string_view kPointStatusNames[] = {"ok", "unknown", "infeasible", "refused",
                                                         "failed"};

struct SweepPoint {
  std::vector<Cell> cells;  ///< one for each column; monostate where it was not computed
  PointStatus status = PointStatus::ok;
  std::string reason = {};  ///< why the status is not ok
};

/// Keeps points column by column. A point takes about as much memory as its row of the table does
/// as text.
class SweepPoints {
 public:
  SweepPoints(std::initializer_list<SweepPoint> points = {});
  void add_point(const SweepPoint& point);
  std::size_t size() const { return size_; }
  /// Returns a column for each cell of a point, then those of status and reason.
  const std::vector<ColumnValues>& columns() const { return columns_; }

 private:
  std::size_t size_ = 0;
  std::vector<ColumnValues> columns_;
};

struct SweepSection {
  SectionText text;
  std::vector<SweptColumn> columns;
  SweepPoints points;
  /// Names of the columns that the page shows first; empty: the first two axes and measures.
  std::string heat_measure = {}, pareto_x = {}, pareto_y = {};
  bool heat_map = true;  ///< whether there is a heat map where there are two axes
};

/// Returns the section as JSON text for `Report::sections`.
std::string section_text(const SweepSection& sweep);

}  // namespace penstock
