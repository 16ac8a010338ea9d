// SPDX-License-Identifier: Apache-2.0
// The least c z over 0 <= z <= u under rows a z <= b that are added one after the other, c >= 0: a
// dual simplex in dictionaries (Chvatal, "Linear Programming", 1983, chapters 2 and 10). Dense, for
// some hundred variables and rows.
//
// What it says does not depend on the rounding of many pivots: multipliers y >= 0 of the rows,
// which it ends with, prove of themselves (Neumaier and Shcherbina, Math. Programming 99, 2004)
// that
//     c z >= -y b + sum_j min(0, c_j + (y a)_j) u_j,
// and that there is no z where y b < sum_j min(0, (y a)_j) u_j.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

class LinearProgram {
 public:
  /// `most`: u, of each variable.
  LinearProgram(std::vector<double> costs, std::vector<double> most);

  /// `row`: a number for each variable.
  void add_row(const std::vector<double>& row, double at_most);
  /// What the value is at least, but for too many pivots the least there is; infinite: no z keeps
  /// all rows.
  double solve();
  /// The variables where it is least.
  std::vector<double> values() const;
  /// Multiplications of all pivots so far.
  double work() const { return work_; }

 private:
  void pivot(std::size_t row, std::size_t column);
  std::vector<double> combined(const std::vector<double>& multipliers) const;
  bool proven_empty(std::size_t row) const;
  double proven_value() const;

  std::size_t variables_;
  std::vector<double> all_costs_, most_;
  std::vector<std::vector<double>> given_;  // rows, each with its bound behind it
  std::vector<double> costs_;               // of the variables outside of the basis; [column]
  std::vector<std::size_t> column_;         // variables or, behind them, rows; [column]
  std::vector<std::size_t> basic_;          // likewise; [row]
  std::vector<std::vector<double>> rows_;   // what each column takes away from its basic variable
  std::vector<double> values_;              // of basic variables where all others are 0
  double work_ = 0;
};

}  // namespace penstock
