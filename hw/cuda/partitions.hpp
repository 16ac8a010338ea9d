// SPDX-License-Identifier: Apache-2.0
// The SMs of one GPU as partitions: green contexts, made through the driver.
//
// A stream made in a green context runs on that partition's SMs whatever context is current, so
// nobody ever makes a green context current (CUDA Programming Guide 4.6). What the split leaves
// over, 4 of 132 SMs, serves kernels that only wait.
#pragma once

#include "hw/cuda/driver.hpp"

#include <set>
#include <vector>

namespace penstock::cuda {

class GpuPartitions {
 public:
  /// One partition is the whole GPU. Where it cannot be split, all share it; see problem().
  GpuPartitions(int gpu, int count);
  /// Streams first: those of a destroyed green context cannot be destroyed any more.
  ~GpuPartitions();
  GpuPartitions(const GpuPartitions&) = delete;
  GpuPartitions& operator=(const GpuPartitions&) = delete;

  /// A new stream on a partition's SMs. `urgent`: its blocks go first.
  cudaStream_t make_stream(int partition, bool urgent);
  /// A new stream on the SMs left over, or else on the partition's.
  cudaStream_t make_waiting_stream(int partition);
  /// SMs of a partition; 0: it is not confined.
  int sms(int partition) const;
  /// Has everything issued on its streams run?
  bool idle() const;
  /// Its streams and contexts stay: the GPU did not come to rest.
  void abandon();
  /// Kernels that only wait run on SMs of their own.
  bool waits_apart() const { return left_over_ != nullptr; }
  int all_sms() const { return sms_total_; }
  /// "4 x 32 of 132 SMs, 4 left".
  std::string describe() const;
  /// "0-31, 32-63, ...": the SMs on which kernels of each partition did run; empty: there are none.
  std::string describe_sms() const;
  /// Why there are no partitions although some were asked for; empty: there are.
  const std::string& problem() const { return problem_; }

 private:
  void partition(int count);
  CUgreenCtx make_context(CUdevResource& sms) const;
  cudaStream_t make_stream_in(CUgreenCtx context, bool urgent);
  void try_out();
  void look_at_sms();
  void clear();

  int gpu_;
  int count_;
  std::vector<CUgreenCtx> contexts_;
  CUgreenCtx left_over_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<std::set<unsigned>> seen_sms_;  // of each partition
  int sms_each_ = 0, sms_total_ = 0, sms_left_ = 0;
  std::string problem_;
};

}  // namespace penstock::cuda
