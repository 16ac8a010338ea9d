// SPDX-License-Identifier: Apache-2.0
#include "hw/position_sum.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

PositionSum::PositionSum(const RunPlan& plan, Device& device, std::uint32_t position,
                         int tensor_rank, Parts stages, int expert_part)
    : plan_(plan), device_(device), stages_(std::move(stages)), expert_part_(expert_part) {
  std::vector<StageElements> elements;
  for (const auto& parts : stages_) {
    const StageSizes& sizes = parts[static_cast<std::size_t>(tensor_rank)]->sizes();
    const std::int64_t of_experts = sizes.expert_parameters / plan.division.expert;
    // Ranks with the same experts may have unlike parts of all else.
    const std::int64_t others =
        expert_part == kNone ? sizes.parameters - sizes.expert_parameters : 0;
    elements.push_back({parts[0]->number(), others + of_experts, of_experts});
  }
  const std::vector<int>& devices = stages_[0][0]->devices();
  const int group_rank = rank_at(plan, devices.front(), 0);
  auto reduced = reduced_ranges(parts_at(plan, position), elements);
  if (divides_gradients(plan)) {  // of one stage
    reduced.clear();
    for (const auto& [first, end] : stages_[0][0]->stage().pieces())
      reduced.push_back({{first, end}});
  }
  for (const auto& ranges : reduced) {
    for (const auto& [first, end, experts] : ranges) {
      if (experts != (expert_part != kNone)) continue;
      const auto steps =
          experts ? expert_reduction_steps(
                        plan, expert_group(plan, group_rank)[static_cast<std::size_t>(expert_part)],
                        end - first)
                  : reduction_steps(plan, devices, end - first, tensor_rank);
      for (CollectiveStep step : steps) {
        step.first += first;
        step.end += first;
        steps_.push_back(step);
      }
    }
  }
}

void PositionSum::run() {
  for (const CollectiveStep& step : steps_) {
    if (step.kind == CollectiveStep::Kind::send)
      sent_[{step.gpu, step.peer}].push_back(copy_of(step));
    else
      receive(step);
  }
}

template <class Visit>
void PositionSum::for_each_part(const CollectiveStep& step, Visit visit) const {
  std::int64_t before = 0;
  const bool of_experts = expert_part_ != kNone;
  const int holder = of_experts ? expert_group(plan_, step.gpu).front() : step.gpu;
  const auto [device_number, place] = place_of_rank(plan_, holder);
  for (const auto& parts : stages_) {
    const ReferenceStage* stage = parts[static_cast<std::size_t>(place)];
    const std::int64_t all = stage->sizes().expert_parameters, own = all / plan_.division.expert;
    const std::int64_t n = of_experts ? own : stage->sizes().parameters - all + own;
    // Where a rank's elements are among those of all experts and the others.
    const std::int64_t shift = of_experts ? expert_part_ * own : all - own;
    const std::int64_t first = std::max(step.first, before);
    const std::int64_t end = std::min(step.end, before + n);
    if (first < end)
      visit(stage->gradients_of(device_number).at((first - before + shift) * 4), first - step.first,
            end - first);
    before += n;
  }
}

Block* PositionSum::copy_of(const CollectiveStep& step) {
  Block* block = device_.allocate(kComputeQueue, (step.end - step.first) * 4);
  for_each_part(step, [&](Tensor own, std::int64_t offset, std::int64_t n) {
    device_.math().copy(n * 4, own, {block, offset * 4});
  });
  return block;
}

void PositionSum::receive(const CollectiveStep& step) {
  std::deque<Block*>& wire = sent_.at({step.peer, step.gpu});
  Block* block = wire.front();
  wire.pop_front();
  const bool adds = step.kind != CollectiveStep::Kind::take;
  if (Block* pile = std::exchange(piled_[step.gpu], nullptr)) {
    if (step.end > step.first) device_.math().accumulate(step.end - step.first, {pile}, {block});
    device_.release(kComputeQueue, pile);
  }
  if (step.kind == CollectiveStep::Kind::pile) {
    piled_[step.gpu] = block;
    return;
  }
  for_each_part(step, [&](Tensor own, std::int64_t offset, std::int64_t n) {
    if (adds)
      device_.math().accumulate(n, {block, offset * 4}, own);
    else
      device_.math().copy(n * 4, {block, offset * 4}, own);
  });
  device_.release(kComputeQueue, block);
}

}  // namespace penstock
