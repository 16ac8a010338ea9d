// SPDX-License-Identifier: Apache-2.0
// The points of a sweep: scenarios times axes, and the conditions that choose among them.
//
// A point's number is its place in the product (scenarios slowest, the last axis fastest), so that
// it is found from its number. A condition that is false for the axes it names skips everything
// that the axes behind them would vary: a huge product of which little remains is walked quickly.
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/condition.hpp"

#include <optional>

namespace penstock {

class Space {
 public:
  /// Throws InputError: too many points, or conditions that cannot be evaluated.
  Space(std::vector<std::string> files, std::vector<SweepAxis> axes,
        const std::vector<std::string>& conditions, const std::vector<Override>& changes,
        Documents& documents);

  /// Of the product, with those that conditions leave out.
  std::uint64_t size() const { return size_; }
  /// Of those that have a row. Takes a while for huge products, the first time.
  std::uint64_t count() const;

  /// The first number from `number` on that has a row; `size()` when there is none.
  std::uint64_t next(std::uint64_t number) const;

  Point point(std::uint64_t number) const;
  /// Which value of each axis, the scenario first.
  std::vector<std::size_t> digits(std::uint64_t number) const;

  const std::vector<std::string>& files() const { return files_; }
  const std::vector<SweepAxis>& axes() const { return axes_; }

 private:
  /// The first level with a condition that does not hold; the number of levels when all do.
  std::size_t first_false(std::span<const std::size_t> digits) const;

  std::vector<std::string> files_;
  std::vector<SweepAxis> axes_;
  std::vector<std::uint64_t> sizes_, strides_;  ///< of the scenarios and each axis
  std::uint64_t size_ = 0;
  std::vector<std::vector<Condition>> conditions_;  ///< by the last level that they look at
  std::size_t last_condition_ = 0;                  ///< levels behind it have none
  mutable std::optional<std::uint64_t> count_;
};

}  // namespace penstock
