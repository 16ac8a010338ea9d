// SPDX-License-Identifier: Apache-2.0
// The dual simplex against what can be said by hand, and against all vertices.
#include "plan/search/linear_program.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

namespace penstock {
namespace {

struct Row {
  std::vector<double> of;
  double at_most;
};

TEST(LinearProgram, HasTheLeastValueOfAllThatKeepsItsRows) {
  LinearProgram program({2, 3}, {100, 100});
  program.add_row({-1, -1}, -4);  // x + y >= 4
  EXPECT_DOUBLE_EQ(program.solve(), 8);
  program.add_row({1, -1}, 1);  // x <= y + 1
  EXPECT_DOUBLE_EQ(program.solve(), 2 * 2.5 + 3 * 1.5);
  EXPECT_DOUBLE_EQ(program.values()[0], 2.5);
  EXPECT_DOUBLE_EQ(program.values()[1], 1.5);
  program.add_row({0, 1}, 1);  // y <= 1
  EXPECT_TRUE(std::isinf(program.solve()));
}

/// Of two variables: where two rows meet, the axes among them.
double least_of_vertices(const std::vector<double>& costs, std::vector<Row> rows) {
  rows.push_back({{-1, 0}, 0});
  rows.push_back({{0, -1}, 0});
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Row &a = rows[i], &b = rows[j];
      const double det = a.of[0] * b.of[1] - a.of[1] * b.of[0];
      if (std::abs(det) < 1e-9) continue;
      const double x = (a.at_most * b.of[1] - a.of[1] * b.at_most) / det;
      const double y = (a.of[0] * b.at_most - a.at_most * b.of[0]) / det;
      bool keeps = true;
      for (const Row& row : rows) keeps &= row.of[0] * x + row.of[1] * y <= row.at_most + 1e-7;
      if (keeps) least = std::min(least, costs[0] * x + costs[1] * y);
    }
  return least;
}

TEST(LinearProgram, IsThatOfTheBestVertexWhateverOrderRowsComeIn) {
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int> number(-5, 5);
  int infeasible = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<double> costs{std::abs(number(random)) + 0.5, std::abs(number(random)) + 0.5};
    LinearProgram program(costs, {1e4, 1e4});
    std::vector<Row> rows;
    for (int r = 0; r < 6; ++r) {
      rows.push_back({{1.0 * number(random), 1.0 * number(random)}, 1.0 * number(random)});
      program.add_row(rows.back().of, rows.back().at_most);
      if (r % 2 == 0) program.solve();
    }
    const double least = least_of_vertices(costs, rows), value = program.solve();
    infeasible += std::isinf(least) ? 1 : 0;
    if (std::isinf(least)) {
      EXPECT_TRUE(std::isinf(value)) << i;
    } else {
      EXPECT_NEAR(value, least, 1e-6) << i;
    }
  }
  EXPECT_GT(infeasible, 100);
  EXPECT_LT(infeasible, 1900);
}

}  // namespace
}  // namespace penstock
