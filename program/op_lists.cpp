// SPDX-License-Identifier: Apache-2.0
#include "program/op_lists.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

void OpLists::make_room() {
  constexpr std::size_t kFirst = 64;
  const std::size_t grown = std::max(kFirst, 2 * ops_.size());
  ops_.resize(ops_.capacity() > ops_.size() ? ops_.capacity() : grown);
}

std::uint32_t OpLists::previous_compute(int device, std::uint32_t g) const {
  while (g > begin(device)) {
    if (is_compute(ops_[--g].kind)) return g;
  }
  return kNoOp;
}

std::uint32_t OpLists::next_compute(int device, std::uint32_t g) const {
  while (++g < end(device)) {
    if (is_compute(ops_[g].kind)) return g;
  }
  return kNoOp;
}

Placement::Placement(std::vector<int> widths, std::vector<std::uint32_t> position,
                     std::uint32_t mirrored)
    : depth_(static_cast<int>(widths.size())),
      mirrored_(mirrored),
      widths_(std::move(widths)),
      position_(std::move(position)) {
  for (const int width : widths_) {
    most_ = std::max(most_, static_cast<std::uint32_t>(width));
    round_ = std::lcm(round_, static_cast<std::uint32_t>(width));
    even_ = even_ && width == widths_.front();
  }
  stages_at_.resize(widths_.size());
  for (std::uint32_t s = 0; s < position_.size(); ++s) {
    stages_at_[position_[s]].push_back(s);
    if (mirrored_ != 0 && mirror_of(position_[s]) != position_[s])
      stages_at_[mirror_of(position_[s])].push_back(s);
  }
  for (std::uint32_t replica = 0; replica < most_; ++replica) {
    for (std::uint32_t p = 0; p < widths_.size(); ++p) {
      const bool exists = replica < static_cast<std::uint32_t>(widths_[p]);
      device_at_.push_back(exists ? devices() : -1);
      if (exists) coordinates_.push_back({replica, p});
    }
  }
}

int Placement::norm_from(int device) const {
  const std::uint32_t position = position_of(device);
  const bool back = mirrored() && position >= mirror(position);
  if (position == (back ? mirror(0) : 0)) return -1;
  const std::uint32_t before = back ? position + 1 : position - 1;
  return device_at(replica_of(device) % static_cast<std::uint32_t>(widths_[before]), before);
}

Placement loop_placement(int depth, int chunks, int width) {
  return loop_placement(std::vector<int>(static_cast<std::size_t>(depth), width), chunks);
}

Placement loop_placement(std::vector<int> widths, int chunks) {
  std::vector<std::uint32_t> position;
  const std::size_t depth = widths.size();
  for (std::size_t s = 0; s < depth * static_cast<std::size_t>(chunks); ++s)
    position.push_back(static_cast<std::uint32_t>(s % depth));
  return {std::move(widths), std::move(position)};
}

Placement snake_placement(std::vector<int> widths, int chunks) {
  std::vector<std::uint32_t> position;
  const auto depth = static_cast<std::uint32_t>(widths.size());
  for (int c = 0; c < chunks; ++c) {
    for (std::uint32_t s = 0; s < depth; ++s) position.push_back(c % 2 == 0 ? s : depth - 1 - s);
  }
  return {std::move(widths), std::move(position)};
}

Placement mirrored_placement(std::vector<int> widths, std::uint32_t per_batch) {
  std::vector<std::uint32_t> position(widths.size());
  std::iota(position.begin(), position.end(), 0U);
  return {std::move(widths), std::move(position), per_batch};
}

}  // namespace penstock
