// SPDX-License-Identifier: Apache-2.0
#include "sweep/messages.hpp"

#include "sweep/bytes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace penstock {
namespace {

struct Head {
  std::uint32_t bytes;
  MessageKind kind;
} __attribute__((packed));

constexpr std::size_t kLargest = 64U << 20U;  // who claims more is not ours

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK; }

void never_wait(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace

std::string encode(const Task& task) {
  ByteWriter to;
  to.put(task.alone);
  to.put(task.point.number);
  to.put(static_cast<std::uint64_t>(task.point.scenario));
  for (const Override& change : task.point.changes) {
    to.put(change.key);
    to.put(change.value);
  }
  return to.take_bytes();
}

Task decode_task(std::string_view bytes) {
  ByteReader from(bytes);
  Task task;
  task.alone = from.get<bool>();
  task.point.number = from.get<std::uint64_t>();
  task.point.scenario = from.get<std::uint64_t>();
  while (!from.at_end()) {
    std::string key = from.text();
    task.point.changes.push_back({std::move(key), from.text()});
  }
  return task;
}

std::string encode(std::uint64_t point) {
  ByteWriter to;
  to.put(point);
  return to.take_bytes();
}

std::uint64_t decode_number(std::string_view bytes) {
  return ByteReader(bytes).get<std::uint64_t>();
}

MessageStream::MessageStream(int in, int out) : in_(in), out_(out) {
  never_wait(in_);
  never_wait(out_);
}

MessageStream::~MessageStream() {
  ::close(in_);
  ::close(out_);
}

bool MessageStream::receive() {
  if (read_ > 0) {
    received_.erase(0, read_);
    read_ = 0;
  }
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(in_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) received_.append(buffer, static_cast<std::size_t>(got));
    // What is left makes the next poll() return at once.
    return got > 0 || (got < 0 && would_wait());
  }
}

std::optional<Message> MessageStream::next_message() {
  Head head;
  if (received_.size() - read_ < sizeof head) return std::nullopt;
  std::memcpy(&head, received_.data() + read_, sizeof head);
  if (head.bytes > kLargest) throw Garbled();
  if (received_.size() - read_ - sizeof head < head.bytes) return std::nullopt;
  const auto bytes = std::string_view(received_).substr(read_ + sizeof head, head.bytes);
  read_ += sizeof head + head.bytes;
  return Message{head.kind, bytes};
}

void MessageStream::add_message(MessageKind kind, std::string_view bytes) {
  const Head head{static_cast<std::uint32_t>(bytes.size()), kind};
  unsent_.append(reinterpret_cast<const char*>(&head), sizeof head).append(bytes);
}

bool MessageStream::send() {
  while (unsent() > 0) {
    const ssize_t put = ::write(out_, unsent_.data() + sent_, unsent());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return would_wait();
    sent_ += static_cast<std::size_t>(put);
  }
  unsent_.clear();
  sent_ = 0;
  return true;
}

bool MessageStream::send_all() {
  while (send()) {
    if (unsent() == 0) return true;
    pollfd ready{out_, POLLOUT, 0};
    ::poll(&ready, 1, -1);
  }
  return false;
}

}  // namespace penstock
