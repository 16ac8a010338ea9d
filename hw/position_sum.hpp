// SPDX-License-Identifier: Apache-2.0
// Reductions of a sequential run (hw/reference.hpp): of all parameters of a position, or of its
// experts.
#pragma once

#include "hw/rank_exchange.hpp"
#include "hw/reference_stage.hpp"

#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace penstock {

/// Sums the gradients of the devices of a position as the steps of their reduction say, one after
/// the other: all of them then have the same. Where ranks have parts of the experts each, a sum is
/// of one part of them, which the first rank of each group has from all of the group, or of all
/// else.
class PositionSum {
 public:
  /// By stage of the position: the parts of its ranks.
  using Parts = std::vector<std::vector<const ReferenceStage*>>;
  static constexpr int kNone = -1;
  PositionSum(const RunPlan& plan, Device& device, std::uint32_t position, int tensor_rank,
              Parts stages, int expert_part = kNone);

  std::uint32_t stage() const { return stages_[0][0]->number(); }
  void run();

 private:
  Block* copy_of(const CollectiveStep& step);
  void receive(const CollectiveStep& step);
  /// Calls `visit` with what each stage has of the step's elements.
  template <class Visit>
  void for_each_part(const CollectiveStep& step, Visit visit) const;

  const RunPlan& plan_;
  Device& device_;
  Parts stages_;
  int expert_part_;
  std::vector<CollectiveStep> steps_;
  std::map<std::pair<int, int>, std::deque<Block*>> sent_;  // from, to
  std::map<int, Block*> piled_;
};

}  // namespace penstock
