// SPDX-License-Identifier: Apache-2.0
#include "hw/host/rendezvous.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "hw/host/hmac.hpp"
#include "hw/host/meeting.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

namespace penstock {
namespace {

constexpr std::uint32_t kMagic = 0x314b5450;     // "PTK1"
constexpr std::uint64_t kLargest = 1ULL << 40U;  // a frame that claims more is not ours
constexpr double kLingerS = 1;                   // for answers that are still to be fetched
// Of who has not joined: what it may send, how long it may take, how many there may be.
constexpr std::size_t kMostOfStranger = 4096, kMostStrangers = 64;
constexpr double kStrangerS = 10;
constexpr std::size_t kNonce = 32;  // hexadecimal digits

enum Request : char {
  kHello = 'h',
  kJoin = 'j',
  kSet = 's',
  kGet = 'g',
  kClock = 'c',
  kFail = 'f'
};
enum Status : char { kOk = '+', kNotYet = '?', kNever = '!' };

/// In front of every request (two strings follow) and every reply (one follows, the second empty).
struct Frame {
  std::uint32_t magic = kMagic;
  std::int32_t number = 0;  ///< owner of the key, or rank
  std::uint64_t first_bytes = 0;
  std::uint64_t second_bytes = 0;
  char kind = 0;
  char padding[7] = {};
};

std::string frame(char kind, int number, const std::string& first, const std::string& second) {
  Frame f;
  f.kind = kind;
  f.number = number;
  f.first_bytes = first.size();
  f.second_bytes = second.size();
  std::string bytes(reinterpret_cast<const char*>(&f), sizeof f);
  return bytes.append(first).append(second);
}

bool plausible(const Frame& f, std::uint64_t most = kLargest) {
  return f.magic == kMagic && f.first_bytes <= most && f.second_bytes <= most;
}

std::string nonce() { return random_name() + random_name(); }

std::string proof_of_server(const RunIdentity& run, const std::string& client,
                            const std::string& server) {
  return hmac(run.secret, fmt::format("rank 0\n{}\n{}\n{}", client, server, run.run));
}
std::string proof_of_rank(const RunIdentity& run, int rank, int size, const std::string& client,
                          const std::string& server) {
  return hmac(run.secret,
              fmt::format("rank {} of {}\n{}\n{}\n{}", rank, size, server, client, run.run));
}

int poll_timeout_ms(double seconds) {
  return static_cast<int>(std::clamp(seconds, 0.0, 1e6) * 1000) + (seconds > 0 ? 1 : 0);
}

/// A descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Of this end.
std::string address_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  char text[INET_ADDRSTRLEN] = {};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

std::optional<in_addr> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  const in_addr address = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
  ::freeaddrinfo(found);
  return address;
}

/// Of this machine, or all of them: a machine may know its own name as an address of loopback only.
in_addr address_to_listen_at(const std::string& host) {
  const auto found = host.empty() ? std::nullopt : look_up(host);
  const bool loopback = found && (ntohl(found->s_addr) >> 24U) == IN_LOOPBACKNET;
  return found && (!loopback || on_loopback(host)) ? *found : in_addr{htonl(INADDR_ANY)};
}

void no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

RendezvousStore::Answer RendezvousStore::get(const std::string& key, int owner, double deadline_s) {
  const double end_s = steady_s() + deadline_s;
  std::chrono::microseconds pause(100);
  for (;; pause = std::min(pause * 2, std::chrono::microseconds(10000))) {
    Answer answer = try_get(key, owner);
    if (answer.found != Found::not_yet || steady_s() >= end_s) return answer;
    std::this_thread::sleep_for(pause);
  }
}

// ---- rank 0

struct RendezvousServer::Connection {
  explicit Connection(int fd) : socket(fd) {}
  bool stranger() const { return rank < 0; }
  Socket socket;
  int size = -1;             ///< of its group, once it has introduced itself
  std::string theirs, ours;  ///< drawn at random by both ends
  int rank = -1;             ///< once it has joined
  double since_s = steady_s();
  std::string in;
  std::string out;
  std::size_t written = 0;  ///< of `out`
};

RendezvousServer::RendezvousServer(const RunIdentity& identity, const std::vector<int>& ports,
                                   const std::string& host)
    : identity_(identity) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = address_to_listen_at(host);
  bool bound = false;
  const auto bind_to = [&](int port) {
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  };
  for (std::size_t i = 0; i < ports.size() && !bound; ++i) {
    if (listener_ >= 0) ::close(listener_);
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener_ < 0) throw SystemError::from_errno("open", "a socket");
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bound = bind_to(ports[i]);
    if (!bound && errno == EADDRNOTAVAIL) {  // only others call this machine so
      address.sin_addr.s_addr = htonl(INADDR_ANY);
      bound = bind_to(ports[i]);
    }
    bound = bound && ::listen(listener_, 128) == 0;
  }
  if (!bound) {
    const int error = errno;
    ::close(listener_);
    errno = error;
    throw SystemError::from_errno("listen on", fmt::format("TCP port {}", ports.front()));
  }
  socklen_t length = sizeof address;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  if (::pipe2(wake_, O_CLOEXEC) != 0) throw SystemError::from_errno("open", "a pipe");
  thread_ = std::thread([this] { serve(); });
}

RendezvousServer::~RendezvousServer() {
  {
    const std::lock_guard lock(mutex_);
    here_[0] = false;
  }
  ::close(wake_[1]);
  thread_.join();
  ::close(wake_[0]);
  ::close(listener_);
}

void RendezvousServer::set(const std::string& key, const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  values_[key] = bytes;
}

RendezvousStore::Answer RendezvousServer::try_get(const std::string& key, int owner) {
  const std::lock_guard lock(mutex_);
  if (const auto value = values_.find(key); value != values_.end())
    return {Found::yes, value->second};
  if (!failure_.empty()) return {Found::never, failure_};
  const auto here = here_.find(owner);
  if (here != here_.end() && !here->second)
    return {Found::never, fmt::format("rank {} has ended", owner)};
  return {};
}

double RendezvousServer::clock_s() { return steady_s(); }

void RendezvousServer::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

std::string RendezvousServer::local_address() {
  const std::lock_guard lock(mutex_);
  return address_;
}

void RendezvousServer::serve() {
  double end_s = 0;  // 0: nobody has asked to end
  for (;;) {
    if (end_s > 0 && (connections_.empty() || steady_s() >= end_s)) return;
    // After the hang-up of the pipe it would wake every poll.
    std::vector<pollfd> ready = {{end_s > 0 ? -1 : wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    bool strangers = false;
    for (const auto& c : connections_) {
      ready.push_back({c->socket.fd(), static_cast<short>(c->out.empty() ? POLLIN : POLLOUT), 0});
      strangers = strangers || c->stranger();
    }
    ::poll(ready.data(), ready.size(),
           end_s > 0   ? poll_timeout_ms(end_s - steady_s())
           : strangers ? poll_timeout_ms(1)
                       : -1);
    if (ready[0].revents != 0) end_s = steady_s() + kLingerS;
    for (std::size_t i = connections_.size(); i-- > 0;) {
      if (ready[i + 2].revents == 0) continue;
      Connection& c = *connections_[i];
      if (c.out.empty() ? read_from(c) : write_to(c)) continue;
      forget(c);
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    drop_strangers();
    if (ready[1].revents != 0) accept_one();
  }
}

/// Those that take too long to say who they are; of very many the one that came first.
void RendezvousServer::drop_strangers() {
  const double late_s = steady_s() - kStrangerS;
  std::erase_if(connections_, [&](const auto& c) { return c->stranger() && c->since_s < late_s; });
  const auto strangers =
      std::ranges::count_if(connections_, [](const auto& c) { return c->stranger(); });
  if (strangers < static_cast<std::ptrdiff_t>(kMostStrangers)) return;
  connections_.erase(
      std::ranges::find_if(connections_, [](const auto& c) { return c->stranger(); }));
}

void RendezvousServer::accept_one() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  no_delay(fd);
  connections_.push_back(std::make_unique<Connection>(fd));
}

bool RendezvousServer::read_from(Connection& from) {
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::recv(from.socket.fd(), buffer, sizeof buffer, 0);
    if (got > 0) {
      from.in.append(buffer, static_cast<std::size_t>(got));
      if (from.stranger() && from.in.size() > 2 * kMostOfStranger) return false;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const bool open = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return answer_requests(from) && open;
  }
}

bool RendezvousServer::write_to(Connection& to) {
  while (to.written < to.out.size()) {
    const ssize_t put = ::send(to.socket.fd(), to.out.data() + to.written,
                               to.out.size() - to.written, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    to.written += static_cast<std::size_t>(put);
  }
  to.out.clear();
  to.written = 0;
  return true;
}

bool RendezvousServer::answer_requests(Connection& client) {
  for (;;) {
    Frame f;
    if (client.in.size() < sizeof f) break;
    std::memcpy(&f, client.in.data(), sizeof f);
    if (!plausible(f, client.stranger() ? kMostOfStranger : kLargest)) return false;
    const std::size_t size = sizeof f + f.first_bytes + f.second_bytes;
    if (client.in.size() < size) break;
    client.out += answer(client, f.kind, f.number, client.in.substr(sizeof f, f.first_bytes),
                         client.in.substr(sizeof f + f.first_bytes, f.second_bytes));
    client.in.erase(0, size);
  }
  return write_to(client);
}

std::string RendezvousServer::answer(Connection& client, char kind, int owner,
                                     const std::string& key, const std::string& value) {
  if (kind == kHello) return introduce(client, key, value);
  if (kind == kJoin) return join(client, owner, key);
  if (client.stranger()) return frame(kNever, 0, "introduce yourself first", "");
  if (kind == kClock) return frame(kOk, 0, fmt::format("{:.17g}", steady_s()), "");
  if (kind == kGet) {
    static constexpr char kStatus[] = {kOk, kNotYet, kNever};
    const Answer found = try_get(key, owner);
    return frame(kStatus[static_cast<int>(found.found)], 0, found.bytes, "");
  }
  if (kind == kSet) set(key, value);
  if (kind == kFail) fail(value);
  return frame(kOk, 0, "", "");
}

std::string RendezvousServer::introduce(Connection& client, const std::string& size,
                                        const std::string& value) {
  if (!client.stranger() || value.size() < kNonce || value.substr(kNonce) != identity_.run)
    return frame(kNever, 0, "this is another run", "");
  client.size = std::atoi(size.c_str());
  client.theirs = value.substr(0, kNonce);
  client.ours = nonce();
  return frame(kOk, 0, client.ours + proof_of_server(identity_, client.theirs, client.ours), "");
}

std::string RendezvousServer::join(Connection& client, int rank, const std::string& proof) {
  const std::lock_guard lock(mutex_);
  if (client.ours.empty() || !client.stranger())
    return frame(kNever, 0, "introduce yourself first", "");
  const std::string right = proof_of_rank(identity_, rank, client.size, client.theirs, client.ours);
  client.ours.clear();  // once
  std::string refusal;
  if (!same_proof(proof, right)) return frame(kNever, 0, "this run has another secret", "");
  if (client.size != identity_.size)
    refusal =
        fmt::format("rank {} expects {} processes, rank 0 {}", rank, client.size, identity_.size);
  else if (rank <= 0 || rank >= identity_.size || here_.contains(rank))
    refusal = fmt::format("there is a rank {} already", rank);
  if (!refusal.empty()) return frame(kNever, 1, refusal, "");
  client.rank = rank;
  here_[client.rank] = true;
  // Which way the others come is what tells a machine with several interfaces its address here.
  const std::string address = address_of(client.socket.fd());
  if (address_.empty() || address_.starts_with("127.")) address_ = address;
  return frame(kOk, 0, "", "");
}

void RendezvousServer::forget(Connection& client) {
  const std::lock_guard lock(mutex_);
  if (client.rank >= 0) here_[client.rank] = false;
}

// ---- the other ranks

namespace {

enum class Io : std::uint8_t { done, timed_out, closed };

/// Waits until the descriptor is ready for `events`.
Io wait_ready(int fd, short events, double end_s) {
  for (;;) {
    const double left_s = end_s - steady_s();
    if (left_s <= 0) return Io::timed_out;
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, poll_timeout_ms(left_s));
    if (n > 0) return Io::done;
    if (n < 0 && errno != EINTR) return Io::closed;
  }
}

Io write_all(int fd, const std::string& bytes, double end_s) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t put = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (put > 0)
      at += static_cast<std::size_t>(put);
    else if (errno != EAGAIN && errno != EINTR)
      return Io::closed;
    else if (const Io io = wait_ready(fd, POLLOUT, end_s); io != Io::done)
      return io;
  }
  return Io::done;
}

Io read_all(int fd, char* to, std::size_t bytes, double end_s) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t got = ::recv(fd, to + at, bytes - at, 0);
    if (got > 0)
      at += static_cast<std::size_t>(got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      return Io::closed;
    else if (const Io io = wait_ready(fd, POLLIN, end_s); io != Io::done)
      return io;
  }
  return Io::done;
}

struct Reply {
  Io io = Io::done;
  char status = 0;
  int number = 0;
  std::string bytes;
};

/// `most`: bytes of the answer.
Reply ask(int fd, const std::string& request, double end_s, std::uint64_t most = kLargest) {
  Reply reply;
  Frame f;
  reply.io = write_all(fd, request, end_s);
  if (reply.io == Io::done) reply.io = read_all(fd, reinterpret_cast<char*>(&f), sizeof f, end_s);
  if (reply.io != Io::done) return reply;
  if (!plausible(f, most)) return {Io::closed, 0, 0, {}};
  reply.status = f.kind;
  reply.number = f.number;
  constexpr std::uint64_t kPart = 1ULL << 24U;  // memory for what has come, not for what was said
  while (reply.io == Io::done && reply.bytes.size() < f.first_bytes) {
    const std::size_t at = reply.bytes.size();
    reply.bytes.resize(at + std::min(kPart, f.first_bytes - at));
    reply.io = read_all(fd, reply.bytes.data() + at, reply.bytes.size() - at, end_s);
  }
  return reply;
}

class RendezvousClient : public RendezvousStore {
 public:
  RendezvousClient(Socket socket, std::string host, double deadline_s)
      : socket_(std::move(socket)), host_(std::move(host)), deadline_s_(deadline_s) {}

  void set(const std::string& key, const std::string& bytes) override {
    request(frame(kSet, 0, key, bytes));
  }
  Answer try_get(const std::string& key, int owner) override {
    Reply reply = request(frame(kGet, owner, key, ""));
    const Found found = reply.status == kOk       ? Found::yes
                        : reply.status == kNotYet ? Found::not_yet
                                                  : Found::never;
    return {found, std::move(reply.bytes)};
  }
  double clock_s() override {
    const std::string said = request(frame(kClock, 0, "", "")).bytes;
    double seconds = 0;
    const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), seconds);
    if (error != std::errc() || end != said.data() + said.size() || !std::isfinite(seconds))
      throw SystemError(fmt::format("rank 0 ({}) does not say the time", host_));
    return seconds;
  }
  void fail(const std::string& reason) override { request(frame(kFail, 0, "", reason)); }
  std::string local_address() override { return address_of(socket_.fd()); }

 private:
  Reply request(const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    Reply reply = ask(socket_.fd(), bytes, steady_s() + deadline_s_);
    if (reply.io == Io::closed) throw SystemError(fmt::format("rank 0 ({}) has ended", host_));
    if (reply.io == Io::timed_out)
      throw SystemError(fmt::format("rank 0 ({}) has not answered for {:g} s", host_, deadline_s_));
    return reply;
  }

  std::mutex mutex_;
  Socket socket_;
  std::string host_;
  double deadline_s_;
};

/// A connected socket, or none when nobody listens there.
Socket connect_to(in_addr host, int port, double end_s) {
  Socket s(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (s.fd() < 0) throw SystemError::from_errno("open", "a socket");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr = host;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(s.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    if (errno != EINPROGRESS || wait_ready(s.fd(), POLLOUT, end_s) != Io::done) return Socket();
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Socket();
  }
  no_delay(s.fd());
  return s;
}

}  // namespace

std::unique_ptr<RendezvousStore> connect_rendezvous(const RunIdentity& identity,
                                                    const std::string& host,
                                                    const std::vector<int>& ports, double reach_s,
                                                    double deadline_s) {
  // Somebody who is not ours may accept and keep silent: the next port gets its turn soon.
  constexpr double kPatienceS = 1;
  const std::string mine = nonce();
  const std::string hello = frame(kHello, 0, std::to_string(identity.size), mine + identity.run);
  const double end_s = steady_s() + reach_s;
  std::string seen = "nobody listens there", answer;
  for (std::size_t i = 0; steady_s() < end_s; ++i) {
    const double turn_s = std::min(end_s, steady_s() + kPatienceS);
    if (const auto address = look_up(host)) {
      Socket socket = connect_to(*address, ports[i % ports.size()], turn_s);
      if (socket.fd() >= 0) {
        Reply reply = ask(socket.fd(), hello, turn_s, kMostOfStranger);
        if (reply.io == Io::done && reply.status == kOk) {
          const std::string theirs = reply.bytes.substr(0, kNonce);
          const std::string right = proof_of_server(identity, mine, theirs);
          if (reply.bytes.size() > kNonce && same_proof(reply.bytes.substr(kNonce), right)) {
            const std::string proof =
                proof_of_rank(identity, identity.rank, identity.size, mine, theirs);
            reply = ask(socket.fd(), frame(kJoin, identity.rank, proof, ""),
                        steady_s() + deadline_s, kMostOfStranger);
          } else {
            reply = {Io::done, kNever, 0, "who listens there has another secret"};
          }
        }
        if (reply.io == Io::done && reply.status == kOk)
          return std::make_unique<RendezvousClient>(std::move(socket), host, deadline_s);
        const bool ours = reply.io == Io::done && reply.number == 1;
        if (ours) throw SystemError(fmt::format("rank 0 ({}) refuses: {}", host, reply.bytes));
        // A last try that the end of the time cut short says less than an earlier answer.
        if (reply.io == Io::done) answer = reply.bytes;
        seen = answer.empty() ? "who listens there is not penstock" : answer;
      }
    } else {
      seen = "there is no such host";
    }
    if (i % ports.size() == ports.size() - 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw SystemError(fmt::format("rank 0 did not come: cannot reach it at {}:{} within {:g} s: {}",
                                host, ports.front(), reach_s, seen));
}

}  // namespace penstock
