// SPDX-License-Identifier: Apache-2.0
// NCCL between processes with emulated GPUs: communicators that are made without blocking, split
// and aborted, and groups of sends and receives as one piece of a stream's work, over sockets of
// this machine. A send ends when its message has been received: NCCL promises no more.
#include "tests/hw/emulated_gpu/gpu.hpp"

#include <nccl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kLook_ms = 20;  // between looks at an abort

/// Thrown to end what waits.
struct Ended : std::runtime_error {
  ncclResult_t result;
  Ended(ncclResult_t why, const char* text) : std::runtime_error(text), result(why) {}
};

enum class Purpose : std::int32_t { control, data };

struct Hello {
  std::int32_t rank;
  Purpose purpose;
  auto operator<=>(const Hello&) const = default;
};

/// What a communicator is, kept by all that is under way on it.
class Communication {
 public:
  Communication(std::string name, int ranks, int rank)
      : name_(std::move(name)), ranks_(ranks), rank_(rank) {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto [address, length] = address_of(rank);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listener_, 64) != 0)
      fail(ncclSystemError);
  }
  ~Communication() {
    for (const auto& [hello, socket] : to_) ::close(socket);
    for (const auto& [hello, socket] : from_) ::close(socket);
    ::close(listener_);
  }
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;

  int rank() const { return rank_; }
  const std::string& name() const { return name_; }
  ncclResult_t state() const { return state_; }
  void begin() {
    ncclResult_t fine = ncclSuccess;
    state_.compare_exchange_strong(fine, ncclInProgress);
  }
  void end() {
    ncclResult_t busy = ncclInProgress;
    state_.compare_exchange_strong(busy, ncclSuccess);
  }
  void fail(ncclResult_t why) { state_ = why; }
  void abort() { aborted_ = true; }

  /// Every rank gets what all ranks gave, in their order.
  std::vector<std::int32_t> gather(std::int32_t mine) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(ranks_), mine);
    const std::size_t bytes = all.size() * sizeof mine;
    if (rank_ != 0) {
      write(to(0, Purpose::control), &mine, sizeof mine);
      read(from(0, Purpose::control), all.data(), bytes);
      return all;
    }
    for (int r = 1; r < ranks_; ++r)
      read(from(r, Purpose::control), &all[static_cast<std::size_t>(r)], sizeof mine);
    for (int r = 1; r < ranks_; ++r) write(to(r, Purpose::control), all.data(), bytes);
    return all;
  }

  void send(int peer, const void* data, std::size_t bytes) {
    const int socket = to(peer, Purpose::data);
    char taken = 0;
    write(socket, &bytes, sizeof bytes);
    write(socket, data, bytes);
    read(socket, &taken, 1);
  }
  void receive(int peer, void* data, std::size_t bytes) {
    const int socket = from(peer, Purpose::data);
    std::size_t sent = 0;
    read(socket, &sent, sizeof sent);
    if (sent != bytes) throw Ended(ncclInvalidUsage, "a message of another size");
    read(socket, data, bytes);
    write(socket, "", 1);
  }

 private:
  /// An abstract name of this machine.
  std::pair<sockaddr_un, socklen_t> address_of(int rank) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string text = name_ + "." + std::to_string(rank);
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    return {address, static_cast<socklen_t>(sizeof(sa_family_t) + 1 + text.size())};
  }
  void await(int socket, short what) const {
    pollfd look{socket, what, 0};
    while (::poll(&look, 1, kLook_ms) == 0) {
      if (aborted_) throw Ended(ncclRemoteError, "aborted");
    }
  }
  void write(int socket, const void* data, std::size_t bytes) const {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      await(socket, POLLOUT);
      const ssize_t n = ::send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n <= 0) throw Ended(ncclRemoteError, "the other process is gone");
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }
  void read(int socket, void* data, std::size_t bytes) const {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      await(socket, POLLIN);
      const ssize_t n = ::recv(socket, at, bytes, MSG_DONTWAIT);
      if (n <= 0) throw Ended(ncclRemoteError, "the other process is gone");
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }
  int to(int peer, Purpose purpose) {
    const std::lock_guard lock(mutex_);
    const auto [found, added] = to_.try_emplace({peer, purpose}, -1);
    if (!added) return found->second;
    found->second = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto [address, length] = address_of(peer);
    while (::connect(found->second, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      if (aborted_) throw Ended(ncclRemoteError, "aborted");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // not there yet
    }
    const Hello hello{rank_, purpose};
    write(found->second, &hello, sizeof hello);
    return found->second;
  }
  int from(int peer, Purpose purpose) {
    const std::lock_guard lock(accepting_);
    while (!from_.contains({peer, purpose})) {
      await(listener_, POLLIN);
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      Hello hello{};
      read(socket, &hello, sizeof hello);
      from_[hello] = socket;
    }
    return from_[{peer, purpose}];
  }

  std::string name_;
  int ranks_, rank_;
  int listener_;
  std::atomic<ncclResult_t> state_{ncclSuccess};
  std::atomic<bool> aborted_{false};
  std::mutex mutex_, accepting_;
  std::map<Hello, int> to_, from_;
};
using CommunicationPtr = std::shared_ptr<Communication>;

/// Does it while the caller polls.
void do_later(const CommunicationPtr& on, std::function<void()> what) {
  on->begin();
  std::thread([on, what = std::move(what)] {
    try {
      what();
      on->end();
    } catch (const Ended& ended) {
      on->fail(ended.result);
    }
  }).detach();
}

struct Transfer {
  CommunicationPtr on;
  cudaStream_t stream;
  bool sends;
  int peer;
  void* data;
  std::size_t bytes;
};
thread_local int t_depth = 0;
thread_local std::vector<Transfer> t_group;

void carry_out(const std::vector<Transfer>& group) {
  for (const Transfer& t : group) {
    try {
      if (t.sends) {
        t.on->send(t.peer, t.data, t.bytes);
      } else {
        t.on->receive(t.peer, t.data, t.bytes);
      }
    } catch (const Ended& ended) {
      return t.on->fail(ended.result);
    }
  }
}

}  // namespace

struct ncclComm {
  CommunicationPtr communication;
  int splits = 0;
};

namespace {

ncclResult_t add(bool sends, void* data, std::size_t count, ncclDataType_t type, int peer,
                 ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt8 || data == nullptr) return ncclInvalidArgument;
  t_group.push_back({comm->communication, stream, sends, peer, data, count});
  return t_depth > 0 ? ncclSuccess : (++t_depth, ncclGroupEnd());
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of emulated NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return "emulated"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  *id = {};
  const std::string name =
      "penstock-emulated-" + std::to_string(::getpid()) + "-" + std::to_string(random());
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  auto on = std::make_shared<Communication>(id.internal, ranks, rank);
  *comm = new ncclComm{on};
  do_later(on, [on = on.get()] { on->gather(0); });
  return ncclInProgress;
}

/// Ranks of a colour are ordered by key, then as they were.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  const CommunicationPtr& on = comm->communication;
  const std::string name = on->name() + "/" + std::to_string(comm->splits++);
  do_later(on, [on = on.get(), name, color, key, made] {
    const std::vector<std::int32_t> colors = on->gather(color);
    const std::vector<std::int32_t> keys = on->gather(key);
    if (color == NCCL_SPLIT_NOCOLOR) {
      *made = nullptr;
      return;
    }
    int ranks = 0, rank = 0;
    for (std::size_t r = 0; r < colors.size(); ++r) {
      if (colors[r] != color) continue;
      ++ranks;
      const bool before = static_cast<int>(r) < on->rank() ? keys[r] <= key : keys[r] < key;
      rank += before && static_cast<int>(r) != on->rank() ? 1 : 0;
    }
    auto part = std::make_shared<Communication>(name + "-" + std::to_string(color), ranks, rank);
    *made = new ncclComm{part};
    do_later(part, [part = part.get()] { part->gather(0); });
  });
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  do_later(comm->communication, [on = comm->communication.get()] { on->gather(0); });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->communication->abort();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->communication->state();
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(true, const_cast<void*>(data), count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(false, data, count, type, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++t_depth;
  return ncclSuccess;
}

/// One kernel for all of a group, on the stream they have in common.
ncclResult_t ncclGroupEnd() {
  if (--t_depth > 0 || t_group.empty()) return ncclSuccess;
  const std::vector<Transfer> group = std::move(t_group);
  t_group.clear();
  const cudaError_t issued =
      penstock::emulated::enqueue(group[0].stream, [group] { carry_out(group); });
  return issued == cudaSuccess ? ncclInProgress : ncclUnhandledCudaError;
}

}  // extern "C"
