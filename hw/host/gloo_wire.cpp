// SPDX-License-Identifier: Apache-2.0
#include "hw/host/gloo_wire.hpp"

#include "base/error.hpp"
#include "hw/host/wire_check.hpp"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {
namespace {

using Buffer = gloo::transport::UnboundBuffer;

struct Connection;

/// A buffer that nobody aborts any more once it is gone.
struct DeleteBuffer {
  std::shared_ptr<Connection> connection;
  void operator()(Buffer* buffer) const;
};
using BufferPtr = std::unique_ptr<Buffer, DeleteBuffer>;

// gloo matches messages by slot, in order. Payloads use their size: when the two ends disagree
// about it, the receive waits until the deadline, where gloo would end the process.
constexpr std::uint64_t kWatchSlot = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kAnnounceSlot = kWatchSlot - 1;
// gloo breaks the connection when a wait times out: it is never to happen.
constexpr auto kForever = std::chrono::hours(24 * 365);

constexpr int kSource = 0;
constexpr int kDestination = 1;

/// What the two kinds of ends share: a connection, and the waits on it.
struct Connection {
  Connection(GlooGroup& group, int peer_rank, int own_end, const WireSettings& given,
             RunControl& run)
      : settings(given),
        control(run),
        peer(peer_rank),
        end(own_end),
        context(group.connect(given.channel, peer_rank, own_end)) {}

  const WireSettings settings;
  RunControl& control;
  const int peer;
  const int end;
  std::shared_ptr<gloo::Context> context;
  WaitingFor waiting;

  std::mutex mutex;
  std::vector<Buffer*> pending;  ///< to be aborted
  bool aborted = false;
  std::string lost;  ///< why the connection broke; guarded by `mutex`

  int other() const { return 1 - end; }

  /// False when it is too late.
  bool add_buffer(Buffer& buffer_) {
    const std::lock_guard lock(mutex);
    if (!aborted) pending.push_back(&buffer_);
    return !aborted;
  }
  void remove(Buffer& buffer_) {
    const std::lock_guard lock(mutex);
    std::erase(pending, &buffer_);
  }
  /// Ends every wait, now and later. `why`: empty when the run stops.
  void abort(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (lost.empty()) lost = why;
    aborted = true;
    for (Buffer* b : pending) {
      b->abortWaitRecv();
      b->abortWaitSend();
    }
  }
  std::string why_lost() {
    const std::lock_guard lock(mutex);
    return lost;
  }
};

void DeleteBuffer::operator()(Buffer* buffer) const {
  connection->remove(*buffer);
  delete buffer;
}

/// One end: the watch over its peer, and blocking operations that end when it or the run does.
class End {
 public:
  End(GlooGroup& group, int peer, int end, const WireSettings& settings, RunControl& control)
      : c_(std::make_shared<Connection>(group, peer, end, settings, control)),
        watched_(buffer(&never_, sizeof never_)) {
    control.progress();
    // The run may stop, or stall, after the wire is gone.
    const std::weak_ptr<Connection> weak = c_;
    control.on_stop([weak] {
      const auto c = weak.lock();
      if (!c) return;
      c->abort("");
      c->context->closeConnections();  // so that the peer need not wait for its own deadline
    });
    control.on_stall([weak] {
      const auto c = weak.lock();
      return c ? c->waiting.describe(c->settings.channel) : std::string();
    });
    start_watch();  // last: a thread that runs must not meet an error of the lines above
  }
  ~End() {
    watched_->abortWaitRecv();
    if (watch_.joinable()) watch_.join();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  Connection& connection() { return *c_; }
  BufferPtr buffer(void* data, std::int64_t bytes) {
    return {c_->context->createUnboundBuffer(data, static_cast<std::size_t>(bytes)).release(),
            DeleteBuffer{c_}};
  }

  void send(Buffer& b, std::uint64_t slot, const Op& op) {
    start(b, op, [&] { b.send(c_->other(), slot); });
  }
  void post(Buffer& b, std::uint64_t slot, const Op& op) {
    start(b, op, [&] { b.recv(c_->other(), slot); });
  }
  void wait_sent(Buffer& b, const Op& op) {
    finish(op, [&b](auto timeout) { return b.waitSend(timeout); });
  }
  void wait_received(Buffer& b, const Op& op) {
    finish(op, [&b](auto timeout) { return b.waitRecv(timeout); });
  }

 private:
  /// A peer that is gone already is found out by the first operation, which knows its op.
  void start_watch() {
    try {
      watched_->recv(c_->other(), kWatchSlot);
      if (!c_->add_buffer(*watched_)) return;  // the run was stopped meanwhile
      watch_ = std::thread([this] { watch(); });
    } catch (const std::exception& e) {
      c_->abort(gloo_text(e));
    }
  }

  void watch() {
    try {
      if (!watched_->waitRecv(kForever)) return;
    } catch (const std::exception& e) {
      c_->abort(gloo_text(e));
    }
  }

  template <class Start>
  void start(Buffer& b, const Op& op, Start start) {
    c_->control.throw_if_stopped();
    if (!c_->add_buffer(b)) end_run(op);
    try {
      start();
    } catch (const std::exception& e) {
      end_run(op, gloo_text(e));
    }
  }

  template <class Wait>
  void finish(const Op& op, Wait wait) {
    try {
      // What was complete before the peer ended counts; the second wait does not wait.
      const bool done = wait(std::chrono::milliseconds(kForever)) ||
                        (!c_->control.stopped() && wait(std::chrono::milliseconds(0)));
      if (done) return;
    } catch (const std::exception& e) {
      end_run(op, gloo_text(e));
    }
    end_run(op);
  }

  [[noreturn]] void end_run(const Op& op, std::string why = "") {
    // The first error is the cause; gloo's later ones only repeat that the connection is closed.
    if (const std::string lost = c_->why_lost(); !lost.empty()) why = lost;
    c_->control.fail(fmt::format("{}: rank {} is gone, {} was to be {}: {}", c_->settings.channel,
                                 c_->peer, to_string(op), c_->end == kSource ? "sent" : "received",
                                 why));
    c_->control.throw_if_stopped();
    throw InternalBug("the run goes on after it was stopped");
  }

  char never_ = 0;
  std::shared_ptr<Connection> c_;
  BufferPtr watched_;
  std::thread watch_;
};

class GlooSender : public WireSender {
 public:
  GlooSender(GlooGroup& group, int peer, const WireSettings& settings, RunControl& control)
      : end_(group, peer, kSource, settings, control) {
    if (!settings.rendezvous) return;
    times_.resize(static_cast<std::size_t>(settings.receive_ahead) + 1);
    for (double& time : times_) expect_announcement(time);
  }

  void send(const MessageHeader& header, const Block& block) override {
    const WaitingFor::Scope scope(end_.connection().waiting, WaitingFor::kSend, header.op);
    std::memcpy(static_cast<char*>(block.data) + header.bytes, &header, sizeof header);
    const auto message = end_.buffer(block.data, header.bytes + kTrailerBytes);
    end_.send(*message, static_cast<std::uint64_t>(header.bytes), header.op);
    end_.wait_sent(*message, header.op);
    end_.connection().control.progress();
  }

  double wait_posted(const Op& op) override {
    const WaitingFor::Scope scope(end_.connection().waiting, WaitingFor::kPost, op);
    end_.wait_received(*announcements_.front(), op);
    double& time = *static_cast<double*>(announcements_.front()->ptr);
    const double posted_s = time;
    announcements_.pop_front();
    expect_announcement(time);
    return posted_s;
  }

 private:
  void expect_announcement(double& time) {
    announcements_.push_back(end_.buffer(&time, sizeof time));
    end_.post(*announcements_.back(), kAnnounceSlot, {});
  }

  std::vector<double> times_;
  End end_;
  std::deque<BufferPtr> announcements_;  ///< posted receives, oldest first
};

class GlooReceiver : public WireReceiver {
 public:
  GlooReceiver(GlooGroup& group, int peer, const WireSettings& settings, RunControl& control)
      : times_(settings.rendezvous ? static_cast<std::size_t>(settings.receive_ahead) + 1 : 0),
        end_(group, peer, kDestination, settings, control) {}

  void post(const Block& block, std::int64_t bytes, const Op& op) override {
    // What is not overwritten (a shorter message came) is no header.
    std::memset(static_cast<char*>(block.data) + bytes, 0xFF, sizeof(MessageHeader));
    posted_.push_back({end_.buffer(block.data, bytes + kTrailerBytes), bytes, op});
    end_.post(*posted_.back().buffer, static_cast<std::uint64_t>(bytes), op);
  }

  MessageHeader receive() override {
    invariant(!posted_.empty(), "receive() without a post()");
    Posted& first = posted_.front();
    const WaitingFor::Scope scope(end_.connection().waiting, WaitingFor::kReceive, first.op);
    end_.wait_received(*first.buffer, first.op);
    MessageHeader header;
    std::memcpy(&header, static_cast<char*>(first.buffer->ptr) + first.bytes, sizeof header);
    const std::int64_t bytes = first.bytes;
    const Op op = first.op;
    posted_.pop_front();
    RunControl& control = end_.connection().control;
    check_message(end_.connection().settings.channel, header, bytes, op, control);
    control.progress();
    return header;
  }

  void announce(double posted_s) override {
    invariant(!posted_.empty(), "announce() without a post()");
    if (announcing_.size() == times_.size()) {
      // The sender took it before it sent a message that has been received since.
      end_.wait_sent(*announcing_.front(), posted_.back().op);
      announcing_.pop_front();
    }
    double& time = times_[next_++ % times_.size()];
    time = posted_s;
    announcing_.push_back(end_.buffer(&time, sizeof time));
    end_.send(*announcing_.back(), kAnnounceSlot, posted_.back().op);
  }

 private:
  struct Posted {
    BufferPtr buffer;
    std::int64_t bytes;
    Op op;
  };

  std::vector<double> times_;
  std::size_t next_ = 0;
  End end_;
  std::deque<Posted> posted_;
  std::deque<BufferPtr> announcing_;  ///< not known to have left, oldest first
};

}  // namespace

std::unique_ptr<WireSender> gloo_sender(GlooGroup& group, int peer, const WireSettings& settings,
                                        RunControl& control) {
  return std::make_unique<GlooSender>(group, peer, settings, control);
}

std::unique_ptr<WireReceiver> gloo_receiver(GlooGroup& group, int peer,
                                            const WireSettings& settings, RunControl& control) {
  return std::make_unique<GlooReceiver>(group, peer, settings, control);
}

}  // namespace penstock
