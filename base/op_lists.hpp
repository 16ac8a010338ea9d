// The ops of every device, in the order the device runs them, in one array: device d owns
// [begin(d), end(d)). An *op index* is a position in that array; timelines are parallel to it.
#pragma once

#include "base/large_vector.hpp"
#include "base/vocabulary.hpp"

#include <span>

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
  /// Appends an op to the device being filled.
  void add(const Op& op) { ops_.push_back(op); }
  /// Ends the list of the device being filled; the next op starts the next device's.
  void end_device() { offsets_.push_back(static_cast<std::uint32_t>(ops_.size())); }

  int devices() const { return static_cast<int>(offsets_.size()) - 1; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(ops_.size()); }
  std::uint32_t begin(int device) const { return offsets_[static_cast<std::size_t>(device)]; }
  std::uint32_t end(int device) const { return offsets_[static_cast<std::size_t>(device) + 1]; }
  const Op& operator[](std::uint32_t index) const { return ops_[index]; }
  Op& operator[](std::uint32_t index) { return ops_[index]; }
  /// The device's last compute op before op `g`, or its next one after it; kNoOp when there is
  /// none.
  std::uint32_t previous_compute(int device, std::uint32_t g) const;
  std::uint32_t next_compute(int device, std::uint32_t g) const;
  std::span<const Op> of(int device) const {
    return std::span(ops_).subspan(begin(device), end(device) - begin(device));
  }

 private:
  LargeVector<Op> ops_;
  std::vector<std::uint32_t> offsets_;
};

/// Where virtual stages live: on which of the p positions of a pipeline, and in which of the w
/// replicas (microbatches go round-robin over them).
struct Placement {
  int depth = 0;                        ///< p, devices of one pipeline
  int width = 1;                        ///< w, replicas
  std::vector<std::uint32_t> position;  ///< per virtual stage: 0 ... p-1

  int stages() const { return static_cast<int>(position.size()); }
  int devices() const { return depth * width; }
  int device_of(std::uint32_t stage, std::uint32_t microbatch) const {
    const int replica =
        width == 1 ? 0 : static_cast<int>(microbatch % static_cast<std::uint32_t>(width));
    return replica * depth + static_cast<int>(position[stage]);
  }
};

/// Consecutive stages on consecutive devices: stage s on device s mod p.
Placement loop_placement(int depth, int chunks, int width);

}  // namespace penstock
