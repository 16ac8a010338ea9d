// SPDX-License-Identifier: Apache-2.0
// The weight versions of one stage as buffers.
//
// Version v is made by the v-th optimizer step. A step writes the next version over the newest one
// when no later op of the device's list uses that, else into a buffer whose version has retired;
// only when there is none does it take a new one. So a flush holds 1, PipeDream on stage s its
// delay + 1, 2BW 2 and never 3 (Narayanan et al., ICML'21, section 3.1). A rule whose backward uses
// a blend of versions takes one buffer more. Where ranks divide a stage, each steps its shard and
// keeps its part of what is divided; new weights are whole again when they have been gathered.
// Whoever sizes a device counts all of them from the
// start, and so does the ledger.
#pragma once

#include "hw/accounting.hpp"
#include "hw/backward_weights.hpp"
#include "hw/ledger.hpp"
#include "hw/optimizer_step.hpp"
#include "hw/shards.hpp"

#include <string>

namespace penstock {

class WeightStore {
 public:
  /// `last_use[v]`: position in the device's list of the last op that uses version v; -1: none.
  /// `number`: of the stage in the plan.
  WeightStore(const RunPlan& plan, const Stage& stage, const StageHoldings& bytes, Device& device,
              Ledger& ledger, std::vector<std::int64_t> last_use, std::uint32_t number = 0,
              StageShards shards = {});

  /// Throws InternalBug when the version is not held.
  Tensor version(std::uint32_t version) const;
  /// What a backward uses whose rule says this version; may issue the work that makes it.
  Tensor for_backward(std::uint32_t version);
  const StageShards& shards() const { return shards_; }
  /// The newest version: all of it, or the shard where weights are divided.
  Tensor newest_tensor() const;
  /// Takes a buffer for all weights, where they are divided, to which they can be gathered when the
  /// run has ended.
  Tensor assemble();
  /// Returns the buffer that backwards add to, or the shard of what is reduced.
  Tensor gradients() const { return {gradients_}; }
  /// What the next step uses: the same, or what was set aside.
  Tensor summed() const { return {set_aside_ != nullptr ? set_aside_ : gradients_}; }
  /// Backwards add to a second buffer from now on, while the first one is reduced beside them.
  /// Only where reductions are detached, and after the step of those set aside before.
  void set_aside() { std::swap(gradients_, set_aside_); }
  /// Makes the next version, as the op at `position`; zeroes the gradient.
  void step(std::int64_t position);
  /// The next version, as the op at `position`, is these fp32 weights.
  void take_weights(std::int64_t position, Tensor weights);
  /// Issues what a step, a blend of versions and a sum of gradients do, on scratch memory, and
  /// clears the gradients.
  void warm_up();
  /// fp32 weights of the newest version; waits.
  std::string newest() const;
  int versions_peak() const { return static_cast<int>(versions_.size()); }

 private:
  void warm_up(std::int64_t elements);
  struct Version {
    std::uint32_t number;
    Block* block;
  };
  Block* allocate(std::int64_t bytes);
  void load();
  void issue_step(const StepTensors& t);
  Version& newest_version();
  Version& target(std::int64_t position);

  const RunPlan& plan_;
  const Stage& stage_;
  StageHoldings bytes_;
  Device& device_;
  Ledger& ledger_;
  std::vector<std::int64_t> last_use_;
  std::uint32_t number_;
  StageShards shards_;
  OptimizerState optimizer_;
  Block* assembled_ = nullptr;  // divided weights when the run has ended
  Block* master_ = nullptr;     // fp32 weights that are trained, where they are apart
  Block* gradients_ = nullptr;
  Block* set_aside_ = nullptr;  // null: reductions hold their device
  std::vector<Version> versions_;
  BackwardWeights backward_;
  std::uint32_t made_ = 0;
};

}  // namespace penstock
