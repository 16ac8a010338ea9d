// SPDX-License-Identifier: Apache-2.0
// The parameter server of replicas that wait for no other, in the process of the first of them.
//
// It has the weights and the optimizer's state. A replica that has the gradient of its microbatches
// comes when it likes; those that come at once take turns. It makes the update with its gradient,
// takes the weights as they are then, and goes on. Replicas of other processes send the gradient
// and get the weights as messages; their updates are made on queues of the server's own, so that
// ops of the replica beside it hold up nobody. Which weights an update was made with depends on
// who came when, and is written down: with that order a sequential run ends with the same bits.
#pragma once

#include "hw/backend.hpp"
#include "hw/weights.hpp"

#include <mutex>

namespace penstock {

class ParameterServer {
 public:
  /// Of a plan with one stage. `device`: where its memory is; every device of the process reaches
  /// it. `own`: where it works for other processes.
  ParameterServer(const RunPlan& plan, const Stage& stage, Device& device, Device& own);

  /// As the op at `position` of a replica: an update with the gradient in `own`, and the weights
  /// after it to `own`. Waits until `device`, the replica's, has done both.
  void exchange(std::uint32_t replica, std::int64_t position, WeightStore& own, Device& device);

  /// Answers these devices of other processes until they have made all their updates. Throws what
  /// stopped the run.
  void serve(const std::vector<int>& devices, Backend& backend, const RunControl& control);

  /// Those made so far, in their order.
  std::vector<LoneUpdate> updates() const;
  /// fp32; waits.
  std::string weights() const;

 private:
  struct Remote;
  void post(Remote& remote);
  void answer(Remote& remote);
  void update(std::uint32_t replica, Tensor gradient, Device& device);

  const RunPlan& plan_;
  std::int64_t parameters_;
  Device &device_, &own_;
  mutable std::mutex mutex_;
  Block* weights_ = nullptr;
  OptimizerState optimizer_;
  std::vector<LoneUpdate> updates_;
  std::vector<std::uint32_t> pulled_;  // by replica: the version that it has
};

}  // namespace penstock
