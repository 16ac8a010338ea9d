// SPDX-License-Identifier: Apache-2.0
// A value of each virtual stage, or of each position of a pipeline. Most pipelines have one for all
// stages, which needs no number of stages; values that are all alike are the same as that one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

template <class T>
class PerStage {
 public:
  /// The same for all stages.
  PerStage(T all = {}) : all_(std::move(all)) {}
  template <class From>
    requires(std::is_class_v<T> && std::is_enum_v<From> && std::is_convertible_v<From, T>)
  PerStage(From all) : all_(all) {}
  /// One for each stage. Precondition: there are some.
  explicit PerStage(std::vector<T> each) {
    if (std::ranges::adjacent_find(each, std::not_equal_to()) == each.end())
      all_ = each.front();
    else
      each_ = std::move(each);
  }

  bool alike() const { return each_.empty(); }
  /// Precondition: `stage` is one of those that have a value.
  typename std::vector<T>::const_reference at(std::size_t stage) const {
    if (alike()) return all_;
    return each_[stage];
  }
  /// Of each stage; the only one where they are alike.
  std::vector<T> values() const {
    if (alike()) return std::vector<T>(1, all_);  // braces end clang 16 where it counts lines
    return each_;
  }
  bool contains(const T& value) const {
    const std::vector<T> all = values();
    return std::ranges::find(all, value) != all.end();
  }
  /// Each that there is once, ascending.
  std::vector<T> distinct() const {
    std::vector<T> once = values();
    std::ranges::sort(once);
    once.erase(std::ranges::unique(once).begin(), once.end());
    return once;
  }

  /// What `made_of` makes of each value.
  template <class Make>
  auto map(const Make& made_of) const {
    using Made = decltype(made_of(std::declval<const T&>()));
    if (alike()) return PerStage<Made>(made_of(all_));
    std::vector<Made> made;
    for (const T& value : each_) made.push_back(made_of(value));
    return PerStage<Made>(std::move(made));
  }

  friend bool operator==(const PerStage&, const PerStage&) = default;

 private:
  T all_ = {};
  std::vector<T> each_;  // empty: all_
};

}  // namespace penstock
