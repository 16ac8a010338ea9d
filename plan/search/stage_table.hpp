// SPDX-License-Identifier: Apache-2.0
// Lower bounds on what a run of consecutive layers costs as a stage: the numbers that bounds are
// made of.
//
// Times are those of a device as fast as any of the cluster in everything (made up where its groups
// are not alike), with the exchanges of tensor ranks on links of their own inside a node, where all
// nodes are alike; bytes are what a device holds in any case.
// Every number is a lower bound on that of the same run of layers in any scenario of the problem. A
// run of layers never takes less than its parts' union would: times are maxima of sums over layers,
// so part(i, a).forward_s + part(i + a, b).forward_s >= part(i, a + b).forward_s.
#pragma once

#include "plan/search/candidate.hpp"

#include <map>
#include <memory>
#include <vector>

namespace penstock {

struct StagePart {
  double forward_s = 0;
  double backward_s = 0;  ///< B, or I and W, whichever is less
  double input_s = 0;     ///< the part of it until the gradient of the input is there
  double saving_s = 0;    ///< the time that a pair of F and B may save
  double step_s = 0;
  double reduced_bytes = 0;
  double static_bytes = 0;        ///< weights, gradients, optimizer
  double activation_bytes = 0;    ///< what is kept of a microbatch from F until I or B
  double weight_input_bytes = 0;  ///< the part of these that is kept until W
  double workspace_bytes = 0;     ///< what is in use while F runs
  double output_bytes = 0;        ///< the size of a message

  double work_s() const { return forward_s + backward_s - saving_s; }
  /// Sets every number to the lower of the two.
  void take_less(const StagePart& other);
};

class StageTable {
 public:
  /// What the costs depend on.
  struct Key {
    int tensor = 1;
    int context = 1;
    int shards = 1;
    Sharded sharded = Sharded::none;
    Gathering gathering = Gathering::after_step;
    bool sequence_parallel = false;
    std::int64_t microbatch_size = 1;
    Recomputation recompute = Recompute::none;
    int expert = 1;          ///< GPUs that divide the experts of a layer
    int expert_sharers = 1;  ///< GPUs that have the same experts
    bool pairs = true;       ///< a pair of F and B may hide what goes to experts

    auto operator<=>(const Key&) const = default;
  };

  /// `tokens`: least price of an all-to-all with experts, where a pass waits for it; none: 0.
  StageTable(const Problem& problem, const Key& key, const CollectivePrice* tokens = nullptr);

  const Key& key() const { return key_; }
  /// Returns the costs of layers [first, first + count). Requires count >= 1.
  const StagePart& part(int first, int count);
  /// Returns a lower bound for any `count` layers of a transformer: the costs of layers in the
  /// middle, which have neither the embedding nor the LM head, where there are as many.
  StagePart lightest(int count);

 private:
  StagePart make(int first, int count);
  Sharding sharding() const;
  StagePart part_of(const StageCosts& costs) const;
  void set_profiled(StagePart& part, const std::vector<int>& layers, std::size_t at) const;
  StageCosts costs(int first, int count);
  void read_profile_use();

  const Problem& problem_;
  Key key_;
  int layers_;
  bool each_first_;  // whether runs of as many layers differ by where they begin
  DeviceSpec device_;
  StackSpec stack_;
  const CollectivePrice* tokens_;
  ByCollective<CollectivePrice> prices_{};  // among the tensor ranks
  double shard_s_per_byte_ = 0;             // at least, of what is gathered or reduced within ops
  PipedreamUse use_;                        // of a profile
  std::unique_ptr<StageCoster> coster_;
  std::vector<std::unique_ptr<StagePart>> parts_;  // those that were asked for
};

}  // namespace penstock
