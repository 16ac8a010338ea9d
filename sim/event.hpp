// SPDX-License-Identifier: Apache-2.0
// What the engine of events (sim/events.hpp) waits for.
#pragma once

#include "base/error.hpp"
#include "program/transfer.hpp"

#include <cstdint>

namespace penstock {

enum class EventKind : std::uint8_t { op_ends, coasting_ends, segment_ends, transfer_ends };

/// Holds an event that is to come. Events of one time take place in the order of what, kind, g and
/// number, which are the bits of one word.
class PendingEvent {
  static_assert(Transfer::kKinds <= 4, "an event has two bits for the kind of a transfer");

 public:
  /// `g`: the op; of a transfer its tag, that is the op that waits for it or the replica group.
  /// `number`: of the segment within the op, of the transfer, of the coasting.
  PendingEvent(double time_s, EventKind what, Transfer::Kind kind, std::uint32_t g,
               std::uint32_t number)
      : time_s_(time_s),
        order_(std::uint64_t{static_cast<std::uint8_t>(what)} << 62 |
               std::uint64_t{static_cast<std::uint8_t>(kind)} << 60 |
               std::uint64_t{g} << kNumberBits | number) {
    invariant(number >> kNumberBits == 0, "simgrid: more than 2^28 transfers");
  }
  double time_s() const { return time_s_; }
  EventKind what() const { return static_cast<EventKind>(order_ >> 62); }
  Transfer::Kind kind() const { return static_cast<Transfer::Kind>(order_ >> 60 & 3); }
  std::uint32_t g() const { return static_cast<std::uint32_t>(order_ >> kNumberBits); }
  std::uint32_t number() const { return order_ & ((1U << kNumberBits) - 1); }
  bool operator>(const PendingEvent& o) const {
    return time_s_ != o.time_s_ ? time_s_ > o.time_s_ : order_ > o.order_;
  }

 private:
  static constexpr int kNumberBits = 28;
  double time_s_;
  std::uint64_t order_;
};

}  // namespace penstock
