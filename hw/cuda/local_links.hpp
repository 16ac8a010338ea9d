// SPDX-License-Identifier: Apache-2.0
// Channels between two devices of one process.
//   d2d     the receiver pulls: a copy on the receiving end's stream after the sender's event,
//           between GPUs as a peer copy
//   paced   d2d that lasts at least the channel's latency + bytes / bandwidth; the next message
//           follows after that, so latency occupies this link
//   pinned  through host memory: a ring of pinned slots, filled on the sending end's stream and
//           drained on the receiving end's, so that both ways of the bus are really used
// A queue goes on when the message has been taken, so the block may be released on it. A receive
// names its posting event (coupled transfers); the message leaves when both ends are there.
#pragma once

#include "hw/cuda/device.hpp"
#include "hw/cuda/mailbox.hpp"
#include "hw/link.hpp"
#include "hw/run_plan.hpp"

namespace penstock::cuda {

enum class LocalLink : std::uint8_t { d2d, pinned, paced };
/// "" is d2d. Throws InputError.
LocalLink parse_local_link(const std::string& name);

struct LocalEnds {
  std::unique_ptr<SendingEnd> sending;
  std::unique_ptr<ReceivingEnd> receiving;
};

/// A device's end of a channel and the stream that is its queue.
struct EndPlace {
  CudaDevice& device;
  cudaStream_t stream;
};

LocalEnds connect_local(LocalLink link, const Channel& channel, bool coupled, EndPlace source,
                        EndPlace destination);

/// Throws SystemError unless what arrives is what the receiver posted for.
void check_message(const Channel& channel, const Op& sent, std::int64_t sent_bytes,
                   const Op& expected, std::int64_t expected_bytes);

}  // namespace penstock::cuda
