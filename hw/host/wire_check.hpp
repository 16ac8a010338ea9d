// SPDX-License-Identifier: Apache-2.0
// What both kinds of wire say about a message: which one they wait for, and that it was right.
#pragma once

#include "base/error.hpp"
#include "hw/host/wire.hpp"
#include "hw/run_control.hpp"

#include <fmt/format.h>

#include <mutex>

namespace penstock {

/// The op a wire waits for, for the report of a stall. Each end of a wire may be waiting.
class WaitingFor {
 public:
  enum What : std::uint8_t { kSend, kPost, kReceive };

  /// Marks the wait for as long as it lives.
  class Scope {
   public:
    Scope(WaitingFor& owner, What what, const Op& op) : owner_(owner), what_(what) {
      owner_.set(what, to_string(op));
    }
    ~Scope() { owner_.set(what_, ""); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WaitingFor& owner_;
    What what_;
  };

  /// "device 1 -> device 2 (forward) waits to receive 2F5", or nothing.
  std::string describe(const std::string& channel) {
    static constexpr const char* kDoing[] = {"to send", "for the receiver to post", "to receive"};
    const std::lock_guard lock(mutex_);
    std::string text;
    for (int what = 0; what < 3; ++what) {
      if (ops_[what].empty()) continue;
      text += text.empty() ? channel + " waits " : " and ";
      text += fmt::format("{} {}", kDoing[what], ops_[what]);
    }
    return text;
  }

 private:
  void set(What what, const std::string& op) {
    const std::lock_guard lock(mutex_);
    ops_[what] = op;
  }

  std::mutex mutex_;
  std::string ops_[3];
};

/// Stops the run when `came` is not the message of `bytes` by `op` that was posted.
inline void check_message(const std::string& channel, const MessageHeader& came, std::int64_t bytes,
                          const Op& op, RunControl& control) {
  if (came.op == op && came.bytes == bytes) return;
  control.fail(fmt::format("{}: expected {} with {} bytes, got {} with {} bytes", channel,
                           to_string(op), bytes, to_string(came.op), came.bytes));
  control.throw_if_stopped();
}

}  // namespace penstock
