// SPDX-License-Identifier: Apache-2.0
// How the GPUs that have the same weights divide them, their gradients and the optimizer's states,
// and when they gather the weights again.
//
//   shard       of n a GPU of a group of N has               who does it
//   none        weights, gradients, states: n                DDP
//   optimizer   states: n/N                                  ZeRO-1, distributed optimizer
//   gradients   states, gradients: n/N                       ZeRO-2
//   weights     all: n/N; weights are gathered where used    ZeRO-3, FSDP
//
// (Rajbhandari et al., "ZeRO", SC'20, section 5; Zhao et al., "PyTorch FSDP", VLDB'23.)
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

enum class Sharded : std::uint8_t { none, optimizer, gradients, weights };
inline constexpr std::string_view kShardedNames[] = {"none", "optimizer", "gradients", "weights"};

/// When the weights are gathered that a step updated in parts, or of which each GPU keeps a part.
enum class Gathering : std::uint8_t {
  after_step,     ///< at once, before the next update begins
  first_forward,  ///< layer by layer in a stage's first forward of an update, and kept until the
                  ///< end
  forward,        ///< in every forward, and kept until its backward (reshard_after_forward: never)
  each_pass,      ///< in every forward and in every backward (reshard_after_forward: always)
};

struct Sharding {
  Sharded what = Sharded::none;
  int group = 1;    ///< GPUs that divide it, N
  int sharers = 1;  ///< GPUs that have the same weights: groups side by side (hybrid sharding)
  Gathering gathering = Gathering::after_step;
  int expert_sharers = 1;  ///< GPUs that have the same routed experts, one group
  /// Units of weights that are gathered ahead of the one that computes, and held; 0: each op waits
  /// for all of its units.
  int lookahead = 1;

  bool operator==(const Sharding&) const = default;
  bool sharded() const { return what != Sharded::none; }
  /// Returns among how many GPUs the optimizer's states are divided.
  int optimizer_shards() const { return sharded() ? group : 1; }
  int expert_shards() const { return sharded() ? expert_sharers : 1; }
  /// Returns whether several groups each divide all of it.
  bool hybrid() const { return what != Sharded::none && group < sharers; }
  /// Returns whether every backward reduces its gradients into parts, instead of an update's last.
  bool reduces_each_backward() const {
    return what == Sharded::gradients ||
           (what == Sharded::weights && gathering != Gathering::first_forward);
  }
  /// Returns whether the gathering after a step is a part of the reduction, which then is an
  /// all-reduce.
  bool gathers_in_reduction() const {
    return what == Sharded::optimizer && gathering == Gathering::after_step && !hybrid();
  }
  /// Returns whether the first forward of an update is not like the others.
  bool gathers_in_first_forward() const {
    return what != Sharded::none && gathering <= Gathering::first_forward &&
           !gathers_in_reduction();
  }
};

/// Returns that of the optimizer's states alone; of one GPU, none.
constexpr Sharding zero_1(int gpus) {
  return {gpus > 1 ? Sharded::optimizer : Sharded::none, gpus, gpus};
}

}  // namespace penstock
