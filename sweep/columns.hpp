// SPDX-License-Identifier: Apache-2.0
// The columns of a sweep's rows: the point's number, the scenario, the axes, the numbers of
// `simulate`, the point's status. A number of `simulate` that repeats an axis is left out.
#pragma once

#include "sweep/row.hpp"
#include "sweep/space.hpp"

namespace penstock {

/// The texts of a row, one for each column; "" where there is no value.
using Cells = std::vector<std::string>;

struct SweepColumn {
  enum class Type : std::uint8_t {
    integer,
    number,
    value,  ///< the value of an axis, of any type that its key takes
    mixed,  ///< a number, or a list of numbers as text
    text,
  };
  std::string name;
  Type type;
  int source = 0;  ///< the index of the axis key, text or measure that it shows
};

/// Returns the measure that a column shows, or null where it shows none.
const Measure* measure_of(const SweepColumn& column);

/// Returns the measures that the table shows unless others are asked for, in order.
std::vector<const Measure*> usual_measures();

/// Translate between a column's name and its name in the table; any other name is returned as it
/// is.
std::string short_name(const std::string& column);
std::string full_name(const std::string& header);

/// The columns of a sweep, which follow from its axes alone.
class SweepColumns {
 public:
  explicit SweepColumns(const std::vector<SweepAxis>& axes);

  const std::vector<SweepColumn>& all() const { return columns_; }
  /// Returns the index of a column by its name or its name in the table. Throws InputError that
  /// names `flag`, with a suggestion, where there is none.
  std::size_t find(const std::string& name, const std::string& flag) const;
  /// Returns the index of a column. Requires that it is there.
  std::size_t at(std::string_view name) const;
  /// Returns the number n of axis keys, whose values stand in columns 2 to 1 + n.
  std::size_t axes() const { return axes_; }

 protected:
  enum class Part : std::uint8_t { point, scenario, axis, text, measure, status, why };
  Part part(std::size_t column) const { return parts_[column]; }

 private:
  void add_column(Part part, std::string name, SweepColumn::Type type, int source);

  std::vector<SweepColumn> columns_;
  std::vector<Part> parts_;
  std::size_t axes_ = 0;
};

/// The columns of a sweep and the cells of its rows.
class Columns : public SweepColumns {
 public:
  Columns(const Space& space, Documents& documents);

  const std::vector<std::string>& scenarios() const { return scenarios_; }

  Cells cells(const Row& row) const;

 private:
  std::string cell(std::size_t column, const Row& row, const Point& point) const;

  const Space& space_;
  std::vector<std::string> scenarios_;  ///< the name of each scenario
};

inline constexpr std::string_view kStatusNames[] = {"ok", "unknown", "infeasible", "refused",
                                                    "failed"};
inline constexpr std::string_view kFailed = kStatusNames[4];

/// Returns the shortest text that reads back as the same number; "" for NaN.
std::string number_cell(double value);

}  // namespace penstock
