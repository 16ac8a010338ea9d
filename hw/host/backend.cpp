// SPDX-License-Identifier: Apache-2.0
// The host backend: devices are threads of this process, channels are memory within it and gloo's
// TCP between processes.
#include "hw/backend.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "hw/host/gloo_wire.hpp"
#include "hw/host/links.hpp"
#include "hw/host/memory_wire.hpp"
#include "hw/stages.hpp"

#include <sys/utsname.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <mutex>

namespace penstock {
namespace {

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string system_name() {
  utsname name{};
  ::uname(&name);
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

std::int64_t largest_message(const RunPlan& plan) {
  std::int64_t bytes = 0;
  for (const StageCosts& c : plan.costs) bytes = std::max(bytes, c.output_bytes);
  return bytes;
}

/// Bytes of files that the control group counts as used, and gives up when asked.
double file_cache() {
  std::ifstream in("/sys/fs/cgroup/memory.stat");
  double bytes = 0;
  for (std::string key; in >> key >> bytes;) {
    if (key == "inactive_file") return bytes;
  }
  return 0;
}

/// Bytes this machine can still give to this process.
double free_memory() {
  std::ifstream in("/proc/meminfo");
  double bytes = std::numeric_limits<double>::infinity();
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("MemAvailable:")) bytes = std::stod(line.substr(13)) * 1024;
  }
  double limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    bytes = std::min(bytes, limit - used + file_cache());
  return bytes;
}

/// Linux promises memory that it does not have, and ends the process that uses it: ask before.
void require_memory(const BackendRequest& request) {
  const RunPlan& plan = request.plan;
  const bool real = plan.compute == Compute::transformer;
  const bool logical = request.settings.clock == Clock::virtual_clock;
  double needed = 0;
  for (const int d : request.devices) {
    if (real) needed += static_cast<double>(bytes_needed(plan, d, 4));
    for (const Channel& c : plan.channels) {
      if (real || logical || (c.source != d && c.destination != d)) continue;
      needed += static_cast<double>(largest_message(plan));
    }
  }
  const double available = free_memory();
  if (needed <= available) return;
  throw InputError(plan.name, fmt::format("needs {} here, and {} are free; take a smaller model, "
                                          "fewer microbatches or more machines",
                                          format_bytes(needed), format_bytes(available)));
}

class HostBackend : public Backend {
 public:
  explicit HostBackend(const BackendRequest& request)
      : request_(request), clock_(request.settings.clock == Clock::virtual_clock) {
    for (const int d : request.devices)
      devices_[d] =
          std::make_unique<HostDevice>(d, request.control, clock_, request.settings.threads);
    const auto count = request.plan.channels.size();
    sending_.resize(count);
    receiving_.resize(count);
    for (std::size_t c = 0; c < count; ++c) connect(c);
  }

  // Threads first, then what they use, and the memory last.
  ~HostBackend() override {
    for (auto* devices : {&devices_, &besides_, &pacing_})
      for (auto& [number, device] : *devices) device->close();
    sending_.clear();
    receiving_.clear();
  }

  Device& device(int device) override { return *devices_.at(device); }
  Device& beside(int device) override { return one_of(besides_, device); }
  Device& pacing(int device) override { return one_of(pacing_, device); }
  SendingEnd& sending(int channel) override { return *sending_[static_cast<std::size_t>(channel)]; }
  ReceivingEnd& receiving(int channel) override {
    return *receiving_[static_cast<std::size_t>(channel)];
  }

  void start() override {
    Group& group = request_.group;
    group.barrier();
    const double now = steady_s() + group.clock_offset_s();
    const std::string zero = group.broadcast(fmt::format("{:.9f}", now), 0);
    clock_.start_at(std::stod(zero) - group.clock_offset_s());
  }

  Description describe() const override {
    return {{"backend", "host"},
            {"processor", processor()},
            {"cores", std::to_string(std::thread::hardware_concurrency())},
            {"system", system_name()},
            {"compiler", __VERSION__},
            {"blas", host_blas()},
            {"links", request_.group.size() > 1 ? "gloo TCP" : "memory"},
            {"processes", std::to_string(request_.group.size())}};
  }

 private:
  using Devices = std::map<int, std::unique_ptr<HostDevice>>;

  std::mutex making_;  // of one_of

  bool here(int device) const { return devices_.contains(device); }

  /// Threads of several devices ask for theirs at the same time.
  Device& one_of(Devices& devices, int device) {
    const std::lock_guard lock(making_);
    auto& made = devices[device];
    if (!made) made = std::make_unique<HostDevice>(device, request_.control, clock_);
    return *made;
  }

  LinkSettings settings_of(const Channel& channel) const {
    const bool within = here(channel.source) && here(channel.destination);
    LinkSettings link{&request_.plan, channel.latency_s, channel.bytes_per_s};
    link.paced = within && request_.settings.pace && !clock_.logical();
    link.kind = channel.kind;
    return link;
  }

  void connect(std::size_t c) {
    const Channel& channel = request_.plan.channels[c];
    if (!here(channel.source) && !here(channel.destination)) return;
    const LinkSettings link = settings_of(channel);
    const char* who = one_rank_each(request_.plan) ? "device" : "rank";
    const WireSettings wire{channel_name(channel, who), link.receive_ahead,
                            link.transfers() == Transfers::coupled};
    std::unique_ptr<WireSender> sender;
    std::unique_ptr<WireReceiver> receiver;
    if (here(channel.source) && here(channel.destination)) {
      MemoryWire both = memory_wire(wire, request_.control);
      sender = std::move(both.sender);
      receiver = std::move(both.receiver);
    } else {
      connect_processes(channel, wire, sender, receiver);
    }
    if (sender) {
      sending_[c] =
          std::make_unique<HostSendingEnd>(*devices_.at(channel.source), std::move(sender), link);
    }
    if (receiver) {
      receiving_[c] = std::make_unique<HostReceivingEnd>(*devices_.at(channel.destination),
                                                         std::move(receiver), link);
    }
  }

  void connect_processes(const Channel& channel, const WireSettings& settings,
                         std::unique_ptr<WireSender>& sender,
                         std::unique_ptr<WireReceiver>& receiver) {
    auto* group = dynamic_cast<GlooGroup*>(&request_.group);
    invariant(group != nullptr, "a channel leaves the only process");
    const int devices = ranks_of(request_.plan);
    if (here(channel.source)) {
      const int peer = group->rank_of(channel.destination, devices);
      sender = gloo_sender(*group, peer, settings, request_.control);
    } else {
      const int peer = group->rank_of(channel.source, devices);
      receiver = gloo_receiver(*group, peer, settings, request_.control);
    }
  }

  BackendRequest request_;
  HostClock clock_;
  Devices devices_, besides_, pacing_;
  std::vector<std::unique_ptr<HostSendingEnd>> sending_;
  std::vector<std::unique_ptr<HostReceivingEnd>> receiving_;
};

}  // namespace

std::unique_ptr<Backend> open_host_backend(const BackendRequest& request) {
  require_concurrent_blas(host_blas_parallel());
  require_memory(request);
  return std::make_unique<HostBackend>(request);
}

}  // namespace penstock
