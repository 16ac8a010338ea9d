// What the stages of a plan may recompute, one step after the other, the least first.
#pragma once

#include "plan/search/candidate.hpp"

#include <optional>
#include <vector>

namespace penstock {

class RecomputeSteps {
 public:
  explicit RecomputeSteps(const Axes& axes) : whole_(recomputes_of(axes)) {}

  const std::vector<Recomputation>& whole() const { return whole_; }  ///< of all layers alike
  /// One step more, or less, of a stage; none: there is none.
  std::optional<Recomputation> more(const Recomputation& now) const;
  std::optional<Recomputation> less(const Recomputation& now) const;
  /// One step more in stage s; false: there is none.
  bool take_more(std::vector<Recomputation>& stages, std::size_t s) const;

 private:
  std::vector<Recomputation> whole_;
};

}  // namespace penstock
