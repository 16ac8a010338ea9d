#include "sweep/messages.hpp"

#include "sweep/bytes.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace penstock {
namespace {

struct Head {
  std::uint32_t bytes;
  Says says;
} __attribute__((packed));

constexpr std::size_t kLargest = 64U << 20U;  // who claims more is not ours

bool again() { return errno == EAGAIN || errno == EWOULDBLOCK; }

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

/// Messages leave at once, and a machine that has gone is noticed in about a minute.
void tune_tcp(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 60000);
}

/// An abstract name: no file, gone with the process.
sockaddr_un local_address(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof address.sun_path);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return address;
}

int connected(int socket, const void* address, socklen_t length) {
  if (socket < 0) throw SystemError::from_errno("open", "a socket");
  while (::connect(socket, static_cast<const sockaddr*>(address), length) != 0) {
    if (errno == EINTR) continue;
    ::close(socket);
    return -1;
  }
  return socket;
}

}  // namespace

std::string encode(const Hello& hello) {
  std::string bytes;
  ByteWriter to(bytes);
  to.text(hello.key);
  to.put(hello.rank);
  to.put(hello.number);
  return bytes;
}

Hello decode_hello(std::string_view bytes) {
  ByteReader from(bytes);
  Hello hello;
  hello.key = from.text();
  hello.rank = from.get<std::int32_t>();
  hello.number = from.get<std::int32_t>();
  return hello;
}

std::string encode(const Ended& ended) {
  std::string bytes;
  ByteWriter to(bytes);
  to.put(ended.number);
  to.put(ended.status);
  to.put(ended.in_hand);
  return bytes;
}

Ended decode_ended(std::string_view bytes) {
  ByteReader from(bytes);
  Ended ended;
  ended.number = from.get<std::int32_t>();
  ended.status = from.get<std::int32_t>();
  ended.in_hand = from.get<std::uint64_t>();
  return ended;
}

std::string encode(const Task& task) {
  std::string bytes;
  ByteWriter to(bytes);
  to.put(task.alone);
  to.put(task.point.number);
  to.put(static_cast<std::uint64_t>(task.point.scenario));
  for (const Override& change : task.point.changes) {
    to.text(change.key);
    to.text(change.value);
  }
  return bytes;
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
  std::string bytes;
  ByteWriter(bytes).put(point);
  return bytes;
}

std::uint64_t decode_number(std::string_view bytes) {
  return ByteReader(bytes).get<std::uint64_t>();
}

Stream::~Stream() { ::close(socket_); }

bool Stream::receive() {
  if (read_ > 0) {
    in_.erase(0, read_);
    read_ = 0;
  }
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) in_.append(buffer, static_cast<std::size_t>(got));
    // What is left makes the next poll() return at once.
    return got > 0 || (got < 0 && again());
  }
}

std::optional<Message> Stream::next() {
  Head head;
  if (in_.size() - read_ < sizeof head) return std::nullopt;
  std::memcpy(&head, in_.data() + read_, sizeof head);
  if (head.bytes > kLargest) throw Garbled();
  if (in_.size() - read_ - sizeof head < head.bytes) return std::nullopt;
  const auto bytes = std::string_view(in_).substr(read_ + sizeof head, head.bytes);
  read_ += sizeof head + head.bytes;
  return Message{head.says, bytes};
}

void Stream::add(Says says, std::string_view bytes) {
  const Head head{static_cast<std::uint32_t>(bytes.size()), says};
  out_.append(reinterpret_cast<const char*>(&head), sizeof head).append(bytes);
}

bool Stream::send() {
  while (unsent() > 0) {
    const ssize_t put = ::send(socket_, out_.data() + sent_, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return again();
    sent_ += static_cast<std::size_t>(put);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

bool Stream::send_all() {
  while (send()) {
    if (unsent() == 0) return true;
    pollfd ready{socket_, POLLOUT, 0};
    ::poll(&ready, 1, -1);
  }
  return false;
}

Listener::Listener(bool local, To to)
    : socket_(::socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  if (socket_ < 0) throw SystemError::from_errno("open", "a socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(to == To::everybody ? INADDR_ANY : INADDR_LOOPBACK);
  // Without a name the kernel finds one, as it does a port.
  void* const at = local ? static_cast<void*>(&name) : &address;
  socklen_t length = local ? sizeof(sa_family_t) : sizeof address;
  auto* const any = static_cast<sockaddr*>(at);
  if (::bind(socket_, any, length) != 0 || ::listen(socket_, 4096) != 0) {
    const int error = errno;
    ::close(socket_);
    errno = error;
    throw SystemError::from_errno("listen on", "a socket for workers");
  }
  length = local ? sizeof name : sizeof address;
  ::getsockname(socket_, any, &length);
  if (local)
    name_.assign(name.sun_path, length - offsetof(sockaddr_un, sun_path));
  else
    port_ = ntohs(address.sin_port);
}

Listener::~Listener() { ::close(socket_); }

int Listener::accept() const {
  const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket >= 0 && name_.empty()) tune_tcp(socket);
  return socket;
}

int connect_to(const Door& door) {
  if (!door.local.empty()) {
    socklen_t length = 0;
    const sockaddr_un address = local_address(door.local, length);
    return connected(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), &address, length);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(door.port));
  ::inet_pton(AF_INET, door.host.c_str(), &address.sin_addr);
  const int socket =
      connected(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), &address, sizeof address);
  if (socket >= 0) tune_tcp(socket);
  return socket;
}

}  // namespace penstock
