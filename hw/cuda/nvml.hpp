// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library, where there is one: clocks, power, and why they are lowered.
//
// Looked up at run time by its documented prototypes; there is no header here. What it does not
// know is empty or 0. A ClockWatch samples during a run, because a GPU at rest says nothing about
// it.
#pragma once

#include "hw/backend.hpp"

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace penstock::cuda {

class Nvml {
 public:
  /// The GPU with this number of CUDA's.
  explicit Nvml(int gpu);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool there() const { return device_ != nullptr; }
  std::string driver_version() const;
  /// `get`: nvmlDeviceGetClockInfo or nvmlDeviceGetMaxClockInfo, `clock`: 1 SM, 2 memory.
  unsigned clock_mhz(const char* get, int clock) const;
  unsigned power_limit_mw() const { return number("nvmlDeviceGetEnforcedPowerLimit"); }
  unsigned power_mw() const { return number("nvmlDeviceGetPowerUsage"); }
  unsigned temperature_c() const;
  /// Bits of nvmlClocksEventReasons.
  unsigned long long throttle_reasons() const;

 private:
  unsigned number(const char* get) const;
  template <class Function>
  Function* find(const char* name) const;

  void* library_;
  void* device_ = nullptr;
  bool started_ = false;
};

class ClockWatch {
 public:
  explicit ClockWatch(int gpu);
  ~ClockWatch();
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;
  /// What was seen so far, as "clocks in the run", "power in the run" ...; nothing without NVML.
  void describe(Description& description) const;

 private:
  void watch();
  void sample();

  Nvml nvml_;
  mutable std::mutex mutex_;
  std::condition_variable over_;
  bool ends_ = false;
  std::vector<unsigned> sm_mhz_, memory_mhz_, power_mw_, temperature_c_;
  std::map<std::string, int> reasons_;  // how often each was seen
  std::thread thread_;
};

}  // namespace penstock::cuda
