// SPDX-License-Identifier: Apache-2.0
#include "hw/host/links.hpp"

#include <algorithm>

namespace penstock {

HostSendingEnd::HostSendingEnd(HostDevice& device, std::unique_ptr<WireSender> wire,
                               const LinkSettings& link)
    : device_(device), wire_(std::move(wire)), link_(link), queue_(device.add_queue()) {}

SendingEnd::Sent HostSendingEnd::send(const Event& ready, const Block* block, std::int64_t bytes,
                                      const Op& op) {
  auto departed = std::make_shared<HostEvent>(device_.control());
  auto delivered = std::make_shared<HostEvent>(device_.control());
  device_.queue(queue_).push(
      [=, this] { send_now(ready->time_s(), *block, bytes, op, *departed, *delivered); });
  return {departed, delivered};
}

void HostSendingEnd::send_now(double ready_s, const Block& block, std::int64_t bytes, const Op& op,
                              HostEvent& departed, HostEvent& delivered) {
  const MessageHeader header = timed(ready_s, bytes, op);
  departed.fire(header.departed_s);
  wire_->send(header, block);
  delivered.fire(device_.clock().logical() ? header.arrival_s : device_.clock().wall_s());
}

MessageHeader HostSendingEnd::timed(double ready_s, std::int64_t bytes, const Op& op) {
  const bool logical = device_.clock().logical();
  double depart = logical ? ready_s : device_.clock().wall_s();
  if (link_.transfers() == Transfers::coupled) {
    const double posted = wire_->wait_posted(op);
    depart = std::max(logical ? depart : device_.clock().wall_s(), posted);
  } else if (link_.transfers() != Transfers::free) {
    depart = std::max(depart, free_at_s_);
  }
  MessageHeader header{op, depart, depart, bytes};
  if ((!logical && !link_.paced) || link_.transfers() == Transfers::free) return header;
  const bool norm = link_.kind == Transfer::Kind::norm;
  const double occupied =
      norm ? 0 : static_cast<double>(message_bytes(link_.plan->costs, op)) / link_.bytes_per_s;
  free_at_s_ = depart + occupied;
  header.arrival_s = depart + occupied + link_.latency_s;
  return header;
}

HostReceivingEnd::HostReceivingEnd(HostDevice& device, std::unique_ptr<WireReceiver> wire,
                                   const LinkSettings& link)
    : device_(device),
      wire_(std::move(wire)),
      link_(link),
      queue_(device.add_queue([this] { return complete_oldest(); })) {}

ReceivingEnd::Received HostReceivingEnd::receive(const Event& posted, Block* block,
                                                 std::int64_t bytes, const Op& op) {
  Pending message{std::make_shared<HostEvent>(device_.control()),
                  std::make_shared<HostEvent>(device_.control())};
  device_.queue(queue_).push([=, this] {
    if (link_.transfers() == Transfers::coupled) {
      // The device posts the next receive only when it has used the last message.
      while (complete_oldest()) continue;
      const double at = posted ? posted->time_s() : 0;
      wire_->post(*block, bytes, op);
      wire_->announce(at);
    } else {
      while (pending_.size() >= static_cast<std::size_t>(link_.receive_ahead)) complete_oldest();
      wire_->post(*block, bytes, op);
    }
    pending_.push_back(message);
  });
  return {message.departed, message.arrived};
}

bool HostReceivingEnd::complete_oldest() {
  if (pending_.empty()) return false;
  const MessageHeader header = wire_->receive();
  const Pending message = pending_.front();
  pending_.pop_front();
  const HostClock& clock = device_.clock();
  if (link_.paced) clock.sleep_until(header.arrival_s, device_.control());
  message.departed->fire(header.departed_s);
  message.arrived->fire(clock.logical() ? header.arrival_s : clock.wall_s());
  return true;
}

}  // namespace penstock
