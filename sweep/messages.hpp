// SPDX-License-Identifier: Apache-2.0
// What who hands out points and a worker say to each other, over two pipes.
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
  bool alone = false;  ///< in a process of its own, because a worker has ended at it
};

std::string encode(const Task& task);
std::string encode(std::uint64_t point);
Task decode_task(std::string_view bytes);
std::uint64_t decode_number(std::string_view bytes);

struct Message {
  MessageKind kind;
  std::string_view bytes;  ///< until the next call of `receive`
};

/// One end of a pair of pipes, with what has come and not been looked at, and what is to go.
class MessageStream {
 public:
  /// Descriptors that it owns from now on.
  MessageStream(int in, int out);
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  int in() const { return in_; }
  int out() const { return out_; }
  /// Takes what is there, without waiting; false: the other end has closed.
  bool receive();
  /// The next message that is complete. Throws Garbled when this is none of ours.
  std::optional<Message> next_message();

  void add_message(MessageKind kind, std::string_view bytes);
  std::size_t unsent() const { return unsent_.size() - sent_; }
  /// Sends what goes without waiting; false: the other end has closed.
  bool send();
  /// Sends everything; false: the other end has closed.
  bool send_all();

 private:
  int in_, out_;
  std::string received_, unsent_;
  std::size_t read_ = 0;  ///< of `received_`
  std::size_t sent_ = 0;  ///< of `unsent_`
};

}  // namespace penstock
