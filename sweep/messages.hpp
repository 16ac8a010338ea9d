// SPDX-License-Identifier: Apache-2.0
// The messages between the process that hands out points and a worker, over two pipes.
//
//   to a worker    point, give_up (a point that another worker got instead), stop
//   from a worker  row
//
// Between this process and points that are computed elsewhere (elsewhere.hpp): recipe, chunk, stop;
// want, row, lost.
//
// A message is its length, its kind and its bytes.
#pragma once

#include "sweep/points.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

enum class MessageKind : char {
  row = 'r',
  point = 'p',
  give_up = 'g',
  stop = 's',
  recipe = 'i',
  chunk = 'c',
  want = 'w',
  lost = 'l',
};

struct Task {
  Point point;
  /// whether it is evaluated in a process of its own, because a worker has ended at it
  bool alone = false;
};

std::string encode(const Task& task);
std::string encode(std::uint64_t point);
Task decode_task(std::string_view bytes);
std::uint64_t decode_number(std::string_view bytes);

struct Message {
  MessageKind kind;
  std::string_view bytes;  ///< valid until the next call of `receive`
};

/// One end of a pair of pipes, with a buffer for each direction.
class MessageStream {
 public:
  /// Takes over the two descriptors.
  MessageStream(int in, int out);
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  int in() const { return in_; }
  int out() const { return out_; }
  /// Receives what is there without waiting. Returns false when the other end has closed.
  bool receive();
  /// Returns the next complete message, or none yet. Throws Garbled when it is none of ours.
  std::optional<Message> next_message();

  void add_message(MessageKind kind, std::string_view bytes);
  std::size_t unsent() const { return unsent_.size() - sent_; }
  /// Sends what it can without waiting. Returns false when the other end has closed.
  bool send();
  /// Sends everything. Returns false when the other end has closed.
  bool send_all();

 private:
  int in_, out_;
  std::string received_, unsent_;
  std::size_t read_ = 0;  ///< how many bytes of `received_` were read
  std::size_t sent_ = 0;  ///< how many bytes of `unsent_` were sent
};

}  // namespace penstock
