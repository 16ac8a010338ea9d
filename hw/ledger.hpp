// SPDX-License-Identifier: Apache-2.0
// Who holds how much memory of a device, and when: every allocation with its owner and the event at
// which it begins or ends. The events' times are known after the run; then the ledger becomes a
// peak. At one instant, what ends is freed before what starts is allocated, as in
// traces/memory.hpp.
#pragma once

#include "hw/device.hpp"
#include "traces/memory.hpp"

namespace penstock {

class Ledger {
 public:
  /// `bytes` more (or fewer) for `owner` from `when` on; a null event: from the start.
  void add_bytes(Owner owner, std::int64_t bytes, const Event& when);
  /// `bytes` pass from one owner to the other.
  void move(Owner from, Owner to, std::int64_t bytes, const Event& when) {
    add_bytes(from, -bytes, when);
    add_bytes(to, bytes, when);
  }
  /// The op that is being issued; a peak names the op whose allocation made it.
  void at_op(std::uint32_t op) { op_ = op; }
  /// What is held most at one time. Only entries whose event has fired count.
  MemoryPeak peak() const;

 private:
  struct Entry {
    Event when;
    Owner owner;
    std::int64_t bytes;
    std::uint32_t op;
  };
  std::vector<Entry> entries_;
  std::uint32_t op_ = kNoOp;
};

}  // namespace penstock
