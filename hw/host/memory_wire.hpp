// SPDX-License-Identifier: Apache-2.0
// The wire between two threads of one process: a queue of messages under a mutex.
//
// A message goes straight into the block the receiver has posted; when there is none yet, it is
// copied aside, so that send() never waits for the receiver.
#pragma once

#include "hw/host/wire.hpp"
#include "hw/run_control.hpp"

#include <memory>

namespace penstock {

struct MemoryWire {
  std::unique_ptr<WireSender> sender;
  std::unique_ptr<WireReceiver> receiver;
};

/// Both ends of a channel; `control` must outlive them.
MemoryWire memory_wire(const WireSettings& settings, RunControl& control);

}  // namespace penstock
