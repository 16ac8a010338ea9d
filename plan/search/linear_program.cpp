// SPDX-License-Identifier: Apache-2.0
#include "plan/search/linear_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

// Of rows whose largest number is 1: what is 0 but for rounding, what is divided by at least, and
// by how much a row must be missed to be out of reach.
constexpr double kTiny = 1e-9, kLeastPivot = 1e-8, kOutOfReach = 1e-6;

}  // namespace

LinearProgram::LinearProgram(std::vector<double> costs, std::vector<double> most)
    : variables_(costs.size()),
      all_costs_(costs),
      most_(std::move(most)),
      costs_(std::move(costs)),
      column_(variables_) {
  std::iota(column_.begin(), column_.end(), std::size_t{0});
}

void LinearProgram::add_row(const std::vector<double>& row, double at_most) {
  double largest = 0;
  for (const double number : row) largest = std::max(largest, std::abs(number));
  if (largest == 0) largest = 1;
  std::vector<double>& given = given_.emplace_back(row);
  given.push_back(at_most);
  for (double& number : given) number /= largest;
  std::vector<double> out(variables_, 0);
  double value = at_most / largest;
  for (std::size_t j = 0; j < variables_; ++j)
    if (column_[j] < variables_) out[j] += row[column_[j]] / largest;
  for (std::size_t i = 0; i < basic_.size(); ++i) {
    if (basic_[i] >= variables_ || row[basic_[i]] == 0) continue;
    const double times = row[basic_[i]] / largest;
    value -= times * values_[i];
    for (std::size_t j = 0; j < variables_; ++j) out[j] -= times * rows_[i][j];
  }
  basic_.push_back(variables_ + basic_.size());
  rows_.push_back(std::move(out));
  values_.push_back(value);
}

void LinearProgram::pivot(std::size_t row, std::size_t column) {
  std::vector<double>& from = rows_[row];
  work_ += static_cast<double>(rows_.size()) * static_cast<double>(variables_);
  const double by = from[column];
  for (double& number : from) number /= by;
  from[column] = 1 / by;
  values_[row] /= by;
  const auto take = [&](std::vector<double>& numbers) {
    const double times = numbers[column];
    if (times == 0) return 0.0;
    for (std::size_t j = 0; j < variables_; ++j) numbers[j] -= times * from[j];
    numbers[column] = -times * from[column];
    return times;
  };
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (i != row) values_[i] -= take(rows_[i]) * values_[row];
  take(costs_);
  std::swap(basic_[row], column_[column]);
}

double LinearProgram::solve() {
  constexpr std::size_t kMostPivots = 4000;
  for (std::size_t n = 0; n < kMostPivots; ++n) {
    const auto least = std::ranges::min_element(values_);
    if (least == values_.end() || *least >= -kTiny) break;
    const auto row = static_cast<std::size_t>(least - values_.begin());
    std::size_t best = variables_;
    double best_ratio = std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < variables_; ++j) {
      if (rows_[row][j] > -kLeastPivot) continue;
      const double ratio = std::max(costs_[j], 0.0) / -rows_[row][j];
      const bool same = best < variables_ && ratio <= best_ratio;
      if (ratio > best_ratio || (same && ratio == best_ratio && rows_[row][j] >= rows_[row][best]))
        continue;
      best = j;
      best_ratio = ratio;
    }
    if (best == variables_) {
      if (*least < -kOutOfReach && proven_empty(row))
        return std::numeric_limits<double>::infinity();
      break;
    }
    pivot(row, best);
  }
  return proven_value();
}

/// The sum of rows, their bounds behind it.
std::vector<double> LinearProgram::combined(const std::vector<double>& multipliers) const {
  std::vector<double> out(variables_ + 1, 0);
  for (std::size_t r = 0; r < given_.size(); ++r)
    for (std::size_t j = 0; multipliers[r] > 0 && j <= variables_; ++j)
      out[j] += multipliers[r] * given_[r][j];
  return out;
}

/// By the row of a basic variable that is less than 0, whatever the others are.
bool LinearProgram::proven_empty(std::size_t row) const {
  std::vector<double> multipliers(given_.size(), 0);
  if (basic_[row] >= variables_) multipliers[basic_[row] - variables_] = 1;
  for (std::size_t j = 0; j < variables_; ++j)
    if (column_[j] >= variables_)
      multipliers[column_[j] - variables_] = std::max(0.0, rows_[row][j]);
  const std::vector<double> sum = combined(multipliers);
  double least = 0;
  for (std::size_t j = 0; j < variables_; ++j) least += std::min(0.0, sum[j]) * most_[j];
  return sum.back() < least;
}

double LinearProgram::proven_value() const {
  std::vector<double> multipliers(given_.size(), 0);
  for (std::size_t j = 0; j < variables_; ++j)
    if (column_[j] >= variables_) multipliers[column_[j] - variables_] = std::max(0.0, costs_[j]);
  const std::vector<double> sum = combined(multipliers);
  double value = -sum.back();
  for (std::size_t j = 0; j < variables_; ++j)
    value += std::min(0.0, all_costs_[j] + sum[j]) * most_[j];
  return std::max(value, 0.0);
}

std::vector<double> LinearProgram::values() const {
  std::vector<double> out(variables_, 0);
  for (std::size_t i = 0; i < basic_.size(); ++i)
    if (basic_[i] < variables_) out[basic_[i]] = values_[i];
  return out;
}

}  // namespace penstock
