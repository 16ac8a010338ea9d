// The least c z over z >= 0 under rows a z <= b that are added one after the other, c >= 0: a dual
// simplex in dictionaries (Chvatal, "Linear Programming", 1983, chapters 2 and 10). Dense, for some
// hundred variables and rows.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

class LinearProgram {
 public:
  explicit LinearProgram(std::vector<double> costs);

  /// `row`: a number for each variable.
  void add(const std::vector<double>& row, double at_most);
  /// The least value; infinite: no z keeps all rows. Where it takes too many pivots, less than
  /// that.
  double solve();
  /// The variables where it is least.
  std::vector<double> values() const;
  /// Multiplications of all pivots so far.
  double work() const { return work_; }

 private:
  void pivot(std::size_t row, std::size_t column);

  std::size_t variables_;
  std::vector<double> costs_;              // of the variables outside of the basis; [column]
  std::vector<std::size_t> column_;        // variables or, behind them, rows; [column]
  std::vector<std::size_t> basic_;         // likewise; [row]
  std::vector<std::vector<double>> rows_;  // what each column takes away from its basic variable
  std::vector<double> values_;             // of basic variables where all others are 0
  double value_ = 0, work_ = 0;
};

}  // namespace penstock
