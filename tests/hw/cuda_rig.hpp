// SPDX-License-Identifier: Apache-2.0
// What tests on a GPU share: a fixture that skips where there is none, an open backend, and numbers
// on a device.
#pragma once

#include "hw/backend.hpp"
#include "hw/cuda/module.hpp"
#include "hw/math.hpp"
#include "tests/hw/plan_rig.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace penstock::cuda_test {

inline bool module_built() { return probe_cuda().find("not built in") == std::string::npos; }
inline bool gpu_there() {
  const std::string line = probe_cuda();
  return module_built() && line.find("use --backend host") == std::string::npos &&
         line.find("cannot be loaded") == std::string::npos;
}

/// Two devices and a channel each way.
inline RunPlan two_devices(Transfers transfers = Transfers::overlapped) {
  RunPlan plan;
  plan.program.ops.end_device();
  plan.program.ops.end_device();
  plan.program.transfers = transfers;
  plan.channels = {{0, 1, false, 20e-6, 10e9}, {1, 0, true, 20e-6, 10e9}};
  return plan;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpu_there()) GTEST_SKIP() << probe_cuda();
  }
};

/// Backends of both kinds for one plan.
struct Opened {
  RunPlan plan;
  RunSettings settings;
  RunControl control{30};
  SingleProcess alone;
  std::unique_ptr<Backend> backend;

  Opened(const std::string& kind, RunPlan the_plan, RunSettings the_settings)
      : plan(std::move(the_plan)), settings(std::move(the_settings)) {
    const BackendRequest request{plan, settings, control, alone, {0, 1}};
    backend = kind == "cuda" ? open_cuda_backend(request) : open_host_backend(request);
    backend->start();
  }
};

inline std::vector<float> numbers(std::size_t n, int seed = 0) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(seed));
  return v;
}

inline std::int64_t bytes_of(const std::vector<float>& v) {
  return static_cast<std::int64_t>(v.size() * sizeof(float));
}

inline Tensor uploaded(Device& device, const std::vector<float>& v) {
  const Tensor t{device.allocate(kComputeQueue, bytes_of(v))};
  device.upload(t, v.data(), bytes_of(v));
  return t;
}

inline std::vector<float> downloaded(Device& device, Tensor t, std::size_t n) {
  std::vector<float> v(n);
  device.download(v.data(), t, bytes_of(v));
  return v;
}

}  // namespace penstock::cuda_test
