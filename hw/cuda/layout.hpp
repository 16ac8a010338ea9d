// SPDX-License-Identifier: Apache-2.0
// Which GPU and which SM partition a pipeline device gets, and how many streams: plain arithmetic.
//
// One process spreads its devices over the GPUs it sees; several devices on one GPU are partitions
// of its SMs (green contexts). Compute capability 9.0 splits in multiples of 8 SMs, so 132 SMs give
// 2 x 64, 4 x 32, 8 x 16, and 4 are left (CUDA Programming Guide 4.6, table 14). A GPU has 32
// hardware queues; more streams than that share them and would wait for each other.
#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace penstock::cuda {

struct GpuPlace {
  int gpu = 0;
  int partition = 0;
  bool operator==(const GpuPlace&) const = default;
};

/// Places for `devices` devices of one process, consecutive ones together. `partitions` per GPU;
/// 0: as many as needed. With several processes each uses the one GPU `local_rank` names.
inline std::vector<GpuPlace> place_devices(int devices, int gpus, int partitions, int processes,
                                           int local_rank) {
  const int usable = processes > 1 ? 1 : gpus;
  const int spread = std::min(usable, std::max(devices, 1));
  const int each = partitions > 0 ? partitions : (devices + spread - 1) / spread;
  if (each * usable < devices) {
    throw InputError("--partitions", std::to_string(usable) + " GPU(s) of " + std::to_string(each) +
                                         " partition(s) hold " + std::to_string(each * usable) +
                                         " devices; this process runs " + std::to_string(devices) +
                                         " (leave it out for as many as needed)");
  }
  const int first = processes > 1 ? local_rank % gpus : 0;
  std::vector<GpuPlace> places;
  for (int d = 0; d < devices; ++d) places.push_back({first + d / each, d % each});
  return places;
}

/// SMs to ask for per partition: the largest multiple of `alignment` that fits `count` times, and
/// not less than `minimum`; 0: so many do not fit.
inline int partition_sms(int total, int count, int minimum, int alignment) {
  const int unit = std::max(alignment, 1);
  const int size = total / count / unit * unit;
  return size >= std::max(minimum, 1) ? size : 0;
}

inline constexpr int kHardwareQueues = 32;  ///< CUDA_DEVICE_MAX_CONNECTIONS at most

/// How the ends of a device's channels share streams.
enum class StreamSharing {
  none,     ///< one each
  sending,  ///< the sending ends share one: they do little but wait
  all,      ///< all ends share one
};

/// The least sharing with which the devices of one GPU need at most kHardwareQueues streams.
/// `sending` and `receiving`: ends per device.
inline StreamSharing share_streams(const std::vector<int>& sending,
                                   const std::vector<int>& receiving) {
  int separate = 0;
  int shared = 0;
  for (std::size_t d = 0; d < sending.size(); ++d) {
    separate += 1 + sending[d] + receiving[d];
    shared += 1 + std::min(sending[d], 1) + receiving[d];
  }
  if (separate <= kHardwareQueues) return StreamSharing::none;
  return shared <= kHardwareQueues ? StreamSharing::sending : StreamSharing::all;
}

/// Returns the round in which the two processes of each channel get their communicator, so that a
/// process is in one of them at a time: each round is one ncclCommSplit of all processes, which is
/// as slow as the slowest of them. At most one less than twice the channels of a process.
inline std::vector<int> splitting_rounds(const std::vector<std::pair<int, int>>& channels) {
  std::map<int, std::set<int>> taken;  // by process
  std::vector<int> rounds;
  for (const auto& [source, destination] : channels) {
    int round = 0;
    while (taken[source].contains(round) || taken[destination].contains(round)) ++round;
    taken[source].insert(round);
    taken[destination].insert(round);
    rounds.push_back(round);
  }
  return rounds;
}

/// The largest power of two up to 256 that divides the address of a tensor: blocks are aligned to
/// 256 bytes, so it follows from the offset alone and is the same in every run.
constexpr std::int64_t alignment_of(std::int64_t offset_bytes) {
  std::int64_t alignment = 256;
  while (offset_bytes % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace penstock::cuda
