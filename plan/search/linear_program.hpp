// SPDX-License-Identifier: Apache-2.0
// Minimises c z over 0 <= z <= u under rows a z <= b that are added one after the other, with c >=
// 0, by a dual simplex method in dictionaries (Chvatal, "Linear Programming", 1983, chapters 2 and
// 10). It is dense, for some hundred variables and rows.
//
// Its answer does not depend on the rounding of many pivots: it ends with multipliers y >= 0 of the
// rows, which by themselves prove (Neumaier and Shcherbina, Math. Programming 99, 2004) that
//     c z >= -y b + sum_j min(0, c_j + (y a)_j) u_j,
// and that there is no z where y b < sum_j min(0, (y a)_j) u_j.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

class LinearProgram {
 public:
  /// Makes a program with c = `costs` and u = `most`.
  LinearProgram(std::vector<double> costs, std::vector<double> most);

  /// Adds a row, which has a number for each variable.
  void add_row(const std::vector<double>& row, double at_most);
  /// Returns a lower bound on the least value: infinity where no z keeps all rows, and the value
  /// itself unless it takes too many pivots.
  double solve();
  /// Returns the variables at the least value.
  std::vector<double> values() const;
  /// Returns the number of multiplications of all pivots so far.
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
