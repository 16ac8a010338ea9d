// SPDX-License-Identifier: Apache-2.0
// The wire between two processes: one gloo connection per channel and direction of training.
//
// A message is the payload and its header in one piece. gloo itself is a rendezvous: bytes flow
// when the receive has been posted, so receivers post ahead, and sending is eager in effect.
// What gloo 0.5 does not do, this does: a send or receive that has begun when its peer dies never
// ends there, and a wait that times out breaks the connection. So each end has a receive that never
// completes, watched by a thread: when it fails the peer is gone, and every wait is aborted.
#pragma once

#include "hw/host/gloo_group.hpp"
#include "hw/host/wire.hpp"
#include "hw/run_control.hpp"

#include <memory>

namespace penstock {

/// The end of a channel on this process; `peer` is the rank of the other. Both ranks open their
/// ends of all channels in the same order: opening waits for the other end. When the wires go, no
/// message may be under way (a barrier before); `control` and `group` must outlive them.
std::unique_ptr<WireSender> gloo_sender(GlooGroup& group, int peer, const WireSettings& settings,
                                        RunControl& control);
std::unique_ptr<WireReceiver> gloo_receiver(GlooGroup& group, int peer,
                                            const WireSettings& settings, RunControl& control);

}  // namespace penstock
