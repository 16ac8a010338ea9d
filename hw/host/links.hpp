// SPDX-License-Identifier: Apache-2.0
// The two ends of a channel on the host: a queue thread each, a wire between them, and what the
// transfer semantics mean on a virtual clock. The arithmetic is that of sim/exact.cpp, in the same
// order, so that logical times are equal to the last bit.
#pragma once

#include "hw/host/device.hpp"
#include "hw/host/wire.hpp"

namespace penstock {

/// What an end needs to know about its channel.
struct LinkSettings {
  const RunPlan* plan = nullptr;  ///< its transfer semantics and stated message sizes
  double latency_s = 0;
  double bytes_per_s = 0;
  bool paced = false;  ///< wall clock: the wire is memory, and shall take as long as the plan says
  int receive_ahead = 2;
  Transfer::Kind kind = Transfer::Kind::message;

  /// Gradients cost nothing by themselves, and a norm holds nobody, whatever the plan's transfers.
  Transfers transfers() const {
    const Transfers stated = plan->program.transfers;
    if (kind == Transfer::Kind::message) return stated;
    return kind == Transfer::Kind::reduction || stated == Transfers::free ? Transfers::free
                                                                          : Transfers::overlapped;
  }
};

class HostSendingEnd : public SendingEnd {
 public:
  HostSendingEnd(HostDevice& device, std::unique_ptr<WireSender> wire, const LinkSettings& link);
  Queue queue() const override { return queue_; }
  Sent send(const Event& ready, const Block* block, std::int64_t bytes, const Op& op) override;

 private:
  void send_now(double ready_s, const Block& block, std::int64_t bytes, const Op& op,
                HostEvent& departed, HostEvent& delivered);
  MessageHeader timed(double ready_s, std::int64_t bytes, const Op& op);

  HostDevice& device_;
  std::unique_ptr<WireSender> wire_;
  LinkSettings link_;
  Queue queue_;
  double free_at_s_ = 0;  // when the lane takes the next message
};

class HostReceivingEnd : public ReceivingEnd {
 public:
  HostReceivingEnd(HostDevice& device, std::unique_ptr<WireReceiver> wire,
                   const LinkSettings& link);
  Queue queue() const override { return queue_; }
  Received receive(const Event& posted, Block* block, std::int64_t bytes, const Op& op) override;

 private:
  struct Pending {
    std::shared_ptr<HostEvent> departed, arrived;
  };
  bool complete_oldest();

  HostDevice& device_;
  std::unique_ptr<WireReceiver> wire_;
  LinkSettings link_;
  std::deque<Pending> pending_;  // posted, not yet there; only the queue's thread looks
  Queue queue_;
};

}  // namespace penstock
