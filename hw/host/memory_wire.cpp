// SPDX-License-Identifier: Apache-2.0
#include "hw/host/memory_wire.hpp"

#include "base/error.hpp"
#include "hw/host/wire_check.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

namespace penstock {
namespace {

struct Posted {
  enum class State : std::uint8_t { empty, filling, full };

  Block block;
  std::int64_t bytes = 0;
  Op op;
  MessageHeader header = {};
  State state = State::empty;
};

/// A message that came before its receive was posted.
struct Early {
  MessageHeader header;
  std::vector<char> payload;
};

void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// What both ends share. One thread sends, one receives.
struct MemoryChannel {
  MemoryChannel(const WireSettings& given, RunControl& run) : settings(given), control(run) {}

  const WireSettings settings;
  RunControl& control;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Posted> posted;  ///< references stay valid: only its ends change
  std::deque<Early> early;    ///< not empty: every posted block that is not full is empty
  std::deque<double> announced;
  WaitingFor waiting;

  /// The block the next message belongs to, when it can go there directly.
  Posted* next_empty() {
    if (!early.empty()) return nullptr;
    const auto empty = [](const Posted& p) { return p.state == Posted::State::empty; };
    const auto found = std::find_if(posted.begin(), posted.end(), empty);
    return found == posted.end() ? nullptr : &*found;
  }
  bool filling() const {
    return std::any_of(posted.begin(), posted.end(),
                       [](const Posted& p) { return p.state == Posted::State::filling; });
  }
  /// Waits for `ready` or the end of the run, and throws at the latter.
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    changed.wait(lock, [&] { return control.stopped() || ready(); });
    control.throw_if_stopped();
  }
};

class MemorySender : public WireSender {
 public:
  explicit MemorySender(std::shared_ptr<MemoryChannel> channel) : channel_(std::move(channel)) {}

  void send(const MessageHeader& header, const Block& block) override {
    MemoryChannel& c = *channel_;
    std::unique_lock lock(c.mutex);
    c.control.throw_if_stopped();
    if (Posted* const to = c.next_empty()) {
      to->state = Posted::State::filling;
      lock.unlock();
      // A block of another size stays as it is; its receive() reports that.
      if (to->bytes == header.bytes) copy(to->block.data, block.data, header.bytes);
      lock.lock();
      to->header = header;
      to->state = Posted::State::full;
    } else {
      lock.unlock();
      const char* const from = static_cast<const char*>(block.data);
      Early message{header, std::vector<char>(from, from + header.bytes)};
      lock.lock();
      c.early.push_back(std::move(message));
    }
    c.control.progress();
    lock.unlock();
    c.changed.notify_all();
  }

  double wait_posted(const Op& op) override {
    MemoryChannel& c = *channel_;
    const WaitingFor::Scope scope(c.waiting, WaitingFor::kPost, op);
    std::unique_lock lock(c.mutex);
    c.wait(lock, [&] { return !c.announced.empty(); });
    const double posted_s = c.announced.front();
    c.announced.pop_front();
    return posted_s;
  }

 private:
  std::shared_ptr<MemoryChannel> channel_;
};

class MemoryReceiver : public WireReceiver {
 public:
  explicit MemoryReceiver(std::shared_ptr<MemoryChannel> channel) : channel_(std::move(channel)) {}
  ~MemoryReceiver() override {
    std::unique_lock lock(channel_->mutex);
    channel_->changed.wait(lock, [&] { return !channel_->filling(); });
    channel_->posted.clear();
  }
  MemoryReceiver(const MemoryReceiver&) = delete;
  MemoryReceiver& operator=(const MemoryReceiver&) = delete;

  void post(const Block& block, std::int64_t bytes, const Op& op) override {
    const std::lock_guard lock(channel_->mutex);
    channel_->posted.push_back({.block = block, .bytes = bytes, .op = op});
  }

  MessageHeader receive() override {
    MemoryChannel& c = *channel_;
    std::unique_lock lock(c.mutex);
    invariant(!c.posted.empty(), "receive() without a post()");
    Posted& first = c.posted.front();
    const WaitingFor::Scope scope(c.waiting, WaitingFor::kReceive, first.op);
    c.wait(lock, [&] { return first.state == Posted::State::full || !c.early.empty(); });
    if (first.state != Posted::State::full) take_early(first);
    const Posted message = first;
    c.posted.pop_front();
    lock.unlock();
    check_message(c.settings.channel, message.header, message.bytes, message.op, c.control);
    c.control.progress();
    return message.header;
  }

  void announce(double posted_s) override {
    {
      const std::lock_guard lock(channel_->mutex);
      channel_->announced.push_back(posted_s);
    }
    channel_->changed.notify_all();
  }

 private:
  void take_early(Posted& to) {
    const Early& message = channel_->early.front();
    to.header = message.header;
    if (to.bytes == message.header.bytes) copy(to.block.data, message.payload.data(), to.bytes);
    channel_->early.pop_front();
  }

  std::shared_ptr<MemoryChannel> channel_;
};

}  // namespace

MemoryWire memory_wire(const WireSettings& settings, RunControl& control) {
  const auto channel = std::make_shared<MemoryChannel>(settings, control);
  // The run may stop, or stall, after the wire is gone.
  const std::weak_ptr<MemoryChannel> weak = channel;
  control.on_stop([weak] {
    if (const auto c = weak.lock()) {
      const std::lock_guard lock(c->mutex);
      c->changed.notify_all();
    }
  });
  control.on_stall([weak] {
    const auto c = weak.lock();
    return c ? c->waiting.describe(c->settings.channel) : std::string();
  });
  return {std::make_unique<MemorySender>(channel), std::make_unique<MemoryReceiver>(channel)};
}

}  // namespace penstock
