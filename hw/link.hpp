// SPDX-License-Identifier: Apache-2.0
// The two ends of a channel: a directed FIFO of messages between two devices.
//
// A sending end and a receiving end have a queue each on their own device. Sending is eager, or
// with `coupled` transfers a rendezvous: the message leaves when both ends are there. Messages have
// no tags: the n-th one sent is the n-th one received, and backends that can check it, do.
#pragma once

#include "hw/device.hpp"

namespace penstock {

class SendingEnd {
 public:
  virtual ~SendingEnd() = default;
  virtual Queue queue() const = 0;

  struct Sent {
    Event departed;   ///< the message occupies the link from here on
    Event delivered;  ///< it has arrived, as far as the sender can tell; the block is free again
  };
  /// Sends `bytes` of `block` once `ready` has fired. `op` is the producing op.
  virtual Sent send(const Event& ready, const Block* block, std::int64_t bytes, const Op& op) = 0;
};

class ReceivingEnd {
 public:
  virtual ~ReceivingEnd() = default;
  virtual Queue queue() const = 0;

  struct Received {
    Event departed;  ///< when the sender let it go; time_s() only after `arrived` has fired
    Event arrived;
  };
  /// Receives the next message into `block`, posted once `posted` has fired (null: at once).
  /// `op` is the producing op.
  virtual Received receive(const Event& posted, Block* block, std::int64_t bytes, const Op& op) = 0;
};

}  // namespace penstock
