// SPDX-License-Identifier: Apache-2.0
// A key-value store over TCP, through which the processes of a run find each other.
//
// Rank 0 serves it from a thread; the others keep one connection each. Every key belongs to the
// rank that sets it, so that waiting for a key ends as soon as its owner has left: a closed
// connection is how a process is known to be gone. No MPI, no daemon, no file locks.
//
// A client introduces itself with a magic number, its rank, the size of the group and the name of
// the run, so that a foreign server on the same port (torchrun's agent listens on MASTER_PORT
// itself) or another run is recognized, and the next port tried. Only after the answer does it
// join: who gave up waiting for a slow answer, and comes again, has not left.
//
// Both ends prove that they know the secret of the run, by an HMAC of what each has drawn at
// random:
//   client: hello(run, a)    server: b, HMAC(secret, "rank 0", a, b, run)
//   client: join(HMAC(secret, "rank R of N", b, a, run))
// Nothing else is answered before that; who has not joined gets a few kilobytes and seconds, and
// the longest silent one goes when there are many. What joined ranks then say is not encrypted.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace penstock {

class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  virtual void set(const std::string& key, const std::string& bytes) = 0;

  enum class Found : std::uint8_t {
    yes,
    not_yet,
    never,  ///< its owner has left, or the run failed: `bytes` says which
  };
  struct Answer {
    Found found = Found::not_yet;
    std::string bytes;
  };
  /// Asks once.
  virtual Answer try_get(const std::string& key, int owner) = 0;
  /// Seconds of rank 0's steady clock.
  virtual double clock_s() = 0;
  /// Every try_get() of a key that is not there answers `never` with this reason from now on.
  virtual void fail(const std::string& reason) = 0;
  /// This process's address on the way to the others; empty while nobody has come.
  virtual std::string local_address() = 0;

  /// Asks until it is there; `not_yet` after `deadline_s`.
  Answer get(const std::string& key, int owner, double deadline_s);
};

struct RunIdentity {
  int rank = 0;
  int size = 1;
  std::string run;  ///< the same on all ranks, different for another run
  std::string secret = {};
};

/// Rank 0's end. Serves until it is destroyed; then lingers for the last answers.
class RendezvousServer : public RendezvousStore {
 public:
  /// Listens on the first free one of `ports` (0: the kernel's choice), at `host` where that is an
  /// address of this machine, else ("", or what others call it) at all of them.
  RendezvousServer(const RunIdentity& identity, const std::vector<int>& ports,
                   const std::string& host);
  ~RendezvousServer() override;
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;
  int port() const { return port_; }

  void set(const std::string& key, const std::string& bytes) override;
  Answer try_get(const std::string& key, int owner) override;
  double clock_s() override;
  void fail(const std::string& reason) override;
  std::string local_address() override;

 private:
  struct Connection;
  void serve();
  void accept_one();
  bool read_from(Connection& from);
  bool write_to(Connection& to);
  bool answer_requests(Connection& client);
  std::string answer(Connection& client, char kind, int owner, const std::string& key,
                     const std::string& value);
  std::string introduce(Connection& client, const std::string& size, const std::string& value);
  std::string join(Connection& client, int rank, const std::string& proof);
  void drop_strangers();
  void forget(Connection& client);

  RunIdentity identity_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};  ///< a pipe, to end serve()
  int port_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;  ///< the serving thread's own
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::map<int, bool> here_;  ///< ranks that have come -> are still here
  std::string failure_;
  std::string address_;
  std::thread thread_;
};

/// Connects to rank 0 at `host`, at one of `ports`, again and again until `reach_s` have passed.
/// `deadline_s`: for the answers of who was found to be rank 0.
std::unique_ptr<RendezvousStore> connect_rendezvous(const RunIdentity& identity,
                                                    const std::string& host,
                                                    const std::vector<int>& ports, double reach_s,
                                                    double deadline_s);

}  // namespace penstock
