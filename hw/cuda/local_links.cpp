// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/local_links.hpp"

#include "hw/cuda/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::cuda {
namespace {

using CudaEventPtr = std::shared_ptr<CudaEvent>;

/// What a channel and its two ends have in common; the ends keep it alive.
struct LocalChannel {
  Channel stated;  ///< as the plan has it
  bool coupled;
  CudaDevice& source;
  CudaDevice& destination;
};

struct NamedOp {
  Op op;
  std::int64_t bytes;
};

// --- d2d and paced -------------------------------------------------------------------------------

struct Handover {
  NamedOp message;
  const void* data;
  StampPtr left;  ///< it may leave
  CudaEventPtr departed, delivered;
};

struct DirectChannel : LocalChannel {
  bool paced;
  Mailbox<Handover> handed_over;
  DirectChannel(const LocalChannel& channel, bool is_paced)
      : LocalChannel(channel), paced(is_paced), handed_over(channel.destination.control()) {}
};

class DirectSendingEnd : public SendingEnd {
 public:
  DirectSendingEnd(std::shared_ptr<DirectChannel> channel, Queue queue)
      : channel_(std::move(channel)), queue_(queue) {}
  Queue queue() const override { return queue_; }

  Sent send(const Event& ready, const Block* block, std::int64_t bytes, const Op& op) override {
    CudaDevice& device = channel_->source;
    auto departed = std::make_shared<CudaEvent>(device.control());
    auto delivered = std::make_shared<CudaEvent>(device.control());
    device.push(queue_, [=, this, &device, channel = channel_, stream = device.stream(queue_)] {
      StampPtr left = stamp_of(ready);
      wait_on(stream, *left);
      // Without an event of this stream, ends that share it do not hold each other's messages up.
      if (device.waits(queue_)) left = device.events().record(stream);
      channel->handed_over.put({{op, bytes}, block->data, std::move(left), departed, delivered});
      wait_on(stream, *delivered->stamp());
    });
    return {departed, delivered};
  }

 private:
  std::shared_ptr<DirectChannel> channel_;
  Queue queue_;
};

class DirectReceivingEnd : public ReceivingEnd {
 public:
  DirectReceivingEnd(std::shared_ptr<DirectChannel> channel, Queue queue)
      : channel_(std::move(channel)), queue_(queue) {}
  Queue queue() const override { return queue_; }

  Received receive(const Event& posted, Block* block, std::int64_t bytes, const Op& op) override {
    CudaDevice& device = channel_->destination;
    auto departed = std::make_shared<CudaEvent>(device.control());
    auto arrived = std::make_shared<CudaEvent>(device.control());
    device.push(queue_, [=, channel = channel_, stream = device.stream(queue_)] {
      pull(*channel, stream, posted, block, {op, bytes}, *departed, *arrived);
    });
    return {departed, arrived};
  }

 private:
  static void pull(DirectChannel& channel, cudaStream_t stream, const Event& posted,
                   const Block* block, const NamedOp& expected, CudaEvent& departed,
                   CudaEvent& arrived);
  static void copy(const DirectChannel& channel, cudaStream_t stream, const Handover& sent,
                   void* to);

  std::shared_ptr<DirectChannel> channel_;
  Queue queue_;
};

void DirectReceivingEnd::copy(const DirectChannel& channel, cudaStream_t stream,
                              const Handover& sent, void* to) {
  const auto bytes = static_cast<std::size_t>(sent.message.bytes);
  const int from_gpu = channel.source.gpu();
  const int to_gpu = channel.destination.gpu();
  if (bytes == 0) return;
  if (from_gpu == to_gpu) {
    check(cudaMemcpyAsync(to, sent.data, bytes, cudaMemcpyDeviceToDevice, stream),
          "copy a message");
  } else {
    check(cudaMemcpyPeerAsync(to, to_gpu, sent.data, from_gpu, bytes, stream),
          "copy a message between GPUs");
  }
}

unsigned long long duration_ns(const Channel& stated, std::int64_t bytes) {
  const double transfer_s =
      stated.bytes_per_s > 0 ? static_cast<double>(bytes) / stated.bytes_per_s : 0;
  return static_cast<unsigned long long>((stated.latency_s + transfer_s) * 1e9);
}

void DirectReceivingEnd::pull(DirectChannel& channel, cudaStream_t stream, const Event& posted,
                              const Block* block, const NamedOp& expected, CudaEvent& departed,
                              CudaEvent& arrived) {
  CudaDevice& device = channel.destination;
  if (posted) wait_on(stream, *stamp_of(posted));
  const Handover sent = channel.handed_over.take_message();
  check_message(channel.stated, sent.message.op, sent.message.bytes, expected.op, expected.bytes);
  wait_on(stream, *sent.left);
  unsigned long long* slot = channel.paced ? device.next_slot() : nullptr;
  if (slot != nullptr) launch_stamp(slot, 0, stream);
  const StampPtr start = device.events().record(stream);
  departed.bind(start);
  sent.departed->bind(start);
  copy(channel, stream, sent, block->data);
  if (slot != nullptr) launch_delay(slot, duration_ns(channel.stated, expected.bytes), stream);
  const StampPtr end = device.events().record(stream);
  arrived.bind(end);
  sent.delivered->bind(end);
}

// --- pinned --------------------------------------------------------------------------------------

// Some 5 us of PCIe 5.0: both copies of a message overlap but for one slot's time.
constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
constexpr std::uint64_t kSlots = 8;

struct Announcement {
  NamedOp message;
  CudaEventPtr departed;  ///< the sender's
};

class PinnedChannel : public LocalChannel {
 public:
  explicit PinnedChannel(const LocalChannel& channel)
      : LocalChannel(channel),
        announced(channel.destination.control()),
        posted(channel.source.control()),
        tickets(channel.source.control(), kSlots) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, kSlots * kSlotBytes, cudaHostAllocPortable),
          "allocate pinned memory");
    memory_ = static_cast<char*>(memory);
  }
  ~PinnedChannel() { cudaFreeHost(memory_); }
  PinnedChannel(const PinnedChannel&) = delete;
  PinnedChannel& operator=(const PinnedChannel&) = delete;

  void send(cudaStream_t stream, const void* data, std::int64_t bytes);
  void receive(cudaStream_t stream, void* data, std::int64_t bytes);

  Mailbox<Announcement> announced;
  Mailbox<StampPtr> posted;  ///< coupled only; null: at once

 private:
  /// Calls `move(slot, offset, bytes)` for every piece of a message.
  template <class Move>
  static void pieces(std::int64_t bytes, Move move) {
    const auto all = static_cast<std::size_t>(bytes);
    for (std::size_t at = 0; at < all; at += kSlotBytes) move(at, std::min(kSlotBytes, all - at));
  }

  char* memory_ = nullptr;
  RingTickets tickets;
  StampPtr full_[kSlots], empty_[kSlots];  // of a slot's last filling, draining
  std::uint64_t sent_ = 0, received_ = 0;  // pieces; of one thread each
};

void PinnedChannel::send(cudaStream_t stream, const void* data, std::int64_t bytes) {
  pieces(bytes, [&](std::size_t at, std::size_t size) {
    const std::size_t slot = tickets.slot(sent_);
    tickets.wait_to_fill(sent_);
    if (tickets.reuses(sent_)) wait_on(stream, *empty_[slot]);
    check(cudaMemcpyAsync(memory_ + slot * kSlotBytes, static_cast<const char*>(data) + at, size,
                          cudaMemcpyDeviceToHost, stream),
          "copy a message to host memory");
    full_[slot] = source.events().record(stream);
    tickets.fill();
    ++sent_;
  });
}

void PinnedChannel::receive(cudaStream_t stream, void* data, std::int64_t bytes) {
  pieces(bytes, [&](std::size_t at, std::size_t size) {
    const std::size_t slot = tickets.slot(received_);
    tickets.wait_to_drain(received_);
    wait_on(stream, *full_[slot]);
    check(cudaMemcpyAsync(static_cast<char*>(data) + at, memory_ + slot * kSlotBytes, size,
                          cudaMemcpyHostToDevice, stream),
          "copy a message from host memory");
    empty_[slot] = destination.events().record(stream);
    tickets.drain();
    ++received_;
  });
}

class PinnedSendingEnd : public SendingEnd {
 public:
  PinnedSendingEnd(std::shared_ptr<PinnedChannel> channel, Queue queue)
      : channel_(std::move(channel)), queue_(queue) {}
  Queue queue() const override { return queue_; }

  Sent send(const Event& ready, const Block* block, std::int64_t bytes, const Op& op) override {
    CudaDevice& device = channel_->source;
    auto departed = std::make_shared<CudaEvent>(device.control());
    auto delivered = std::make_shared<CudaEvent>(device.control());
    device.push(queue_, [=, &device, channel = channel_, stream = device.stream(queue_)] {
      wait_on(stream, *stamp_of(ready));
      if (channel->coupled) {
        if (const StampPtr posted = channel->posted.take_message()) wait_on(stream, *posted);
      }
      departed->bind(device.events().record(stream));
      channel->announced.put({{op, bytes}, departed});
      channel->send(stream, block->data, bytes);
      delivered->bind(device.events().record(stream));
    });
    return {departed, delivered};
  }

 private:
  std::shared_ptr<PinnedChannel> channel_;
  Queue queue_;
};

class PinnedReceivingEnd : public ReceivingEnd {
 public:
  PinnedReceivingEnd(std::shared_ptr<PinnedChannel> channel, Queue queue)
      : channel_(std::move(channel)), queue_(queue) {}
  Queue queue() const override { return queue_; }

  Received receive(const Event& posted, Block* block, std::int64_t bytes, const Op& op) override {
    CudaDevice& device = channel_->destination;
    auto departed = std::make_shared<CudaEvent>(device.control());
    auto arrived = std::make_shared<CudaEvent>(device.control());
    device.push(queue_, [=, &device, channel = channel_, stream = device.stream(queue_)] {
      if (posted) wait_on(stream, *stamp_of(posted));
      if (channel->coupled) channel->posted.put(posted ? stamp_of(posted) : nullptr);
      const Announcement sent = channel->announced.take_message();
      check_message(channel->stated, sent.message.op, sent.message.bytes, op, bytes);
      departed->bind(sent.departed->stamp());
      channel->receive(stream, block->data, bytes);
      arrived->bind(device.events().record(stream));
    });
    return {departed, arrived};
  }

 private:
  std::shared_ptr<PinnedChannel> channel_;
  Queue queue_;
};

template <class Sending, class Receiving, class Shared>
LocalEnds make_ends(const std::shared_ptr<Shared>& channel, const EndPlace& source,
                    const EndPlace& destination) {
  const Queue from = source.device.add_queue(source.stream);
  const Queue to = destination.device.add_queue(destination.stream);
  return {std::make_unique<Sending>(channel, from), std::make_unique<Receiving>(channel, to)};
}

}  // namespace

LocalLink parse_local_link(const std::string& name) {
  if (name.empty() || name == "d2d") return LocalLink::d2d;
  if (name == "pinned") return LocalLink::pinned;
  if (name == "paced") return LocalLink::paced;
  throw InputError("--link", fmt::format("must be d2d, pinned or paced, got '{}'", name));
}

LocalEnds connect_local(LocalLink link, const Channel& stated, bool coupled, EndPlace source,
                        EndPlace destination) {
  const LocalChannel channel{stated, coupled, source.device, destination.device};
  if (link == LocalLink::pinned)
    return make_ends<PinnedSendingEnd, PinnedReceivingEnd>(std::make_shared<PinnedChannel>(channel),
                                                           source, destination);
  return make_ends<DirectSendingEnd, DirectReceivingEnd>(
      std::make_shared<DirectChannel>(channel, link == LocalLink::paced), source, destination);
}

void check_message(const Channel& channel, const Op& sent, std::int64_t sent_bytes,
                   const Op& expected, std::int64_t expected_bytes) {
  if (sent == expected && sent_bytes == expected_bytes) return;
  throw SystemError(
      fmt::format("channel device {} -> device {}: the message of {} ({} bytes) came, that of {} "
                  "({} bytes) was "
                  "expected",
                  channel.source, channel.destination, to_string(sent), sent_bytes,
                  to_string(expected), expected_bytes));
}

}  // namespace penstock::cuda
