// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/partitions.hpp"

#include "hw/cuda/kernels.hpp"
#include "hw/cuda/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::cuda {

GpuPartitions::GpuPartitions(int gpu, int count) : gpu_(gpu), count_(count) {
  use_gpu(gpu);
  check(cudaFree(nullptr), "start the GPU");
  check(cudaDeviceGetAttribute(&sms_total_, cudaDevAttrMultiProcessorCount, gpu), "count the SMs");
  if (count < 2) return;
  try {
    partition(count);
    try_out();
    look_at_sms();
  } catch (const SystemError& error) {
    problem_ = error.what();
    clear();
  }
}

GpuPartitions::~GpuPartitions() {
  try {
    use_gpu(gpu_);
    clear();
  } catch (const SystemError&) {  // the GPU is gone; so are they
  }
}

void GpuPartitions::partition(int count) {
  CUdevice device = 0;
  CUdevResource all{};
  CUdevResource left{};
  check(driver().device_get(&device, gpu_), "find the GPU");
  check(driver().device_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "list the SMs");
  const int unit = static_cast<int>(all.sm.smCoscheduledAlignment);
  const int minimum = static_cast<int>(all.sm.minSmPartitionSize);
  const int total = static_cast<int>(all.sm.smCount);
  // The SMs of a processing cluster stay together, so fewer groups may come than division says.
  for (int each = partition_sms(total, count, minimum, unit); each > 0;
       each = partition_sms((each - 1) * count, count, minimum, unit)) {
    std::vector<CUdevResource> parts(static_cast<std::size_t>(count));
    auto made = static_cast<unsigned>(count);
    check(driver().split_by_count(parts.data(), &made, &all, &left, 0, static_cast<unsigned>(each)),
          "split the SMs");
    if (made < static_cast<unsigned>(count)) continue;
    for (CUdevResource& part : parts) contexts_.push_back(make_context(part));
    sms_each_ = static_cast<int>(parts[0].sm.smCount);
    sms_left_ = static_cast<int>(left.sm.smCount);
    break;
  }
  if (contexts_.empty())
    throw SystemError(fmt::format("{} SMs do not make {} partitions", total, count));
  try {
    if (sms_left_ > 0) left_over_ = make_context(left);
  } catch (const SystemError&) {
    left_over_ = nullptr;  // what is left over need not work as a partition
  }
}

CUgreenCtx GpuPartitions::make_context(CUdevResource& sms) const {
  CUdevice device = 0;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx context = nullptr;
  check(driver().device_get(&device, gpu_), "find the GPU");
  check(driver().describe_resource(&description, &sms, 1), "describe a partition");
  check(driver().green_create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
        "create a green context");
  return context;
}

cudaStream_t GpuPartitions::make_stream_in(CUgreenCtx context, bool urgent) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "read the stream priorities");
  const int priority = urgent ? greatest : least;
  cudaStream_t stream = nullptr;
  if (context != nullptr) {
    check(driver().green_stream(&stream, context, CU_STREAM_NON_BLOCKING, priority),
          "create a stream of a partition");
  } else {
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "create a stream");
  }
  streams_.push_back(stream);
  return stream;
}

cudaStream_t GpuPartitions::make_stream(int partition, bool urgent) {
  use_gpu(gpu_);
  const auto p = static_cast<std::size_t>(partition);
  return make_stream_in(p < contexts_.size() ? contexts_[p] : nullptr, urgent);
}

cudaStream_t GpuPartitions::make_waiting_stream(int partition) {
  use_gpu(gpu_);
  return left_over_ != nullptr ? make_stream_in(left_over_, true) : make_stream(partition, true);
}

/// Events of the runtime on streams of green contexts: recorded, waited for and compared across
/// partitions, as a run does.
void GpuPartitions::try_out() {
  cudaEvent_t first = nullptr;
  cudaEvent_t second = nullptr;
  const cudaStream_t one = make_stream(0, false);
  const cudaStream_t other = make_waiting_stream(1);
  check(cudaEventCreate(&first), "create an event");
  check(cudaEventCreate(&second), "create an event");
  check(cudaEventRecord(first, one), "record an event on a partition");
  check(cudaStreamWaitEvent(other, first, 0), "wait for another partition");
  check(cudaEventRecord(second, other), "record an event on a partition");
  check(cudaEventSynchronize(second), "run on a partition");
  float distance_ms = 0;
  check(cudaEventElapsedTime(&distance_ms, first, second), "compare partitions' times");
  cudaEventDestroy(first);
  cudaEventDestroy(second);
  // They would take hardware queues from the streams of the run.
  for (cudaStream_t stream : streams_) check(cudaStreamDestroy(stream), "destroy a stream");
  streams_.clear();
}

/// A split is a request: what kernels say of the SMs they run on is the proof.
void GpuPartitions::look_at_sms() {
  const int blocks = 4 * sms_total_;
  const auto bytes = static_cast<std::size_t>(blocks) * sizeof(unsigned);
  std::vector<unsigned> numbers(static_cast<std::size_t>(blocks));
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocate room for SM numbers");
  std::set<unsigned> taken;
  for (std::size_t p = 0; p < contexts_.size(); ++p) {
    const cudaStream_t stream = make_stream(static_cast<int>(p), false);
    launch_sm_numbers(static_cast<unsigned*>(memory), blocks, stream);
    check(cudaMemcpyAsync(numbers.data(), memory, bytes, cudaMemcpyDeviceToHost, stream),
          "read SM numbers");
    check(cudaStreamSynchronize(stream), "run on a partition");
    const std::set<unsigned> seen(numbers.begin(), numbers.end());
    if (static_cast<int>(seen.size()) > sms_each_ ||
        std::ranges::any_of(seen, [&](unsigned sm) { return taken.contains(sm); }))
      throw SystemError(fmt::format(
          "partition {} of {} SMs ran on {} SMs, some of them another partition's or not its own",
          p, sms_each_, seen.size()));
    taken.insert(seen.begin(), seen.end());
    seen_sms_.push_back(seen);
    check(cudaStreamDestroy(stream), "destroy a stream");
    streams_.pop_back();
  }
  cudaFree(memory);
}

int GpuPartitions::sms(int partition) const {
  return static_cast<std::size_t>(partition) < contexts_.size() ? sms_each_ : 0;
}

bool GpuPartitions::idle() const { return std::ranges::all_of(streams_, is_idle); }

void GpuPartitions::abandon() {
  seen_sms_.clear();
  streams_.clear();
  contexts_.clear();
  left_over_ = nullptr;
}

void GpuPartitions::clear() {
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  for (CUgreenCtx context : contexts_) driver().green_destroy(context);
  if (left_over_ != nullptr) driver().green_destroy(left_over_);
  abandon();
}

std::string GpuPartitions::describe() const {
  if (contexts_.empty())
    return fmt::format("all {} SMs{}", sms_total_, count_ > 1 ? " shared" : "");
  return fmt::format("{} x {} of {} SMs, {} left", contexts_.size(), sms_each_, sms_total_,
                     sms_left_);
}

namespace {

/// "0-31" or "0-15 64-79".
std::string ranges_of(const std::set<unsigned>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const unsigned first = *at;
    unsigned last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", first, last);
  }
  return text;
}

}  // namespace

std::string GpuPartitions::describe_sms() const {
  std::string text;
  for (const auto& seen : seen_sms_) text += (text.empty() ? "" : ", ") + ranges_of(seen);
  return text;
}

}  // namespace penstock::cuda
