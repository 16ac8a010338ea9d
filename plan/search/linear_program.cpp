#include "plan/search/linear_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

constexpr double kTiny = 1e-11;  // of rows whose largest number is 1

}  // namespace

LinearProgram::LinearProgram(std::vector<double> costs)
    : variables_(costs.size()), costs_(std::move(costs)), column_(variables_) {
  std::iota(column_.begin(), column_.end(), std::size_t{0});
}

void LinearProgram::add(const std::vector<double>& row, double at_most) {
  double largest = 0;
  for (const double number : row) largest = std::max(largest, std::abs(number));
  if (largest == 0) largest = 1;
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
  value_ += take(costs_) * values_[row];
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
      if (rows_[row][j] >= -kTiny) continue;
      const double ratio = std::max(costs_[j], 0.0) / -rows_[row][j];
      const bool same = best < variables_ && ratio <= best_ratio;
      if (ratio > best_ratio || (same && ratio == best_ratio && rows_[row][j] >= rows_[row][best]))
        continue;
      best = j;
      best_ratio = ratio;
    }
    if (best == variables_) return std::numeric_limits<double>::infinity();
    pivot(row, best);
  }
  return value_;
}

std::vector<double> LinearProgram::values() const {
  std::vector<double> out(variables_, 0);
  for (std::size_t i = 0; i < basic_.size(); ++i)
    if (basic_[i] < variables_) out[basic_[i]] = values_[i];
  return out;
}

}  // namespace penstock
