// SPDX-License-Identifier: Apache-2.0
// Summarises a sweep for a person: how many points have which status, the best of them, and how the
// best throughput changes along the axes. Its memory does not grow with the number of points.
#pragma once

#include "sweep/columns.hpp"
#include "sweep/pictures.hpp"

#include <array>
#include <limits>
#include <map>
#include <optional>

namespace penstock {

struct TableOptions {
  std::size_t top = 10;
  std::string
      sort;  ///< a column; empty: tokens/s, which is samples/s where sequences are equally long
  bool descending = true;
  std::vector<std::string> columns;  ///< empty: the axes, and the usual measures
};

/// Reads "COLUMN" or "COLUMN:asc|desc" into the options. Unless it is said, columns of which more
/// is better are sorted downwards, others upwards. Throws InputError.
void read_sort(const std::string& text, TableOptions& options);

class Overview {
 public:
  /// Throws InputError when the options name a column that there is not.
  Overview(const Space& space, const Columns& columns, TableOptions options);

  /// Adds a row of this run.
  void add_row(const Cells& row);
  /// Adds a row of an earlier run, of which only the cells are known.
  void add_resumed(const Cells& row);
  /// Adds what a row's cells do not say: whether the point was refused for want of devices, and its
  /// given costs.
  void add_unwritten(const Row& row);

  /// Returns the best point, as "43.4 samples/s (stages=8, width=2)"; "" before a point is
  /// feasible.
  std::string best() const;
  /// Returns a line such as "1,234 points: 1,000 ok, 200 infeasible (most often: ...), 34 refused,
  /// 0 failed".
  std::string counts() const;
  struct BestPoint {
    std::string rate, settings;  ///< "43.4 samples/s", "stages=8, width=2"
    std::uint64_t number;
  };
  /// Returns a note on comparing rows whose batches differ; "" where none differ.
  std::string batches() const;
  /// Returns a note on comparing rows whose given costs per sample differ; "" where none differ.
  std::string work() const;
  /// Returns a note on comparing rows whose models differ in parameters; "" where none differ.
  std::string models() const;
  /// Returns a note on comparing rows that use different numbers of GPUs; "" where none differ.
  std::string gpus() const;
  /// Returns a hint to vary the width with the degrees, where points were refused because they need
  /// more GPUs than there are; else "".
  std::string fixed_width() const;
  /// Returns at most five points that do not fit and would be faster than all that do, the fastest
  /// first.
  std::vector<std::uint64_t> faster_unfit() const;
  /// Notes that such a point fits with this split and has the row `row` then, if that is faster
  /// than all others. Returns whether it is.
  bool would_fit(std::uint64_t point, const std::string& split, const Row& row);
  const std::string& other_split() const { return other_split_; }
  std::optional<BestPoint> best_point() const;
  /// Returns how many points have a status, given as its index in kStatusNames.
  std::uint64_t count(std::size_t status) const { return counts_[status]; }
  std::uint64_t points() const;
  /// Returns a text such as "200 infeasible (most often: ...)" for each status but `ok` that a
  /// point has.
  std::vector<std::string> others() const;
  std::uint64_t failed() const { return counts_[4]; }

  /// Returns "tokens/s" where sequences differ in length, else "samples/s".
  std::string rate_unit() const;

  /// Returns the table of the best rows, a heat map of the two axes with the most values, and a
  /// line for each axis.
  std::string table(const Canvas& canvas) const;

 private:
  struct Best {
    double value;
    std::string text;  ///< where the column is no number
    std::uint64_t point;
    Cells row;
  };
  struct Reason {
    std::uint64_t count = 0;
    std::string example;
  };
  /// Of a column's numbers.
  struct Range {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    void add_number(const std::optional<double>& number) {
      if (!number) return;
      least = std::min(least, *number);
      most = std::max(most, *number);
    }
    bool differ() const { return least < most; }
  };
  /// Returns what rows are compared by: tokens per second, or samples where the model has no
  /// tokens.
  double rate_of(const Cells& row) const;
  /// Returns such a rate as it is shown: in samples/s unless sequences differ in length.
  double shown(double rate) const;
  std::string rate_text(double rate) const;
  bool before(const Best& a, const Best& b) const;
  void add_to_top(const Cells& row);
  void add_to_axes(const Cells& row);
  void add_to_empty(const Cells& row, std::size_t status);
  void add_reason(const Cells& row);
  void add_unfit(const Cells& row);
  /// "stages=8, width=2", where there are several files with which.
  std::string settings(const Cells& row) const;
  std::string header(std::size_t column) const;
  std::string top_table(const Canvas& canvas) const;
  std::string heat_map(const Canvas& canvas) const;
  std::string lines(const Canvas& canvas) const;
  std::string lines(const Canvas& canvas, std::size_t bars, std::size_t label) const;
  std::string axis_name(std::size_t level) const;
  std::vector<std::string> labels(std::size_t level) const;
  std::string count_text(std::size_t status) const;
  std::string most_frequent(std::size_t status) const;

  const Space& space_;
  const Columns& columns_;
  TableOptions options_;
  std::vector<std::size_t> shown_;  ///< columns of the table
  std::size_t sort_, status_, why_, throughput_, tokens_, tokens_per_gpu_, seq_length_, parameters_,
      batch_, gpus_, optimistic_, iteration_;
  Range batches_, gpu_counts_, lengths_, models_;
  Range given_s_;                            // of a sample, where costs are given
  std::uint64_t short_of_devices_ = 0;       ///< how many points were refused for want of devices
  bool resumed_ = false;                     ///< whether that is not known of some points
  std::int64_t devices_ = 0;                 ///< how many devices there are for these points
  std::vector<std::size_t> levels_;          ///< the levels that have several values
  std::array<std::size_t, 2> mapped_{0, 0};  ///< levels of the heat map; equal: there is none
  std::vector<std::vector<double>> along_;   ///< best throughput, by level and value
  std::vector<std::vector<double>> map_;     ///< the same by the values of two levels
  std::vector<std::vector<std::uint8_t>> map_empty_;             ///< of HeatMap
  std::array<std::uint64_t, std::size(kStatusNames)> counts_{};  ///< by status
  std::array<std::map<std::string, Reason>, std::size(kStatusNames)> reasons_;
  std::vector<Best> top_;
  double best_ = 0;
  struct Unfit {
    std::uint64_t point;
    double rate;
    std::string settings;
  };
  std::vector<Unfit> unfit_;  ///< the fastest that do not fit
  std::string other_split_;
  std::string best_settings_;
  std::uint64_t best_number_ = 0;
};

}  // namespace penstock
