// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: GPUs and partitions of GPUs as devices, local and NCCL channels between them.
#include "hw/backend.hpp"

#include "hw/cuda/clock.hpp"
#include "hw/cuda/description.hpp"
#include "hw/cuda/examination.hpp"
#include "hw/cuda/layout.hpp"
#include "hw/cuda/local_links.hpp"
#include "hw/cuda/module.hpp"
#include "hw/cuda/kernels.hpp"
#include "hw/cuda/nccl_links.hpp"
#include "hw/cuda/nvml.hpp"
#include "hw/cuda/partitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace penstock::cuda {
namespace {

constexpr double kPatience_s = 5;  // for the GPU to come to rest at the end

/// This process among those of its machine, as torchrun, Open MPI or Slurm say; else 0.
int local_rank() {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    if (const char* text = std::getenv(name)) return std::max(0, std::atoi(text));
  }
  return 0;
}

std::string seconds(double s) { return fmt::format("{:.9f}", s); }

class CudaBackend : public Backend {
 public:
  CudaBackend(const BackendRequest& request, RenewBases* renew_bases, int gpus);
  ~CudaBackend() override;

  Device& device(int device) override { return *devices_.at(device); }
  Device& beside(int device) override;
  SendingEnd& sending(int channel) override { return *sending_[static_cast<std::size_t>(channel)]; }
  ReceivingEnd& receiving(int channel) override {
    return *receiving_[static_cast<std::size_t>(channel)];
  }
  void start() override;
  Description describe() const override;
  RunSettings same_bits(RunSettings settings) const override;

 private:
  struct Gpu {
    std::unique_ptr<GpuPartitions> partitions;
    std::shared_ptr<EventPool> events;
    std::vector<int> devices;  ///< of the Program, run here
    int parts = 1;
    StreamSharing sharing = StreamSharing::none;
  };
  struct EndStreams {
    cudaStream_t sending = nullptr, receiving = nullptr;  ///< shared ones
  };

  /// Memory of the GPU that is in use, by anybody, bytes.
  struct InUse {
    std::int64_t with_context = 0, with_devices = 0, with_channels = 0;
  };

  bool here(int device) const { return places_.contains(device); }
  bool crosses(const Channel& channel) const;
  std::size_t most_messages(const Channel& channel) const;
  void place(int gpus);
  int product_sms(int of_stage, int of_gpu) const;
  void choose_product_sms();
  void reserve_events();
  void describe_memory(Description& description) const;
  std::string describe_links() const;
  void open_gpus();
  std::unique_ptr<CudaDevice> open_device(int device);
  void connect_gpus();
  int ends(int device, bool sending) const;
  cudaStream_t stream_for(int device, bool sending);
  EndPlace end_place(int device, bool sending) {
    return {*devices_.at(device), stream_for(device, sending)};
  }
  void connect_local_channels();
  void connect_remote_channels();
  void set_zero();
  void restart_now(int gpu);
  void restart(int gpu, const StampPtr& root, double time_s);
  bool at_rest() const;
  void abandon();

  BackendRequest request_;
  RenewBases* renew_bases_;
  LocalLink link_;
  std::map<int, GpuPlace> places_;  // per device of the Program
  std::map<int, Gpu> gpus_;
  std::map<int, std::unique_ptr<CudaDevice>> devices_, besides_;
  std::map<int, EndStreams> shared_streams_;  // per device
  std::shared_ptr<RemoteChannels> remote_;
  std::vector<std::unique_ptr<SendingEnd>> sending_;
  std::vector<std::unique_ptr<ReceivingEnd>> receiving_;
  double uncertainty_s_ = 0;
  unsigned long long tick_ns_ = 0;
  int product_sms_ = 0;
  InUse in_use_;
  std::unique_ptr<ClockWatch> clocks_;
};

std::int64_t bytes_in_use(int gpu) {
  std::size_t free = 0, all = 0;
  use_gpu(gpu);
  check(cudaMemGetInfo(&free, &all), "ask for free memory");
  return static_cast<std::int64_t>(all - free);
}

CudaBackend::CudaBackend(const BackendRequest& request, RenewBases* renew_bases, int gpus)
    : request_(request), renew_bases_(renew_bases), link_(parse_local_link(request.settings.link)) {
  if (request.settings.clock == Clock::virtual_clock)
    throw InputError("--clock", "a GPU has no virtual clock; use --backend host");
  place(gpus);
  open_gpus();
  choose_product_sms();
  if (!gpus_.empty()) in_use_.with_context = bytes_in_use(gpus_.begin()->first);
  for (const int d : request.devices) devices_[d] = open_device(d);
  if (!gpus_.empty()) in_use_.with_devices = bytes_in_use(gpus_.begin()->first);
  for (const auto& [number, gpu] : gpus_) restart_now(number);
  sending_.resize(request.plan.channels.size());
  receiving_.resize(request.plan.channels.size());
  connect_local_channels();
  if (request.group.size() > 1) connect_remote_channels();
  reserve_events();
}

void CudaBackend::place(int gpus) {
  const Group& group = request_.group;
  const auto places = place_devices(static_cast<int>(request_.devices.size()), gpus,
                                    request_.settings.partitions, group.size(), local_rank());
  for (std::size_t i = 0; i < places.size(); ++i) {
    places_[request_.devices[i]] = places[i];
    gpus_[places[i].gpu].devices.push_back(request_.devices[i]);
  }
  for (const GpuPlace& p : places) {
    const auto used = gpus_.find(p.gpu);
    if (used == gpus_.end()) continue;
    used->second.parts =
        std::max({used->second.parts, request_.settings.partitions, p.partition + 1});
  }
}

/// SMs that a product may count on: those of its stage, less what NCCL's kernels take of the
/// busiest device's. Alike for all devices, so that all choose the same algorithms, and so does a
/// reference. 0: all of the GPU.
int CudaBackend::product_sms(int of_stage, int of_gpu) const {
  if (request_.settings.sms > 0) return request_.settings.sms;
  std::map<int, int> blocks;
  for (const Channel& channel : request_.plan.channels) {
    if (request_.group.size() == 1 || !crosses(channel)) continue;
    for (const int end : {channel.source, channel.destination}) blocks[end] += kMostCtas;
  }
  int most = 0;
  for (const auto& [device, count] : blocks) most = std::max(most, count);
  if (most == 0) return of_stage;
  const int sms = of_stage > 0 ? of_stage : of_gpu;
  return std::max(sms - most, sms / 4);
}

/// The least of all devices': GPUs that hold different numbers of them have partitions of different
/// sizes, and one algorithm must do for all, and for a reference.
void CudaBackend::choose_product_sms() {
  for (const auto& [device, place] : places_) {
    const GpuPartitions& partitions = *gpus_.at(place.gpu).partitions;
    const int sms = product_sms(partitions.sms(place.partition), partitions.all_sms());
    if (sms > 0) product_sms_ = product_sms_ > 0 ? std::min(product_sms_, sms) : sms;
  }
}

RunSettings CudaBackend::same_bits(RunSettings settings) const {
  if (gpus_.empty()) return settings;
  settings.partitions = gpus_.begin()->second.parts;
  settings.sms = product_sms_;
  return settings;
}

/// An op has a begin and an end, a message twice that at most.
void CudaBackend::reserve_events() {
  for (const auto& [number, gpu] : gpus_) {
    std::size_t count = 0;
    for (const int d : gpu.devices) count += 8 * request_.plan.program.ops.of_device(d).size();
    gpu.events->reserve(count);
  }
}

int CudaBackend::ends(int device, bool sending) const {
  int count = 0;
  for (const Channel& c : request_.plan.channels)
    count += (sending ? c.source : c.destination) == device ? 1 : 0;
  return count;
}

void CudaBackend::open_gpus() {
  for (auto& [number, gpu] : gpus_) {
    gpu.partitions = std::make_unique<GpuPartitions>(number, gpu.parts);
    gpu.events = std::make_shared<EventPool>(number);
    std::vector<int> sending;
    std::vector<int> receiving;
    for (const int d : gpu.devices) {
      sending.push_back(ends(d, true));
      receiving.push_back(ends(d, false));
    }
    gpu.sharing = share_streams(sending, receiving);
    // A send to another process ends when its receive is posted; where that waits for an op
    // (coupled transfers), sends to different devices must not wait for one another.
    if (request_.group.size() > 1 && request_.plan.program.transfers == Transfers::coupled)
      gpu.sharing = StreamSharing::none;
    if (const std::string& why = gpu.partitions->problem(); !why.empty()) {
      if (request_.settings.must_partition)
        throw SystemError(
            fmt::format("GPU {} has no partitions, so nothing is recorded: {}", number, why));
      std::cerr << fmt::format("GPU {} has no partitions, its stages share all SMs: {}\n", number,
                               why);
    }
  }
  connect_gpus();
}

/// GPUs that copy from each other should do so directly; where they cannot, the driver goes through
/// the host.
void CudaBackend::connect_gpus() {
  for (const auto& [number, gpu] : gpus_) {
    use_gpu(number);
    for (const auto& [peer, other] : gpus_) {
      int can = 0;
      if (peer == number) continue;
      check(cudaDeviceCanAccessPeer(&can, number, peer), "ask for peer access");
      if (can == 0) continue;
      const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
      if (result == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
      } else {
        check(result, "connect two GPUs");
      }
    }
  }
}

std::unique_ptr<CudaDevice> CudaBackend::open_device(int device) {
  const GpuPlace& p = places_.at(device);
  Gpu& gpu = gpus_.at(p.gpu);
  std::vector<int> peers;
  for (const auto& [peer, other] : gpus_) {
    int can = 0;
    if (peer != p.gpu && cudaDeviceCanAccessPeer(&can, peer, p.gpu) == cudaSuccess && can != 0)
      peers.push_back(peer);
  }
  DeviceSettings s;
  s.number = device;
  s.gpu = p.gpu;
  s.sms = product_sms_;
  s.compute = gpu.partitions->make_stream(p.partition, false);
  s.bf16 = request_.settings.precision == Precision::bf16;
  s.pace = request_.settings.pace;
  s.renew_bases = renew_bases_;
  // A receive that NCCL has posted occupies SMs until its message comes.
  s.receive_ahead = request_.group.size() > 1 ? 2 : 4;
  return std::make_unique<CudaDevice>(s, peers, gpu.events, request_.control);
}

Device& CudaBackend::beside(int device) {
  auto& made = besides_[device];
  if (!made) {
    made = open_device(device);
    restart_now(places_.at(device).gpu);
  }
  return *made;
}

cudaStream_t CudaBackend::stream_for(int device, bool sending) {
  const GpuPlace& p = places_.at(device);
  Gpu& gpu = gpus_.at(p.gpu);
  const auto make = [&] {
    return link_ == LocalLink::paced ? gpu.partitions->make_waiting_stream(p.partition)
                                     : gpu.partitions->make_stream(p.partition, true);
  };
  EndStreams& shared = shared_streams_[device];
  if (gpu.sharing == StreamSharing::none || (!sending && gpu.sharing == StreamSharing::sending))
    return make();
  if (shared.sending == nullptr) shared.sending = make();
  return shared.sending;
}

bool CudaBackend::crosses(const Channel& channel) const {
  const int devices = request_.plan.program.ops.devices();
  return request_.group.rank_of(channel.source, devices) !=
         request_.group.rank_of(channel.destination, devices);
}

/// One per op at most, and of gradients as many as the steps of a reduction have.
std::size_t CudaBackend::most_messages(const Channel& channel) const {
  const RunPlan& plan = request_.plan;
  const std::size_t ops = plan.program.ops.of_device(channel.source).size();
  if (channel.kind != Transfer::Kind::reduction || waits_for_no_other(plan)) return ops;
  const auto steps = reduction_steps(plan, adders_of(plan, channel.source), 1);
  const auto sends = std::ranges::count_if(steps, [&](const CollectiveStep& step) {
    return step.gpu == channel.source && step.peer == channel.destination &&
           step.kind == CollectiveStep::Kind::send;
  });
  const std::uint32_t position = plan.program.placement.position_of(channel.source);
  return ops * static_cast<std::size_t>(sends) * parts_at(plan, position).size();
}

void CudaBackend::connect_local_channels() {
  const bool coupled = request_.plan.program.transfers == Transfers::coupled;
  for (std::size_t c = 0; c < sending_.size(); ++c) {
    const Channel& channel = request_.plan.channels[c];
    if (!here(channel.source) || !here(channel.destination)) continue;
    const bool rendezvous = coupled && channel.kind == Transfer::Kind::message;
    LocalEnds ends = connect_local(link_, channel, rendezvous, end_place(channel.source, true),
                                   end_place(channel.destination, false));
    sending_[c] = std::move(ends.sending);
    receiving_[c] = std::move(ends.receiving);
  }
}

void CudaBackend::connect_remote_channels() {
  std::vector<CrossingChannel> crossing;
  std::vector<RemoteChannel> mine;
  const int devices = request_.plan.program.ops.devices();
  for (int number = 0; number < static_cast<int>(request_.plan.channels.size()); ++number) {
    const Channel& channel = request_.plan.channels[static_cast<std::size_t>(number)];
    if (!crosses(channel)) continue;
    crossing.push_back({number, request_.group.rank_of(channel.source, devices),
                        request_.group.rank_of(channel.destination, devices)});
    if (here(channel.source) || here(channel.destination))
      mine.push_back({number, channel, here(channel.source), most_messages(channel)});
  }
  const int gpu = gpus_.begin()->first;
  use_gpu(gpu);
  remote_ = connect_remote(gpu, crossing, mine, request_.group, request_.control);
  for (const RemoteChannel& m : mine) {
    const int device = m.sends ? m.channel.source : m.channel.destination;
    const auto c = static_cast<std::size_t>(m.number);
    CudaDevice& d = *devices_.at(device);
    if (m.sends) {
      sending_[c] = remote_->make_sending(m.number, d, stream_for(device, true));
    } else {
      receiving_[c] = remote_->make_receiving(m.number, d, stream_for(device, false));
    }
  }
}

/// So that it is loaded before NCCL's kernels may spin.
void launch_delay_once(CudaDevice& device) {
  use_gpu(device.gpu());
  unsigned long long* slot = device.next_slot();
  launch_stamp(slot, 0, device.stream(kComputeQueue));
  launch_delay(slot, 0, device.stream(kComputeQueue));
}

void CudaBackend::start() {
  if (remote_) remote_->warm_up();
  for (auto& [number, device] : devices_) {
    launch_delay_once(*device);
    device->finish();
    device->memory().reset_peaks();
  }
  if (gpus_.empty()) return set_zero();
  const auto& [number, gpu] = *gpus_.begin();
  in_use_.with_channels = bytes_in_use(number);
  tick_ns_ = measure_tick_ns(number, devices_.at(gpu.devices[0])->stream(kComputeQueue));
  clocks_ = std::make_unique<ClockWatch>(number);
  set_zero();
}

/// The run's clock: rank 0's host clock, moved so that now is 0.
void CudaBackend::set_zero() {
  Group& group = request_.group;
  if (gpus_.size() == 1 && group.size() == 1) return restart_now(gpus_.begin()->first);
  std::map<int, AlignedEvent> aligned;
  for (const auto& [number, gpu] : gpus_) {
    const cudaStream_t stream = devices_.at(gpu.devices[0])->stream(kComputeQueue);
    aligned[number] = align_clocks(number, stream, gpu.events, request_.control);
  }
  group.barrier();
  const double now = steady_s() + group.clock_offset_s();
  const double zero = std::stod(group.broadcast(seconds(now), 0)) - group.clock_offset_s();
  for (const auto& [number, a] : aligned) {
    restart(number, a.event, a.steady_s - zero);
    uncertainty_s_ = std::max(uncertainty_s_, a.uncertainty_s);
    const auto since_ns = static_cast<std::int64_t>((zero - a.steady_s) * 1e9);
    if (remote_) remote_->set_zero(a.timer_ns + static_cast<unsigned long long>(since_ns));
  }
}

/// Now is 0 for the devices of this GPU.
void CudaBackend::restart_now(int number) {
  const Gpu& gpu = gpus_.at(number);
  use_gpu(number);
  auto root = std::make_shared<Stamp>(gpu.events, nullptr);
  root->record(devices_.at(gpu.devices[0])->stream(kComputeQueue));
  wait_until_fired(*root, request_.control);
  restart(number, root, 0);
}

void CudaBackend::restart(int gpu, const StampPtr& root, double time_s) {
  root->set_time(time_s);
  for (const int d : gpus_.at(gpu).devices) {
    devices_.at(d)->events().restart(root);
    if (const auto own = besides_.find(d); own != besides_.end())
      own->second->events().restart(root);
  }
}

Description CudaBackend::describe() const {
  if (gpus_.empty()) return describe_gpu(0);  // nothing runs here
  const auto& [number, gpu] = *gpus_.begin();
  Description d = describe_gpu(number);
  d["gpus"] = std::to_string(gpus_.size());
  d["partitions"] = gpu.partitions->describe();
  if (const std::string seen = gpu.partitions->describe_sms(); !seen.empty())
    d["partition SMs"] = seen;
  d["precision"] = request_.settings.precision == Precision::bf16 ? "bf16" : "fp32";
  d["memory"] = devices_.begin()->second->memory().name();
  d["processes"] = std::to_string(request_.group.size());
  d["links"] = describe_links();
  if (product_sms_ > 0) d["SMs of products"] = std::to_string(product_sms_);
  if (const std::string said = devices_.begin()->second->math().remarks(); !said.empty())
    d["products with epilogues"] = said;
  if (tick_ns_ > 0) d["timer tick"] = fmt::format("{} ns", tick_ns_);
  describe_memory(d);
  if (clocks_) clocks_->describe(d);
  if (uncertainty_s_ > 0) d["clock uncertainty"] = fmt::format("{:.1f} us", uncertainty_s_ * 1e6);
  return d;
}

std::string CudaBackend::describe_links() const {
  if (remote_) return remote_->describe();
  if (link_ != LocalLink::paced) return link_ == LocalLink::pinned ? "pinned" : "d2d";
  const bool apart = gpus_.begin()->second.partitions->waits_apart();
  return apart ? "paced" : "paced, on the stages' own SMs";
}

/// What a device's own ledger does not know. Other processes on this GPU would be counted, too.
void CudaBackend::describe_memory(Description& description) const {
  constexpr double kMiB = 1 << 20;
  if (in_use_.with_channels == 0) return;  // not started
  const int number = gpus_.begin()->first;
  description["memory in use"] = fmt::format(
      "{:.0f} MiB with the context, {:.0f} with workspaces, {:.0f} with weights, loaded code and "
      "channels, {:.0f} now",
      static_cast<double>(in_use_.with_context) / kMiB,
      static_cast<double>(in_use_.with_devices) / kMiB,
      static_cast<double>(in_use_.with_channels) / kMiB,
      static_cast<double>(bytes_in_use(number)) / kMiB);
  std::string reserved;
  for (const auto& [d, device] : devices_)
    reserved += fmt::format("{}{:.1f}", reserved.empty() ? "" : ", ",
                            static_cast<double>(device->memory().reserved_peak_bytes()) / kMiB);
  description["memory reserved"] = reserved + " MiB at most, per device";
}

bool CudaBackend::at_rest() const {
  for (const double until = steady_s() + kPatience_s; steady_s() < until;) {
    bool rests = true;
    for (const auto& [number, gpu] : gpus_) rests = rests && gpu.partitions->idle();
    if (rests) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Rather leaked than waited for: a GPU that does not come to rest hangs whoever frees its memory.
void CudaBackend::abandon() {
  for (auto* devices : {&devices_, &besides_}) {
    for (auto& [number, device] : *devices) {
      device->abandon();
      static_cast<void>(device.release());
    }
  }
  for (auto& end : sending_) static_cast<void>(end.release());
  for (auto& end : receiving_) static_cast<void>(end.release());
  for (auto& [number, gpu] : gpus_) gpu.partitions->abandon();
}

// Threads first, then what they use, then the memory, and the streams last.
CudaBackend::~CudaBackend() {
  clocks_ = nullptr;
  for (auto* devices : {&devices_, &besides_})
    for (auto& [number, device] : *devices) device->close();
  if (!at_rest()) abandon();
  sending_.clear();
  receiving_.clear();
  remote_ = nullptr;
  besides_.clear();
  devices_.clear();
}

std::string describe_gpus(int gpus) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "describe the GPU");
  return fmt::format("{} x {}, {} SMs, {:.0f} GiB", gpus, properties.name,
                     properties.multiProcessorCount,
                     static_cast<double>(properties.totalGlobalMem) / (1 << 30));
}

/// Before CUDA starts: a hardware queue for every stream.
void set_environment() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

}  // namespace
}  // namespace penstock::cuda

#define PENSTOCK_EXPORT __attribute__((visibility("default")))

extern "C" PENSTOCK_EXPORT penstock::Backend* penstock_cuda_backend(
    const penstock::BackendRequest* request, penstock::RenewBases* renew_bases, char* why,
    std::size_t why_bytes) {
  using namespace penstock::cuda;
  try {
    set_environment();
    return new CudaBackend(*request, renew_bases, count_gpus());
  } catch (const NoGpu& none) {
    std::snprintf(why, why_bytes, "%s", none.what());
    return nullptr;
  }
}

extern "C" PENSTOCK_EXPORT bool penstock_cuda_examine(void (*say)(const char*)) {
  using namespace penstock::cuda;
  try {
    set_environment();
    count_gpus();
  } catch (const NoGpu&) {
    return false;
  }
  examine_gpu(0, [say](const std::string& line) { say(line.c_str()); });
  return true;
}

extern "C" PENSTOCK_EXPORT const char* penstock_cuda_probe() {
  using namespace penstock::cuda;
  static std::string line;
  try {
    set_environment();
    line = describe_gpus(count_gpus());
  } catch (const std::exception& problem) {
    line = problem.what();
  }
  return line.c_str();
}
