// SPDX-License-Identifier: Apache-2.0
// What replicas of a stage have to do when the stages have different numbers of them, where stages
// live, and what memory limits are multiples of.
#include "schedules/generator.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

std::uint32_t ScheduleShape::per_batch(std::uint32_t stage) const {
  if (replicas.alike()) return microbatches_per_update;
  std::uint32_t round = 1;
  for (const int width : replicas.values())
    round = std::lcm(round, static_cast<std::uint32_t>(width));
  return microbatches_per_update * (round / static_cast<std::uint32_t>(replicas.at(stage)));
}

ScheduleShape ScheduleShape::one_step() const {
  ScheduleShape one = *this;
  one.microbatches_per_update /= accumulation_steps;
  one.accumulation_steps = 1;
  return one;
}

std::uint32_t ScheduleShape::warmup(std::uint32_t stage) const {
  if (replicas.alike()) return depth - 1 - stage;
  int behind = 0;
  for (std::uint32_t s = stage; s < depth; ++s) behind += replicas.at(s);
  return static_cast<std::uint32_t>((behind - 1) / replicas.at(stage));
}

double one_f_one_b_peak(const ScheduleShape& shape) {
  double most = 0;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    double kept = 0;
    for (std::uint32_t v = 0; v < shape.chunks; ++v)
      kept += shape.time(d * shape.chunks + v).activation;
    most = std::max(most, (shape.depth - d) * kept);
  }
  return most > 0 ? most : shape.depth * shape.chunks;
}

Placement layout(Layout kind, std::vector<int> widths, std::uint32_t chunks,
                 std::uint32_t per_batch) {
  switch (kind) {
    case Layout::loop: return loop_placement(std::move(widths), static_cast<int>(chunks));
    case Layout::snake: return snake_placement(std::move(widths), static_cast<int>(chunks));
    case Layout::mirrored: return mirrored_placement(std::move(widths), per_batch);
  }
  return {};
}

Placement placement_of(const Schedule& schedule, const ScheduleShape& shape) {
  std::vector<int> widths = shape.replicas.alike()
                                ? std::vector<int>(shape.depth, shape.replicas.at(0))
                                : shape.replicas.values();
  const std::uint32_t per_batch = shape.microbatches_per_update;
  if (schedule.positions.empty())
    return layout(schedule.layout, std::move(widths), shape.chunks, per_batch);
  return {std::move(widths), schedule.positions,
          schedule.layout == Layout::mirrored ? per_batch : 0};
}

}  // namespace penstock
