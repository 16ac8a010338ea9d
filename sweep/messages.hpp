// What rank 0 and its workers say to each other, over one stream socket per worker, whether it is
// on this machine (a local socket) or on another (TCP).
//
//   worker -> rank 0      hello (key of the sweep, rank, number), row
//   supervisor -> rank 0  hello (as worker -1), ended (number, how, the point it had in hand)
//   rank 0 -> worker      point, give_up (a point that another worker got instead), stop
//
// A message is its length, its kind and its bytes.
#pragma once

#include "sweep/points.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

enum class Says : char {
  hello = 'h',
  row = 'r',
  ended = 'e',
  point = 'p',
  give_up = 'g',
  stop = 's',
};

struct Hello {
  std::string key;
  std::int32_t rank = 0;
  std::int32_t number = 0;  ///< of all processes that its supervisor has started; -1: that itself
};

inline constexpr std::int32_t kSupervisor = -1;
inline constexpr std::uint64_t kNoPoint = UINT64_MAX;

struct Ended {
  std::int32_t number = 0;
  std::int32_t status = 0;           ///< as waitpid() says it
  std::uint64_t in_hand = kNoPoint;  ///< the point that it was at
};

struct Task {
  Point point;
  bool alone = false;  ///< in a process of its own, because a worker has ended at it
};

std::string encode(const Hello& hello);
std::string encode(const Ended& ended);
std::string encode(const Task& task);
std::string encode(std::uint64_t point);
Hello decode_hello(std::string_view bytes);
Ended decode_ended(std::string_view bytes);
Task decode_task(std::string_view bytes);
std::uint64_t decode_number(std::string_view bytes);

struct Message {
  Says says;
  std::string_view bytes;  ///< until the next call of `receive`
};

/// One end of a connection, with what has come and not been looked at, and what is to go.
class Stream {
 public:
  explicit Stream(int socket) : socket_(socket) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int socket() const { return socket_; }
  /// Takes what is there, without waiting; false: the other end has closed.
  bool receive();
  /// The next message that is complete. Throws Garbled when this is none of ours.
  std::optional<Message> next();

  void add(Says says, std::string_view bytes);
  std::size_t unsent() const { return out_.size() - sent_; }
  /// Sends what goes without waiting; false: the other end has closed.
  bool send();
  /// Sends everything; false: the other end has closed.
  bool send_all();

 private:
  int socket_;
  std::string in_, out_;
  std::size_t read_ = 0;  ///< of `in_`
  std::size_t sent_ = 0;  ///< of `out_`
};

/// Where rank 0 is, and the word that it wants to hear.
struct Door {
  std::string local;  ///< name of a local socket; empty: over TCP
  std::string host;
  int port = 0;
  std::string key;
};

/// Rank 0's end. Bound to a name of its own, or to a free port.
class Listener {
 public:
  enum class To : std::uint8_t { this_machine, everybody };
  explicit Listener(bool local, To to = To::this_machine);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int socket() const { return socket_; }
  const std::string& name() const { return name_; }  ///< of a local one
  int port() const { return port_; }                 ///< of the other
  /// A new connection; -1: nobody waits.
  int accept() const;

 private:
  int socket_ = -1;
  std::string name_;
  int port_ = 0;
};

/// A connected socket; -1 when nobody is there any more.
int connect_to(const Door& door);

}  // namespace penstock
