// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/nvml.hpp"

#include "hw/cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace penstock::cuda {
namespace {

constexpr std::chrono::milliseconds kEvery{50};  // NVML itself averages power over about that

/// nvmlClocksEventReasons; those that a busy GPU has without being slowed down are left out.
constexpr std::pair<unsigned long long, const char*> kReasons[] = {
    {0x2, "application clocks"}, {0x4, "software power cap"}, {0x8, "hardware slowdown"},
    {0x10, "sync boost"},        {0x20, "software thermal"},  {0x40, "hardware thermal"},
    {0x80, "power brake"}};

/// "1410 to 1980, median 1965": of samples of one thing.
std::string range_of(std::vector<unsigned> samples, unsigned unit, const char* name) {
  std::ranges::sort(samples);
  return fmt::format("{} to {} {}, median {}", samples.front() / unit, samples.back() / unit, name,
                     samples[samples.size() / 2] / unit);
}

}  // namespace

template <class Function>
Function* Nvml::find(const char* name) const {
  return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
}

Nvml::Nvml(int gpu) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  std::array<char, 64> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), gpu), "identify the GPU");
  auto* init = find<int()>("nvmlInit_v2");
  auto* by_bus = find<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  started_ = init != nullptr && init() == 0;
  if (!started_ || by_bus == nullptr || by_bus(bus.data(), &device_) != 0) device_ = nullptr;
}

Nvml::~Nvml() {
  if (auto* shutdown = started_ ? find<int()>("nvmlShutdown") : nullptr) shutdown();
  if (library_ != nullptr) dlclose(library_);
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  auto* get = find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  return started_ && get != nullptr && get(text.data(), 80) == 0 ? text.data() : "";
}

unsigned Nvml::clock_mhz(const char* get, int clock) const {
  unsigned mhz = 0;
  auto* ask = find<int(void*, int, unsigned*)>(get);
  return there() && ask != nullptr && ask(device_, clock, &mhz) == 0 ? mhz : 0;
}

unsigned Nvml::temperature_c() const {
  unsigned celsius = 0;
  auto* ask = find<int(void*, int, unsigned*)>("nvmlDeviceGetTemperature");
  return there() && ask != nullptr && ask(device_, 0, &celsius) == 0 ? celsius : 0;
}

unsigned Nvml::number(const char* get) const {
  unsigned value = 0;
  auto* ask = find<int(void*, unsigned*)>(get);
  return there() && ask != nullptr && ask(device_, &value) == 0 ? value : 0;
}

unsigned long long Nvml::throttle_reasons() const {
  unsigned long long reasons = 0;
  auto* ask = find<int(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
  return there() && ask != nullptr && ask(device_, &reasons) == 0 ? reasons : 0;
}

ClockWatch::ClockWatch(int gpu) : nvml_(gpu) {
  if (!nvml_.there()) return;
  sample();  // the run may have ended before the thread has begun
  thread_ = std::thread([this] { watch(); });
}

ClockWatch::~ClockWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void ClockWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, kEvery, [&] { return ends_; })) sample();
}

void ClockWatch::sample() {
  sm_mhz_.push_back(nvml_.clock_mhz("nvmlDeviceGetClockInfo", 1));
  memory_mhz_.push_back(nvml_.clock_mhz("nvmlDeviceGetClockInfo", 2));
  power_mw_.push_back(nvml_.power_mw());
  temperature_c_.push_back(nvml_.temperature_c());
  const unsigned long long now = nvml_.throttle_reasons();
  for (const auto& [bit, name] : kReasons) {
    if ((now & bit) != 0) ++reasons_[name];
  }
}

void ClockWatch::describe(Description& description) const {
  const std::lock_guard lock(mutex_);
  if (sm_mhz_.empty()) return;
  description["clocks in the run"] =
      fmt::format("SM {}; memory {}; {} samples", range_of(sm_mhz_, 1, "MHz"),
                  range_of(memory_mhz_, 1, "MHz"), sm_mhz_.size());
  description["power in the run"] = range_of(power_mw_, 1000, "W");
  description["temperature in the run"] = range_of(temperature_c_, 1, "C");
  std::string reasons;
  for (const auto& [name, count] : reasons_)
    reasons += fmt::format("{}{} in {} of {} samples", reasons.empty() ? "" : ", ", name, count,
                           sm_mhz_.size());
  description["slowed down in the run"] = reasons.empty() ? "never" : reasons;
}

}  // namespace penstock::cuda
