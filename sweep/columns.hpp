// SPDX-License-Identifier: Apache-2.0
// The columns of a sweep's rows: the point's number, the scenario, the axes, what `simulate` says,
// what became of the point. A column of `simulate` that repeats an axis is left out.
#pragma once

#include "sweep/row.hpp"
#include "sweep/space.hpp"

namespace penstock {

/// The texts of a row, one per column; "" where there is nothing.
using Cells = std::vector<std::string>;

struct SweepColumn {
  enum class Type : std::uint8_t {
    integer,
    number,
    value,  ///< of an axis: whatever its key takes
    mixed,  ///< a number, or a list of them as text
    text,
  };
  std::string name;
  Type type;
  int source = 0;  ///< number of the axis key, text or measure that it shows
};

/// Of a column of numbers; null: it is another one.
const Measure* measure_of(const SweepColumn& column);

/// The columns that the table shows when nobody says otherwise, in order.
std::vector<const Measure*> usual_measures();

/// A column as the table calls it, and back; any other name as it is.
std::string short_name(const std::string& column);
std::string full_name(const std::string& header);

/// Which they are follows from the axes alone.
class SweepColumns {
 public:
  explicit SweepColumns(const std::vector<SweepAxis>& axes);

  const std::vector<SweepColumn>& all() const { return columns_; }
  /// By its name or the table's. Throws InputError with a suggestion.
  std::size_t find(const std::string& name, const std::string& flag) const;
  std::size_t at(std::string_view name) const;  ///< of one that is known to be there
  std::size_t axes() const { return axes_; }    ///< columns 2 to 1 + axes() show their values

 protected:
  enum class Part : std::uint8_t { point, scenario, axis, text, measure, status, why };
  Part part(std::size_t column) const { return parts_[column]; }

 private:
  void add_column(Part part, std::string name, SweepColumn::Type type, int source);

  std::vector<SweepColumn> columns_;
  std::vector<Part> parts_;
  std::size_t axes_ = 0;
};

/// And what stands in them.
class Columns : public SweepColumns {
 public:
  Columns(const Space& space, Documents& documents);

  const std::vector<std::string>& scenarios() const { return scenarios_; }

  Cells cells(const Row& row) const;

 private:
  std::string cell(std::size_t column, const Row& row, const Point& point) const;

  const Space& space_;
  std::vector<std::string> scenarios_;  ///< what each is called, whatever becomes of its points
};

inline constexpr std::string_view kStatusNames[] = {"ok", "unknown", "infeasible", "refused",
                                                    "failed"};
inline constexpr std::string_view kFailed = kStatusNames[4];

/// Numbers as short as reads back to the same; NaN is "".
std::string number_cell(double value);

}  // namespace penstock
