// SPDX-License-Identifier: Apache-2.0
// Channels between processes: NCCL, one communicator of two ranks per channel.
//
// All kernels of a communicator run in the order of their issue, so a posted receive would hold up
// the sends behind it; channels therefore share nothing. Communicators are split off the world's
// and warmed up in the plan's order of channels, the same on all ranks, because NCCL connects on
// first use and may deadlock otherwise. They are non-blocking: every call is polled, and when the
// run stops all of them are aborted (NCCL user guide, "Fault tolerance").
// Beside every message travels the moment it left, on the run's clock.
//
// Not run on more than one GPU yet.
#pragma once

#include "hw/cuda/device.hpp"
#include "hw/cuda/nccl_api.hpp"
#include "hw/group.hpp"
#include "hw/link.hpp"
#include "hw/run_plan.hpp"

namespace penstock::cuda {

/// Thread blocks of a channel's kernel at most. They take SMs from the stage.
inline constexpr int kMostCtas = 4;

/// What a process needs to know about a channel that leaves it.
struct RemoteChannel {
  int number = 0;  ///< in the plan
  Channel channel;
  bool sends = false;        ///< this process has the source
  std::size_t messages = 0;  ///< that go over it, at most
};

/// The communicators of this process. Outlives the ends; its threads are the devices' queues.
class RemoteChannels {
 public:
  virtual ~RemoteChannels() = default;
  /// Exchanges a few bytes on every channel, in the plan's order.
  virtual void warm_up() = 0;
  /// %globaltimer at time 0 of the run; before the first message.
  virtual void set_zero(unsigned long long timer_ns) = 0;
  virtual std::unique_ptr<SendingEnd> make_sending(int channel, CudaDevice& device,
                                                   cudaStream_t stream) = 0;
  virtual std::unique_ptr<ReceivingEnd> make_receiving(int channel, CudaDevice& device,
                                                       cudaStream_t stream) = 0;
  virtual std::string describe() const = 0;
};

/// A channel of the plan between two processes.
struct CrossingChannel {
  int number, source, destination;  ///< of the channel; ranks of the processes
};

/// Meets all processes. `crossing`: all channels between two of them; `mine`: those with an end
/// here. The process's one GPU must be current.
std::shared_ptr<RemoteChannels> connect_remote(int gpu,
                                               const std::vector<CrossingChannel>& crossing,
                                               const std::vector<RemoteChannel>& mine, Group& group,
                                               RunControl& control);

}  // namespace penstock::cuda
