// SPDX-License-Identifier: Apache-2.0
// A GPU as the analytic model sees it.
//
// A matrix product of F FLOPs in a layer of hidden size h takes F / (peak * efficiency(h)): the
// efficiency curve is that of whole transformer layers, so their small kernels are included. The
// optimizer step streams its state: bytes / (memory bandwidth * memory efficiency). An op never
// takes less than the host needs to launch its kernels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct KernelTimes;

struct EfficiencyPoint {
  double hidden_size;
  double share_of_peak;

  bool operator==(const EfficiencyPoint&) const = default;
};

/// Follows from the name of its file and the numbers of the device: it tells no devices apart.
struct KernelsOfFile : std::shared_ptr<const KernelTimes> {
  KernelsOfFile() = default;
  KernelsOfFile(std::shared_ptr<const KernelTimes> times) : shared_ptr(std::move(times)) {}
  friend bool operator==(const KernelsOfFile&, const KernelsOfFile&) { return true; }
};

struct DeviceSpec {
  std::string name;
  std::int64_t memory_bytes = 0;    ///< 0: unknown
  std::int64_t reserved_bytes = 0;  ///< CUDA context, libraries, communicators
  double allocator_slack = 0;       ///< share of the rest an allocator cannot use
  double headroom = 0;              ///< share of what is left that a planner keeps free
  double memory_bytes_per_s = 0;
  double memory_efficiency = 0.8;
  std::map<std::string, double>
      peak_flops_per_s;  ///< dense, by number type: fp16, bf16, fp32, tf32, fp8, nvfp4
  /// Shares of these peaks that large products reach, by number type; how fast a narrow type is
  /// beside 16 bits follows from two of them. Of a type without one: as of 16 bits.
  std::map<std::string, double> product_share;
  double launch_s = 0;
  std::vector<EfficiencyPoint> efficiency;  ///< ascending hidden size
  bool efficiency_assumed = false;          ///< no layer was measured on it
  /// Shares of peak of large matrix products and of attention alone, where they were measured;
  /// 0: unknown, and a stack's own are used.
  double matrix_efficiency = 0, attention_efficiency = 0;
  /// The file of measured times of kernels (models/kernels/kernel_times.hpp) by its name; of
  /// another device these are assumed by its peaks; empty: none is near enough.
  std::string kernels;
  /// Holds what that file says, where the stack asks for it (`kernels: measured`).
  KernelsOfFile kernel_times;

  /// Bytes a training job may use, or 0 when unknown:
  /// (memory - reserved) * (1 - slack) * (1 - headroom).
  std::int64_t capacity_bytes() const;
  /// Returns how much longer products of one row of the peaks take than of another; 1 where a peak
  /// is not known.
  double product_ratio(const std::string& type, const std::string& over) const;
  /// Achieved share of peak at a hidden size: linear in its logarithm, flat outside of the curve.
  double efficiency_at(double hidden_size) const;

  bool operator==(const DeviceSpec&) const = default;
};

}  // namespace penstock
