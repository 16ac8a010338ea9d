// SPDX-License-Identifier: Apache-2.0
// What the stages of a plan may recompute, one step after the other, the least first: where a stage
// may recompute none or all of its layers, single layers are the steps between (the `block`
// method).
#pragma once

#include "plan/search/candidate.hpp"

#include <optional>
#include <vector>

namespace penstock {

class RecomputeSteps {
 public:
  explicit RecomputeSteps(const Axes& axes);

  const std::vector<Recomputation>& whole() const { return whole_; }  ///< of all layers alike
  bool single_layers() const { return single_layers_; }
  /// One step more, or less, of a stage of so many layers; none: there is none.
  std::optional<Recomputation> more(const Recomputation& now, int layers) const;
  std::optional<Recomputation> less(const Recomputation& now, int layers) const;
  /// One step more in stage s, of `layers[s]` layers; false: there is none.
  bool take_more(std::vector<Recomputation>& stages, const std::vector<int>& layers,
                 std::size_t s) const;
  /// Of a stage of so many layers, at most.
  double choices(int layers) const {
    return single_layers_ ? layers + 1.0 : static_cast<double>(whole_.size());
  }

 private:
  std::vector<Recomputation> whole_;
  bool single_layers_;
};

}  // namespace penstock
