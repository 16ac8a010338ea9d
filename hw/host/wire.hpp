// SPDX-License-Identifier: Apache-2.0
// A wire moves the messages of one channel between its two ends, in one process or over TCP.
//
// Each end belongs to one queue thread and blocks it; a wire knows no clock. Times travel in the
// header of a message, because a virtual clock needs them on the other side. Sending is eager: a
// send() ends without a receive() for as long as the receiver posts ahead. For a rendezvous the
// receiver announces when it posted, and the sender waits for that first.
// Every wait ends when the run stops (RunControl), with SystemError; an end that finds its peer
// gone stops the run itself and names channel and op.
#pragma once

#include "hw/device.hpp"
#include "hw/run_plan.hpp"

#include <string>
#include <type_traits>

namespace penstock {

/// Travels with every message.
struct MessageHeader {
  Op op;                   ///< that made the message
  double departed_s = 0;   ///< on the run's clock
  double arrival_s = 0;    ///< on a virtual clock: when it will have arrived
  std::int64_t bytes = 0;  ///< of the payload
};
static_assert(std::is_trivially_copyable_v<MessageHeader>);

/// Every block that is sent or posted has this much room behind its payload; the wire uses it.
inline constexpr std::int64_t kTrailerBytes = 64;
static_assert(sizeof(MessageHeader) <= kTrailerBytes);

/// What a wire is told about its channel.
struct WireSettings {
  std::string channel;      ///< for messages to people: see channel_name()
  int receive_ahead = 2;    ///< receives posted and not yet received, at most
  bool rendezvous = false;  ///< wait_posted() and announce() are used for every message
};

/// "device 1 -> device 2 (forward)"; `who`: what the ends are, where devices are several ranks.
inline std::string channel_name(const Channel& channel, const std::string& who = "device") {
  return who + " " + std::to_string(channel.source) + " -> " + who + " " +
         std::to_string(channel.destination) +
         (channel.kind == Transfer::Kind::reduction ? " (gradients)"
          : channel.kind == Transfer::Kind::norm    ? " (norms)"
          : channel.backward                        ? " (backward)"
                                                    : " (forward)");
}

class WireSender {
 public:
  virtual ~WireSender() = default;
  /// Sends `header.bytes` of `block`; returns when the block may change again. In one process, or
  /// while the receiver has posted, that does not wait for its receive().
  virtual void send(const MessageHeader& header, const Block& block) = 0;
  /// Rendezvous only, once before every send(): waits until the receiver has announced the receive
  /// of the message that `op` makes, and returns the time it gave.
  virtual double wait_posted(const Op& op) = 0;
};

class WireReceiver {
 public:
  virtual ~WireReceiver() = default;
  /// The next message, of `bytes` made by `op`, shall go to `block`. Never waits. The block stays
  /// where it is until receive() has returned it, or else until the wire is destroyed.
  virtual void post(const Block& block, std::int64_t bytes, const Op& op) = 0;
  /// Waits for the oldest posted message. Throws SystemError when another op's or another size
  /// came.
  virtual MessageHeader receive() = 0;
  /// Rendezvous only, once per post() and in the same order: tells the sender. Never waits.
  virtual void announce(double posted_s) = 0;
};

}  // namespace penstock
