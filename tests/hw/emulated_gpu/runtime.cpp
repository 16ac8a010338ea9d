// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime and, by its entry points, its driver, on the emulated GPU: the functions that the
// backend calls. Arguments a real one refuses are refused with its error.
#include "tests/hw/emulated_gpu/gpu.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace penstock::emulated;

struct CUevent_st {
  int gpu;
  std::mutex mutex;
  std::shared_ptr<Moment> latest;  ///< of the last time it was recorded
};

struct CUmemPoolHandle_st {
  int gpu;
  std::atomic<std::int64_t> used{0}, most{0};
};

struct CUdevResourceDesc_st {
  unsigned first_sm, sms;
};

struct CUgreenCtx_st {
  int gpu;
  unsigned first_sm, sms;
};

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::chrono::milliseconds kLook{20};  // between looks at whether the GPU has failed
constexpr unsigned kSms = 132, kSmUnit = 8;     // of an H200

bool set_to(const char* name, const char* value) {
  const char* text = std::getenv(name);
  return text != nullptr && std::strcmp(text, value) == 0;
}

thread_local int t_gpu = 0;
thread_local cudaError_t t_error = cudaSuccess;

/// For cudaGetLastError().
cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) t_error = error;
  return error;
}

// --- memory

struct Allocation {
  std::int64_t bytes;
  int gpu;
  cudaMemPool_t pool;  ///< null: cudaMalloc
};

struct Memory {
  std::mutex mutex;
  std::map<void*, Allocation> live;
  std::map<int, std::int64_t> taken;  // per GPU
};
Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

std::int64_t capacity() {
  static const char* text = std::getenv("PENSTOCK_EMULATED_BYTES");
  static const std::int64_t bytes = text ? std::strtoll(text, nullptr, 10) : std::int64_t{8} << 30;
  return bytes;
}

std::int64_t rounded(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment);
}

/// Null: there is not enough.
void* take(std::size_t asked, int gpu, cudaMemPool_t pool) {
  const std::int64_t bytes = rounded(std::max<std::size_t>(asked, 1));
  const std::lock_guard lock(memory().mutex);
  std::int64_t& taken = memory().taken[gpu];
  if (bytes > capacity() - taken) return nullptr;
  // As long as asked for, so that the address sanitizer sees the first byte beyond.
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, std::max<std::size_t>(asked, 1)) != 0) return nullptr;
  taken += bytes;
  memory().live[data] = {bytes, gpu, pool};
  return data;
}

/// Forgets it; false: nobody has it.
bool give_back(void* data, Allocation& found) {
  const std::lock_guard lock(memory().mutex);
  const auto at = memory().live.find(data);
  if (at == memory().live.end()) return false;
  found = at->second;
  memory().taken[found.gpu] -= found.bytes;
  memory().live.erase(at);
  return true;
}

/// Contents of new memory: not-a-numbers, in bf16 and in fp32.
void spoil(void* data, std::size_t bytes) { std::memset(data, 0xff, bytes); }

// --- streams

struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> live;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

bool known(cudaStream_t stream) {
  const std::lock_guard lock(streams().mutex);
  return streams().live.contains(stream);
}

cudaError_t open_stream(int gpu, cudaStream_t* stream, unsigned first_sm = 0, unsigned sms = kSms) {
  const cudaError_t made = make_stream(gpu, first_sm, sms, stream);
  const std::lock_guard lock(streams().mutex);
  if (made == cudaSuccess) streams().live.insert(*stream);
  return made;
}

cudaError_t issue(cudaStream_t stream, Work work) {
  if (!known(stream)) return said(cudaErrorInvalidResourceHandle);
  return said(enqueue(stream, std::move(work)));
}

/// Waits for all that was issued to a GPU, as freeing memory does.
void wait_for(int gpu) {
  std::set<std::shared_ptr<Progress>> all;
  {
    const std::lock_guard lock(streams().mutex);
    for (const auto stream : streams().live)
      if (stream->gpu == gpu) all.insert(stream->progress);
  }
  for (const auto& progress : all) progress->wait();
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  return issue(stream, [=] { std::memcpy(to, from, bytes); });
}

}  // namespace

int penstock::emulated::current_gpu() { return t_gpu; }

void penstock::emulated::load_code() { wait_for(t_gpu); }

namespace {

/// The GPUs that CUDA_VISIBLE_DEVICES names.
std::vector<int> visible() {
  std::vector<int> all;
  if (const char* text = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream numbers(text);
    for (std::string number; std::getline(numbers, number, ',');) all.push_back(std::stoi(number));
    return all;
  }
  for (int gpu = 0; gpu < gpus(); ++gpu) all.push_back(gpu);
  return all;
}

}  // namespace

// --- devices -------------------------------------------------------------------------------------

extern "C" cudaError_t cudaGetLastError() {
  const cudaError_t last = failed(t_gpu) ? cudaErrorLaunchFailure : t_error;
  t_error = cudaSuccess;
  return last;
}

extern "C" const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string text;
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorLaunchFailure: return "unspecified launch failure (an emulated fault)";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    default: return (text = "error " + std::to_string(error)).c_str();
  }
}

extern "C" cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

extern "C" cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

extern "C" cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(visible().size());
  return said(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

extern "C" cudaError_t cudaSetDevice(int gpu) {
  if (gpu < 0 || gpu >= static_cast<int>(visible().size())) return said(cudaErrorInvalidDevice);
  t_gpu = gpu;
  return cudaSuccess;
}

extern "C" cudaError_t cudaGetDevice(int* gpu) {
  *gpu = t_gpu;
  return cudaSuccess;
}

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "GPU emulated by threads");
  properties->multiProcessorCount = kSms;
  properties->totalGlobalMem = static_cast<std::size_t>(capacity());
  properties->major = 9;
  return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: return *value = kSms, cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported: return *value = 1, cudaSuccess;
    default: return said(cudaErrorInvalidValue);
  }
}

extern "C" cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int gpu) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                visible().at(static_cast<std::size_t>(gpu)) + 1);
  return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceCanAccessPeer(int* can, int gpu, int peer) {
  *can = gpu != peer ? 1 : 0;
  return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  static auto* mutex = new std::mutex;
  static auto* enabled = new std::set<std::pair<int, int>>;
  const std::lock_guard lock(*mutex);
  if (peer == t_gpu) return said(cudaErrorInvalidDevice);
  const bool added = enabled->insert({t_gpu, peer}).second;
  return said(added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

// --- streams -------------------------------------------------------------------------------------

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return open_stream(t_gpu, stream);
}

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return open_stream(t_gpu, stream);
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(streams().mutex);
  if (streams().live.erase(stream) == 0) return said(cudaErrorInvalidResourceHandle);
  delete stream;
  return cudaSuccess;
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!known(stream)) return said(cudaErrorInvalidResourceHandle);
  if (failed(stream->gpu)) return said(cudaErrorLaunchFailure);
  return said(stream->progress->idle() ? cudaSuccess : cudaErrorNotReady);
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!known(stream)) return said(cudaErrorInvalidResourceHandle);
  if (!failed(stream->gpu)) stream->progress->wait();
  return said(failed(stream->gpu) ? cudaErrorLaunchFailure : cudaSuccess);
}

/// Kernels come this way, too, so the stream must be one of the current GPU.
extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (!known(stream) || stream->gpu != t_gpu) return said(cudaErrorInvalidResourceHandle);
  return issue(stream, [=] { function(data); });
}

// --- events --------------------------------------------------------------------------------------

extern "C" cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st{t_gpu, {}, nullptr};
  return cudaSuccess;
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!known(stream) || stream->gpu != event->gpu) return said(cudaErrorInvalidResourceHandle);
  const auto moment = std::make_shared<Moment>();
  {
    const std::lock_guard lock(event->mutex);
    event->latest = moment;
  }
  return issue(stream, [moment] {
    const std::lock_guard lock(moment->mutex);
    moment->time_ns = now_ns();
    moment->over = true;
    moment->came.notify_all();
  });
}

namespace {

std::shared_ptr<Moment> moment_of(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->latest;
}

bool over(Moment& moment) {
  const std::lock_guard lock(moment.mutex);
  return moment.over;
}

/// Until it is over, or can no longer come.
cudaError_t wait(Moment& moment, int gpu) {
  std::unique_lock lock(moment.mutex);
  while (!moment.came.wait_for(lock, kLook, [&] { return moment.over; })) {
    if (failed(gpu)) return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

}  // namespace

/// An event that was never recorded is not waited for.
extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto moment = moment_of(event);
  if (moment == nullptr) return cudaSuccess;
  return issue(stream, [moment, gpu = event->gpu] { wait(*moment, gpu); });
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto moment = moment_of(event);
  if (moment == nullptr || over(*moment)) return cudaSuccess;
  return said(failed(event->gpu) ? cudaErrorLaunchFailure : cudaErrorNotReady);
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto moment = moment_of(event);
  return moment == nullptr ? cudaSuccess : said(wait(*moment, event->gpu));
}

extern "C" cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const auto first = moment_of(start);
  const auto last = moment_of(end);
  if (first == nullptr || last == nullptr || start->gpu != end->gpu)
    return said(cudaErrorInvalidResourceHandle);
  if (!over(*first) || !over(*last)) return said(cudaErrorNotReady);
  *ms = static_cast<float>(static_cast<double>(last->time_ns - first->time_ns) * 1e-6);
  return cudaSuccess;
}

// --- memory --------------------------------------------------------------------------------------

extern "C" cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (failed(t_gpu)) return said(cudaErrorLaunchFailure);
  *data = take(bytes, t_gpu, nullptr);
  if (*data == nullptr) return said(cudaErrorMemoryAllocation);
  spoil(*data, bytes);
  return cudaSuccess;
}

extern "C" cudaError_t cudaFree(void* data) {
  Allocation found{};
  if (data == nullptr) return cudaSuccess;
  wait_for(t_gpu);
  if (!give_back(data, found)) return said(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

/// "Page-locked host memory allocation" is among what makes streams wait for each other (CUDA
/// Programming Guide, "Implicit Synchronization").
extern "C" cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  wait_for(t_gpu);
  return said(posix_memalign(data, 4096, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

extern "C" cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  const std::lock_guard lock(memory().mutex);
  *all = static_cast<std::size_t>(capacity());
  *free = *all - static_cast<std::size_t>(memory().taken[t_gpu]);
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                       cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}

extern "C" cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                           cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}

extern "C" cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes,
                                       cudaStream_t stream) {
  return issue(stream, [=] { std::memset(to, value, bytes); });
}

extern "C" cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  *pool = new CUmemPoolHandle_st{properties->location.id};
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                               void* value) {
  if (attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh) {
    if (*static_cast<std::uint64_t*>(value) != 0) return said(cudaErrorInvalidValue);
    pool->most = pool->used.load();
  }
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                               void* value) {
  // A pool that keeps everything has as many blocks of 2 MiB as it ever needed.
  constexpr std::uint64_t kBlock = 2 << 20;
  const auto most = static_cast<std::uint64_t>(pool->most.load());
  if (attribute == cudaMemPoolAttrUsedMemCurrent) {
    *static_cast<std::uint64_t*>(value) = static_cast<std::uint64_t>(pool->used.load());
    return cudaSuccess;
  }
  const bool reserved =
      attribute == cudaMemPoolAttrReservedMemHigh || attribute == cudaMemPoolAttrReservedMemCurrent;
  if (!reserved && attribute != cudaMemPoolAttrUsedMemHigh) return said(cudaErrorInvalidValue);
  *static_cast<std::uint64_t*>(value) = reserved ? (most + kBlock - 1) / kBlock * kBlock : most;
  return cudaSuccess;
}

/// Nothing is reserved that is not used.
extern "C" cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

extern "C" cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
  return cudaSuccess;
}

extern "C" cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t bytes, cudaMemPool_t pool,
                                               cudaStream_t stream) {
  *data = take(bytes, pool->gpu, pool);
  if (*data == nullptr) return said(cudaErrorMemoryAllocation);
  const std::int64_t used = pool->used += rounded(bytes);
  std::int64_t most = pool->most;
  while (used > most && !pool->most.compare_exchange_weak(most, used)) {
  }
  return issue(stream, [to = *data, bytes] { spoil(to, bytes); });
}

extern "C" cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  Allocation found{};
  if (!give_back(data, found)) return said(cudaErrorInvalidValue);
  if (found.pool != nullptr) found.pool->used -= found.bytes;
  return issue(stream, [data] { std::free(data); });
}

// --- the driver's green contexts -----------------------------------------------------------------

namespace {

CUresult device_get(CUdevice* device, int gpu) {
  *device = gpu;
  return CUDA_SUCCESS;
}

/// Where its SMs begin is kept where nobody looks.
CUdevResource sm_resource(unsigned sms, unsigned first_sm) {
  CUdevResource resource{};
  std::memcpy(resource._internal_padding, &first_sm, sizeof first_sm);
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm.smCount = sms;
  resource.sm.minSmPartitionSize = kSmUnit;
  resource.sm.smCoscheduledAlignment = kSmUnit;
  return resource;
}

CUresult device_resource(CUdevice, CUdevResource* resource, CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = sm_resource(kSms, 0);
  return CUDA_SUCCESS;
}

CUresult split_by_count(CUdevResource* parts, unsigned* made, const CUdevResource* all,
                        CUdevResource* left, unsigned, unsigned asked) {
  const unsigned each = (std::max(asked, 1U) + kSmUnit - 1) / kSmUnit * kSmUnit;
  const bool can = !set_to("PENSTOCK_EMULATED_SPLIT", "none");
  const bool overlap = set_to("PENSTOCK_EMULATED_SPLIT", "overlap");
  const unsigned fit = can ? all->sm.smCount / each : 0;
  *made = std::min(*made, fit);
  for (unsigned i = 0; i < *made; ++i) parts[i] = sm_resource(each, overlap ? 0 : i * each);
  const unsigned taken = *made * each;
  if (left != nullptr) *left = sm_resource(all->sm.smCount - taken, taken);
  return CUDA_SUCCESS;
}

CUresult describe_resource(CUdevResourceDesc* description, CUdevResource* resource, unsigned) {
  unsigned first_sm = 0;
  std::memcpy(&first_sm, resource->_internal_padding, sizeof first_sm);
  *description = new CUdevResourceDesc_st{first_sm, resource->sm.smCount};
  return CUDA_SUCCESS;
}

CUresult green_create(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device,
                      unsigned) {
  if (description->sms == 0) return CUDA_ERROR_INVALID_VALUE;
  *context = new CUgreenCtx_st{device, description->first_sm, description->sms};
  delete description;
  return CUDA_SUCCESS;
}

CUresult green_destroy(CUgreenCtx context) {
  delete context;
  return CUDA_SUCCESS;
}

CUresult green_stream(CUstream* stream, CUgreenCtx context, unsigned flags, int) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return open_stream(context->gpu, stream, context->first_sm, context->sms) == cudaSuccess
             ? CUDA_SUCCESS
             : CUDA_ERROR_UNKNOWN;
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  static const std::map<std::string, void*> all{
      {"cuDeviceGet", reinterpret_cast<void*>(device_get)},
      {"cuDeviceGetDevResource", reinterpret_cast<void*>(device_resource)},
      {"cuDevSmResourceSplitByCount", reinterpret_cast<void*>(split_by_count)},
      {"cuDevResourceGenerateDesc", reinterpret_cast<void*>(describe_resource)},
      {"cuGreenCtxCreate", reinterpret_cast<void*>(green_create)},
      {"cuGreenCtxDestroy", reinterpret_cast<void*>(green_destroy)},
      {"cuGreenCtxStreamCreate", reinterpret_cast<void*>(green_stream)}};
  const auto at = all.find(name);
  *function = at == all.end() ? nullptr : at->second;
  *found = at == all.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
