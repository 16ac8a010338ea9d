// SPDX-License-Identifier: Apache-2.0
// The steps of recomputation that a plan's stages may take, the least first. Where a stage may
// recompute none or all of its layers, single layers are the steps between (the `block` method).
#pragma once

#include "plan/search/candidate.hpp"

#include <optional>
#include <vector>

namespace penstock {

class RecomputeSteps {
 public:
  explicit RecomputeSteps(const Axes& axes);

  /// Returns the steps that treat all layers alike.
  const std::vector<Recomputation>& whole() const { return whole_; }
  bool single_layers() const { return single_layers_; }
  /// Return one step more, or less, for a stage of so many layers; none where there is none.
  std::optional<Recomputation> more(const Recomputation& now, int layers) const;
  std::optional<Recomputation> less(const Recomputation& now, int layers) const;
  /// Takes one step more in stage s, which has `layers[s]` layers. Returns whether there was one.
  bool take_more(std::vector<Recomputation>& stages, const std::vector<int>& layers,
                 std::size_t s) const;
  /// Returns the most steps that a stage of so many layers has.
  double choices(int layers) const {
    return single_layers_ ? layers + 1.0 : static_cast<double>(whole_.size());
  }

 private:
  std::vector<Recomputation> whole_;
  bool single_layers_;
};

}  // namespace penstock
