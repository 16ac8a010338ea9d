// SPDX-License-Identifier: Apache-2.0
// The points of a sweep: scenarios times axes, and the conditions that choose among them.
//
// A point's number is its place in the product (scenarios vary slowest, the last axis fastest), so
// the point follows from it. Where a condition is false for the axes it names, all points that
// differ only in later axes are skipped, so a huge product of which little remains is walked
// quickly.
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/condition.hpp"

#include <optional>

namespace penstock {

class Space {
 public:
  /// Throws InputError for too many points and for conditions that cannot be evaluated.
  Space(std::vector<std::string> files, std::vector<SweepAxis> axes,
        const std::vector<std::string>& conditions, const std::vector<Override>& changes,
        Documents& documents);

  /// Returns the number of points of the product, including those that conditions leave out.
  std::uint64_t size() const { return size_; }
  /// Returns the number of points that have a row. The first call takes a while for huge products.
  std::uint64_t count() const;

  /// Returns the first number from `number` on that has a row; `size()` when there is none.
  std::uint64_t next(std::uint64_t number) const;

  Point point(std::uint64_t number) const;
  /// Returns the index of the scenario, then that of the value of each axis.
  std::vector<std::size_t> digits(std::uint64_t number) const;

  const std::vector<std::string>& files() const { return files_; }
  const std::vector<SweepAxis>& axes() const { return axes_; }

 private:
  /// Returns the first level with a condition that does not hold; the number of levels when all
  /// hold.
  std::size_t first_false(std::span<const std::size_t> digits) const;

  std::vector<std::string> files_;
  std::vector<SweepAxis> axes_;
  std::vector<std::uint64_t> sizes_, strides_;  ///< those of the scenarios, then of each axis
  std::uint64_t size_ = 0;
  std::vector<std::vector<Condition>> conditions_;  ///< by the last level that they depend on
  std::size_t last_condition_ = 0;                  ///< the last level that has conditions
  mutable std::optional<std::uint64_t> count_;
};

}  // namespace penstock
