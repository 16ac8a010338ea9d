// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/nccl_links.hpp"

#include "hw/cuda/kernels.hpp"
#include "hw/cuda/layout.hpp"
#include "hw/cuda/mailbox.hpp"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <set>

namespace penstock::cuda {

#ifndef PENSTOCK_NCCL
std::shared_ptr<RemoteChannels> connect_remote(int, const std::vector<CrossingChannel>&,
                                               const std::vector<RemoteChannel>&, Group&,
                                               RunControl&) {
  throw SystemError("this module was built without NCCL, which several processes need");
}
#else
namespace {

constexpr std::chrono::microseconds kNap{20};
constexpr double kPatience_s = 5;  // for an orderly end

/// A communicator and its lock: nobody may be in a call when it is aborted.
class Communicator {
 public:
  explicit Communicator(RunControl& control) : control_(control) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Makes a call and polls this communicator until it is done. Throws what stopped the run.
  template <class Call>
  void run_call(const char* what, Call call) {
    std::unique_lock lock(mutex_);
    control_.throw_if_stopped();
    ncclResult_t result = call();
    while (result == ncclInProgress) {
      lock.unlock();
      std::this_thread::sleep_for(kNap);
      lock.lock();
      control_.throw_if_stopped();
      const ncclResult_t asked = nccl().async_error(comm, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclSuccess) return;
    throw SystemError(fmt::format("NCCL cannot {}: {} ({})", what, nccl().error_string(result),
                                  nccl().last_error(comm)));
  }
  void abort();

  ncclComm_t comm = nullptr;

 private:
  RunControl& control_;
  std::mutex mutex_;
};

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (comm != nullptr) nccl().abort(comm);
  comm = nullptr;
}

/// An orderly end needs the other side, too; where it does not come, the communicator is aborted.
Communicator::~Communicator() {
  const std::lock_guard lock(mutex_);
  if (comm == nullptr) return;
  ncclResult_t state = nccl().finalize(comm);
  for (const double until = steady_s() + kPatience_s;
       state == ncclInProgress && steady_s() < until;) {
    std::this_thread::sleep_for(kNap);
    if (nccl().async_error(comm, &state) != ncclSuccess) state = ncclInternalError;
  }
  if (state == ncclSuccess) {
    nccl().destroy(comm);
  } else {
    nccl().abort(comm);
  }
}

ncclConfig_t settings() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = kMostCtas;
  return config;
}

/// Moments of departure on their way: one per message, never used again, because they are read at
/// the end of the run. Written by the GPU, in pinned host memory, which is taken before the run:
/// taking some waits for what the GPU does, a posted receive included.
class Moments {
 public:
  explicit Moments(std::size_t count) : count_(count) {
    void* memory = nullptr;
    if (count == 0) return;
    check(cudaHostAlloc(&memory, count * sizeof *moments_, cudaHostAllocPortable),
          "allocate pinned memory");
    moments_ = static_cast<unsigned long long*>(memory);
  }
  ~Moments() { cudaFreeHost(moments_); }
  Moments(const Moments&) = delete;
  Moments& operator=(const Moments&) = delete;
  unsigned long long* next() {
    invariant(used_ < count_, "more messages came than the program sends");
    return moments_ + used_++;
  }

 private:
  std::size_t count_, used_ = 0;
  unsigned long long* moments_ = nullptr;
};

/// One channel with one end here.
struct Pair {
  RemoteChannel channel;
  Communicator communicator;
  std::shared_ptr<Moments> moments;
  Pair(const RemoteChannel& remote, RunControl& control)
      : channel(remote),
        communicator(control),
        moments(std::make_shared<Moments>(remote.sends ? 0 : remote.messages)) {}
  /// Rank of the other end: the source is 0.
  int peer() const { return channel.sends ? 1 : 0; }

  /// Sends or receives the moment of departure and the message, as one NCCL group.
  void exchange(unsigned long long* moment, void* data, std::int64_t bytes, cudaStream_t stream);
};

void Pair::exchange(unsigned long long* moment, void* data, std::int64_t bytes,
                    cudaStream_t stream) {
  const auto move = [&](void* what, std::size_t size) {
    return channel.sends ? nccl().send(what, size, ncclInt8, peer(), communicator.comm, stream)
                         : nccl().receive(what, size, ncclInt8, peer(), communicator.comm, stream);
  };
  communicator.run_call(channel.sends ? "send" : "receive", [&] {
    ncclResult_t result = nccl().group_start();
    for (const auto& [what, size] :
         {std::pair<void*, std::size_t>{moment, sizeof *moment},
          std::pair<void*, std::size_t>{data, static_cast<std::size_t>(bytes)}}) {
      if (size == 0) continue;
      const ncclResult_t moved = move(what, size);
      if (result == ncclSuccess && moved != ncclInProgress) result = moved;
    }
    const ncclResult_t ended = nccl().group_end();
    return result == ncclSuccess ? ended : result;
  });
}

/// When a message left the other process; written by the time it has arrived.
class RemoteDeparture : public EventState {
 public:
  RemoteDeparture(std::shared_ptr<CudaEvent> arrived, std::shared_ptr<Moments> moments)
      : arrived_(std::move(arrived)), moments_(std::move(moments)) {}
  void read_from(const unsigned long long* moment) { moment_.store(moment); }
  double time_s() override {
    if (time_s_) return *time_s_;
    arrived_->time_s();
    // Before time 0 it would be negative: two's complement.
    time_s_ = static_cast<double>(static_cast<std::int64_t>(*moment_.load())) * 1e-9;
    return *time_s_;
  }
  bool fired() override { return arrived_->fired(); }

 private:
  std::shared_ptr<CudaEvent> arrived_;
  std::shared_ptr<Moments> moments_;  // where the moment is
  std::atomic<const unsigned long long*> moment_{nullptr};
  std::optional<double> time_s_;
};

class NcclChannels;

class NcclSendingEnd : public SendingEnd {
 public:
  NcclSendingEnd(std::shared_ptr<NcclChannels> all, Pair& pair, CudaDevice& device, Queue queue)
      : all_(std::move(all)), pair_(pair), device_(device), queue_(queue) {}
  Queue queue() const override { return queue_; }
  Sent send(const Event& ready, const Block* block, std::int64_t bytes, const Op& op) override;

 private:
  std::shared_ptr<NcclChannels> all_;
  Pair& pair_;
  CudaDevice& device_;
  Queue queue_;
};

class NcclReceivingEnd : public ReceivingEnd {
 public:
  NcclReceivingEnd(std::shared_ptr<NcclChannels> all, Pair& pair, CudaDevice& device, Queue queue)
      : all_(std::move(all)), pair_(pair), device_(device), queue_(queue) {}
  Queue queue() const override { return queue_; }
  Received receive(const Event& posted, Block* block, std::int64_t bytes, const Op& op) override;

 private:
  std::shared_ptr<NcclChannels> all_;
  Pair& pair_;
  CudaDevice& device_;
  Queue queue_;
};

class NcclChannels : public RemoteChannels, public std::enable_shared_from_this<NcclChannels> {
 public:
  NcclChannels(int gpu, RunControl& control) : gpu_(gpu), control_(control), world_(control) {}
  // The world's communicator is the last to go.
  ~NcclChannels() override { pairs_.clear(); }

  void meet(const std::vector<CrossingChannel>& crossing, const std::vector<RemoteChannel>& mine,
            Group& group);
  void abort();
  unsigned long long zero() const { return zero_ns_; }

  void warm_up() override;
  void set_zero(unsigned long long timer_ns) override { zero_ns_ = timer_ns; }
  std::unique_ptr<SendingEnd> make_sending(int channel, CudaDevice& device,
                                           cudaStream_t stream) override {
    return std::make_unique<NcclSendingEnd>(shared_from_this(), *pairs_.at(channel), device,
                                            device.add_queue(stream));
  }
  std::unique_ptr<ReceivingEnd> make_receiving(int channel, CudaDevice& device,
                                               cudaStream_t stream) override {
    return std::make_unique<NcclReceivingEnd>(shared_from_this(), *pairs_.at(channel), device,
                                              device.add_queue(stream));
  }
  std::string describe() const override;

 private:
  void split(const RemoteChannel* mine);

  int gpu_;
  RunControl& control_;
  Communicator world_;
  ncclComm_t no_communicator_ = nullptr;
  std::mutex mutex_;  // of the map, against abort()
  std::map<int, std::unique_ptr<Pair> > pairs_;
  std::atomic<unsigned long long> zero_ns_{0};
};

/// Returns what tells machines apart: the boot. Containers of several machines may share a host
/// name, and those of one may have several.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

/// Two processes on one GPU: NCCL refuses that with less to go by.
void check_gpus_differ(int gpu, Group& group) {
  std::array<char, 64> bus{};
  std::array<char, 256> host{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), gpu), "identify the GPU");
  ::gethostname(host.data(), host.size() - 1);
  const std::string id = machine_id();
  std::string problem;
  std::set<std::string> seen;
  for (const std::string& said :
       group.gather(fmt::format("{} of {}\n{}", bus.data(), host.data(), id))) {
    const std::size_t line = said.find('\n');
    const std::string place = said.substr(0, line);
    const bool known = line + 1 < said.size();
    if (!seen.insert(known ? place.substr(0, place.find(' ')) + said.substr(line) : place).second)
      problem = fmt::format(
          "two processes share GPU {}: give each its own (LOCAL_RANK), or run one "
          "process, which makes partitions of it",
          place);
  }
  problem = group.broadcast(problem, 0);
  if (!problem.empty()) throw InputError("--backend", problem);
}

void NcclChannels::meet(const std::vector<CrossingChannel>& crossing,
                        const std::vector<RemoteChannel>& mine, Group& group) {
  check_gpus_differ(gpu_, group);
  ncclUniqueId id{};
  std::string bytes;
  if (group.rank() == 0) {
    if (nccl().get_unique_id(&id) != ncclSuccess) throw SystemError("NCCL cannot make an id");
    bytes.assign(id.internal, sizeof id.internal);
  }
  bytes = group.broadcast(bytes, 0);
  invariant(bytes.size() == sizeof id.internal, "the id of the NCCL group is damaged");
  std::memcpy(id.internal, bytes.data(), bytes.size());
  ncclConfig_t config = settings();
  world_.run_call("bring the processes together", [&] {
    return nccl().init_rank(&world_.comm, group.size(), id, group.rank(), &config);
  });
  std::vector<std::pair<int, int> > ends;
  for (const CrossingChannel& c : crossing) ends.emplace_back(c.source, c.destination);
  const std::vector<int> rounds = splitting_rounds(ends);
  const int count = rounds.empty() ? 0 : *std::ranges::max_element(rounds) + 1;
  std::vector<const RemoteChannel*> own(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < crossing.size(); ++i) {
    const auto found = std::ranges::find(mine, crossing[i].number, &RemoteChannel::number);
    if (found != mine.end()) own[static_cast<std::size_t>(rounds[i])] = &*found;
  }
  for (const RemoteChannel* channel : own) split(channel);
}

/// All processes call this in the same rounds, each with the channel that it has in it, or none.
/// NCCL fills its communicator in later, so it is at home before the call.
void NcclChannels::split(const RemoteChannel* mine) {
  ncclConfig_t config = settings();
  ncclComm_t* made = &no_communicator_;
  Pair* pair = nullptr;
  if (mine != nullptr) {
    const std::lock_guard lock(mutex_);
    pair =
        pairs_.emplace(mine->number, std::make_unique<Pair>(*mine, control_)).first->second.get();
    made = &pair->communicator.comm;
  }
  world_.run_call("join the two ends of a channel", [&] {
    const int color = pair != nullptr ? mine->number : NCCL_SPLIT_NOCOLOR;
    return nccl().split(world_.comm, color, pair != nullptr ? 1 - pair->peer() : 0, made, &config);
  });
  if (pair != nullptr)
    pair->communicator.run_call("join the two ends of a channel", [] { return ncclInProgress; });
}

void NcclChannels::abort() {
  const std::lock_guard lock(mutex_);
  for (const auto& [channel, pair] : pairs_) pair->communicator.abort();
  world_.abort();
}

void NcclChannels::warm_up() {
  use_gpu(gpu_);
  cudaStream_t stream = nullptr;
  void* scratch = nullptr;
  constexpr std::int64_t kBytes = 1024;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  check(cudaMalloc(&scratch, 2 * kBytes), "allocate memory");
  auto* moment = static_cast<unsigned long long*>(scratch);
  for (const auto& [channel, pair] : pairs_) {
    pair->exchange(moment, static_cast<char*>(scratch) + kBytes, kBytes, stream);
    while (!is_idle(stream)) {
      control_.throw_if_stopped();
      std::this_thread::sleep_for(kNap);
    }
  }
  cudaFree(scratch);
  cudaStreamDestroy(stream);
}

std::string NcclChannels::describe() const {
  int version = 0;
  nccl().get_version(&version);
  return fmt::format("NCCL {}.{}.{}, at most {} blocks per channel", version / 10000,
                     version / 100 % 100, version % 100, kMostCtas);
}

SendingEnd::Sent NcclSendingEnd::send(const Event& ready, const Block* block, std::int64_t bytes,
                                      const Op&) {
  auto departed = std::make_shared<CudaEvent>(device_.control());
  auto delivered = std::make_shared<CudaEvent>(device_.control());
  device_.push(queue_, [=, this, stream = device_.stream(queue_)] {
    wait_on(stream, *stamp_of(ready));
    departed->bind(device_.events().record(stream));
    unsigned long long* moment = device_.next_slot();
    launch_stamp(moment, all_->zero(), stream);
    pair_.exchange(moment, block->data, bytes, stream);
    delivered->bind(device_.events().record(stream));
  });
  return {departed, delivered};
}

ReceivingEnd::Received NcclReceivingEnd::receive(const Event& posted, Block* block,
                                                 std::int64_t bytes, const Op&) {
  auto arrived = std::make_shared<CudaEvent>(device_.control());
  auto departed = std::make_shared<RemoteDeparture>(arrived, pair_.moments);
  device_.push(queue_, [=, this, stream = device_.stream(queue_)] {
    if (posted) wait_on(stream, *stamp_of(posted));
    unsigned long long* on_gpu = device_.next_slot();
    unsigned long long* on_host = pair_.moments->next();
    departed->read_from(on_host);
    pair_.exchange(on_gpu, block->data, bytes, stream);
    check(cudaMemcpyAsync(on_host, on_gpu, sizeof *on_gpu, cudaMemcpyDeviceToHost, stream),
          "read a moment of departure");
    arrived->bind(device_.events().record(stream));
  });
  return {departed, arrived};
}

}  // namespace

std::shared_ptr<RemoteChannels> connect_remote(int gpu,
                                               const std::vector<CrossingChannel>& crossing,
                                               const std::vector<RemoteChannel>& mine, Group& group,
                                               RunControl& control) {
  auto channels = std::make_shared<NcclChannels>(gpu, control);
  control.on_stop([weak = std::weak_ptr(channels)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
  channels->meet(crossing, mine, group);
  return channels;
}
#endif

}  // namespace penstock::cuda
