// SPDX-License-Identifier: Apache-2.0
// Ops whose collectives have their links for themselves coast: nobody looks into them until a flow
// starts on one of those links. Where such an op is then can be told, because each time that its
// recipe is gone through takes equally long.
#pragma once

#include "program/recipe.hpp"
#include "program/timeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace penstock {

/// When the segments of a recipe run, once, from its start on.
class RecipeSpans {
 public:
  template <class Length>
  void lay_out(const Recipe& recipe, const Length& length_s) {
    spans_.clear();
    length_s_ = 0;
    std::array<double, kLanes> free_s{};
    for (const Segment& segment : recipe.segments) {
      double& free = free_s[static_cast<std::size_t>(segment.lane)];
      double start = free;
      if (segment.after != Segment::kNone) start = std::max(start, span_of(segment.after).end_s);
      free = start + length_s(segment);
      spans_.push_back({start, free});
      length_s_ = std::max(length_s_, free);
    }
  }
  const Span& span_of(int segment) const { return spans_[static_cast<std::size_t>(segment)]; }
  double length_s() const { return length_s_; }

 private:
  std::vector<Span> spans_;
  double length_s_ = 0;
};

/// Which device coasts on each link.
class Coasters {
 public:
  static constexpr int kNobody = -1;

  explicit Coasters(std::size_t links) : on_(links, kNobody) {}
  int on(int link) const { return on_[static_cast<std::size_t>(link)]; }
  void set(const std::vector<int>& links, int device) {
    for (const int l : links) on_[static_cast<std::size_t>(l)] = device;
  }

 private:
  std::vector<int> on_;
};

}  // namespace penstock
