// SPDX-License-Identifier: Apache-2.0
// Reads a schedule from a CSV of torch.distributed.pipelining, and proves that it can run.
//
// Everything that is wrong is reported at once, each with its place: words that are no actions,
// ops that stand twice or are missing, stages that live in two places, orders that a device or a
// channel cannot follow, and what every device is stuck on when the whole never ends.
//
// How a table runs. A device takes its row in order. It stands before a compute action until what
// the action needs is there: F(s,k) needs F(s-1,k), B and I(s,k) need F(s,k) and B or I(s+1,k),
// W(s,k) needs I(s,k). In a table without communication a message is there when its producer has
// run. In one with communication, channels are those of NCCL with a communicator for each direction
// between two devices: a SEND or RECV is issued when the row comes to it, holds nobody, and joins
// the queue of its direction; the k-th SEND of a direction meets the k-th RECV, and the message is
// there when both have been issued.
#pragma once

#include "schedules/formats/torch_table.hpp"

namespace penstock {

/// A schedule of the user's own, proven to run. One batch of `microbatches`.
struct ImportedSchedule {
  TorchTable table;  ///< as in the file, with its bubbles, sends and receives
  OpLists order;     ///< the compute ops; of a pair, the forward first
  Placement placement;
  std::uint32_t depth = 0;   ///< devices
  std::uint32_t chunks = 0;  ///< virtual stages per device, the most of any
  std::uint32_t microbatches = 0;
  bool full_backward = false;   ///< some backwards are B
  bool split_backward = false;  ///< some are I and W
  bool communicates = false;    ///< says when to send and receive
  /// What runs here and may hang elsewhere, one sentence each.
  std::vector<std::string> warnings;

  std::uint32_t stages() const { return static_cast<std::uint32_t>(placement.stages()); }
};

/// Throws InputError with everything that is wrong; `origin` names the file in it.
ImportedSchedule read_torch_csv(std::string_view text, const std::string& origin);

}  // namespace penstock
