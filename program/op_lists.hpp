// SPDX-License-Identifier: Apache-2.0
// The ops of every device, in the order the device runs them, in one array: device d owns
// [begin(d), end(d)). An *op index* is a position in that array; timelines are parallel to it.
#pragma once

#include "base/large_vector.hpp"
#include "program/vocabulary.hpp"

#include <span>
#include <utility>

namespace penstock {

inline constexpr std::uint32_t kNoOp = 0xFFFFFFFF;

class OpLists {
 public:
  OpLists() : offsets_{0} {}

  /// Reserves room for `ops` ops on `devices` devices.
  void reserve(std::size_t devices, std::size_t ops) {
    offsets_.reserve(devices + 1);
    ops_.reserve(ops);
  }
  /// Appends an op to the device being filled. Not a vector's push_back: where that is a call (as
  /// in large files) the op is stored in pieces and read as a whole, which takes four times as
  /// long.
  [[gnu::always_inline]] void add_op(Op op) {
    if (size_.count == ops_.size()) make_room();
    ops_[size_.count++] = op;
  }
  /// Ends the list of the device being filled; the next op starts the next device's.
  void end_device() { offsets_.push_back(size()); }

  int devices() const { return static_cast<int>(offsets_.size()) - 1; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(size_.count); }
  std::uint32_t begin(int device) const { return offsets_[static_cast<std::size_t>(device)]; }
  std::uint32_t end(int device) const { return offsets_[static_cast<std::size_t>(device) + 1]; }
  const Op& operator[](std::uint32_t index) const { return ops_[index]; }
  Op& operator[](std::uint32_t index) { return ops_[index]; }
  /// Does op `g` run together with the one before it?
  bool second_of_pair(std::uint32_t g) const { return g > 0 && ops_[g - 1].has(Op::paired); }
  /// Ops that start together with `g`, itself included.
  std::uint32_t together(std::uint32_t g) const { return ops_[g].has(Op::paired) ? 2 : 1; }
  /// The device's last compute op before op `g`, or its next one after it; kNoOp when there is
  /// none.
  std::uint32_t previous_compute(int device, std::uint32_t g) const;
  std::uint32_t next_compute(int device, std::uint32_t g) const;
  std::span<const Op> of_device(int device) const {
    return std::span(ops_).subspan(begin(device), end(device) - begin(device));
  }

 private:
  /// Nothing is left behind where it is moved from.
  struct Size {
    std::size_t count = 0;

    Size() = default;
    Size(const Size&) = default;
    Size& operator=(const Size&) = default;
    Size(Size&& other) noexcept : count(std::exchange(other.count, 0)) {}
    Size& operator=(Size&& other) noexcept {
      count = std::exchange(other.count, 0);
      return *this;
    }
  };
  void make_room();

  LargeVector<Op> ops_;  ///< the first of them; behind them is room
  Size size_;
  std::vector<std::uint32_t> offsets_;
};

/// Where virtual stages live: on which of the p positions of a pipeline, and in which replica of
/// that position; microbatches go round-robin over the replicas (PipeDream's 1F1B-RR). Devices are
/// numbered replica by replica: with equal widths, replica r of position s is device r*p + s.
///
/// Mirrored (Chimera, DualPipe): stage s lives on position s for the first half of the microbatches
/// of a batch, and on position p-1-s for the second half; both hold its weights.
class Placement {
 public:
  Placement() = default;
  /// `widths[s]` replicas of position s; `position[stage]` is where a virtual stage lives.
  /// `mirrored`: microbatches of a batch on a replica, of which the second half flows backwards
  /// (equal widths only); 0: all flow one way.
  Placement(std::vector<int> widths, std::vector<std::uint32_t> position,
            std::uint32_t mirrored = 0);

  int depth() const { return depth_; }  ///< p, positions of the pipeline
  int stages() const { return static_cast<int>(position_.size()); }
  int devices() const { return static_cast<int>(coordinates_.size()); }
  const std::vector<int>& widths() const { return widths_; }                 ///< per position
  const std::vector<std::uint32_t>& positions() const { return position_; }  ///< per virtual stage

  /// Replicas of a stage.
  std::uint32_t width_of(std::uint32_t stage) const {
    return even_ ? most_ : static_cast<std::uint32_t>(widths_[position_[stage]]);
  }
  /// The most replicas any position has.
  std::uint32_t width() const { return most_; }
  bool replicated() const { return most_ > 1; }
  bool even() const { return even_; }
  /// Microbatches after which every replica of every position has had its turn equally often: the
  /// least common multiple of the widths.
  std::uint32_t round() const { return round_; }

  bool mirrored() const { return mirrored_ != 0; }
  std::uint32_t mirrored_batch() const { return mirrored_; }
  /// Does a microbatch flow from the last position to the first?
  bool reversed(std::uint32_t microbatch) const {
    return mirrored_ != 0 && microbatch / most_ % mirrored_ >= (mirrored_ + 1) / 2;
  }
  /// Routes of microbatches through the devices, and that of one.
  std::uint32_t routes() const { return mirrored_ == 0 ? round_ : 2 * round_; }
  std::uint32_t route_of(std::uint32_t microbatch) const {
    return microbatch % round_ + (reversed(microbatch) ? round_ : 0);
  }
  /// A stage's device on a route.
  int device_on(std::uint32_t stage, std::uint32_t route) const {
    const bool back = route >= round_;
    const std::uint32_t position = back ? mirror(position_[stage]) : position_[stage];
    return device_at(route % round_ % width_of(stage), position);
  }
  /// The other position that holds the same stages (mirrored); itself otherwise.
  std::uint32_t mirror_of(std::uint32_t position) const {
    return mirrored_ == 0 ? position : mirror(position);
  }
  /// All virtual stages whose weights a position holds, in order.
  const std::vector<std::uint32_t>& stages_at(std::uint32_t position) const {
    return stages_at_[position];
  }

  int device_of(std::uint32_t stage, std::uint32_t microbatch) const {
    std::uint32_t position = position_[stage];
    if (mirrored_ != 0 && reversed(microbatch)) position = mirror(position);
    if (most_ == 1) return static_cast<int>(position);
    const std::uint32_t width = width_of(stage);
    return device_at(microbatch % width, position);
  }
  /// Precondition: the position has such a replica.
  int device_at(std::uint32_t replica, std::uint32_t position) const {
    return device_at_[std::size_t{replica} * static_cast<std::size_t>(depth_) + position];
  }
  /// Whose partial gradient norm a device adds its own to (optimizer post-validation): the replica
  /// of the position before that its messages come from; -1 where the norm begins. Mirrored ones
  /// hold the same gradients: the norm goes from either end to the middle, and meets every stage
  /// once.
  int norm_from(int device) const;
  std::uint32_t position_of(int device) const { return coordinates(device).position; }
  std::uint32_t replica_of(int device) const { return coordinates(device).replica; }

 private:
  struct Coordinates {
    std::uint32_t replica, position;
  };
  const Coordinates& coordinates(int device) const {
    return coordinates_[static_cast<std::size_t>(device)];
  }
  std::uint32_t mirror(std::uint32_t position) const {
    return static_cast<std::uint32_t>(depth_) - 1 - position;
  }

  int depth_ = 0;
  std::uint32_t mirrored_ = 0;
  std::uint32_t most_ = 1, round_ = 1;
  bool even_ = true;
  std::vector<int> widths_;
  std::vector<std::uint32_t> position_;
  std::vector<std::vector<std::uint32_t>> stages_at_;  // per position
  std::vector<Coordinates> coordinates_;               // per device
  std::vector<int> device_at_;  // [replica][position], -1 where there is none
};

/// Consecutive stages on consecutive devices: stage s on position s mod p.
Placement loop_placement(int depth, int chunks, int width);
Placement loop_placement(std::vector<int> widths, int chunks);
/// There and back: chunk c of a device counts from the first position when c is even, from the
/// last when it is odd.
Placement snake_placement(std::vector<int> widths, int chunks);
/// Stage s on position s for the first half of a batch's microbatches, on p-1-s for the second.
Placement mirrored_placement(std::vector<int> widths, std::uint32_t per_batch);

}  // namespace penstock
