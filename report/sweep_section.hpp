// SPDX-License-Identifier: Apache-2.0
// The points of a sweep: a heat map of a measure over two axes, the Pareto front of two measures,
// and every point as a row. Which axes and measures are shown is chosen in the page.
//
// Of several points in one cell of the heat map (more than two axes) the best is shown, or those at
// a chosen value of the other axes. Infeasible points are marked, with their reason.
#pragma once

#include "report/table_section.hpp"

#include <initializer_list>

namespace penstock {

enum class SweepRole : std::uint8_t { axis, measure, other };  ///< other: only in the table
enum class Better : std::uint8_t { higher, lower };

struct SweptColumn {
  Column column;
  SweepRole role = SweepRole::other;
  Better better = Better::lower;  ///< of a measure
};

enum class PointStatus : std::uint8_t { ok, unknown, infeasible, refused, failed };
inline constexpr std::string_view kPointStatusNames[] = {"ok", "unknown", "infeasible", "refused",
                                                         "failed"};

struct SweepPoint {
  std::vector<Cell> cells;  ///< per column; of what was not computed: monostate
  PointStatus status = PointStatus::ok;
  std::string reason = {};  ///< why it is not ok
};

/// Points by column: what is kept of one is about as large as its row of the table as text.
class SweepPoints {
 public:
  SweepPoints(std::initializer_list<SweepPoint> points = {});
  void add_point(const SweepPoint& point);
  std::size_t size() const { return size_; }
  /// Of a point's cells, then of its status and reason.
  const std::vector<ColumnValues>& columns() const { return columns_; }

 private:
  std::size_t size_ = 0;
  std::vector<ColumnValues> columns_;
};

struct SweepSection {
  SectionText text;
  std::vector<SweptColumn> columns;
  SweepPoints points;
  /// What the page shows first: names of columns; empty: the first two axes and measures.
  std::string heat_measure = {}, pareto_x = {}, pareto_y = {};
  bool heat_map = true;  ///< where there are two axes
};

std::string section_text(const SweepSection& sweep);

}  // namespace penstock
