// SPDX-License-Identifier: Apache-2.0
// How the processes of one run find each other, whoever has started them.
//
// Who is who says base/launched_as.hpp; where they meet comes from the environment, too:
//   PENSTOCK_RENDEZVOUS       a folder all of them see; rank 0 leaves its address there
//   MASTER_ADDR, MASTER_PORT  torchrun; else Slurm's first node, or this machine (mpirun on one
//                             node), or the one where mpirun runs; port 29500 unless given. Up to
//                             three ports after it are tried, because torchrun's agent may listen
//                             on MASTER_PORT itself.
// Ranks prove to each other that they know the secret of the run: PENSTOCK_SECRET, which must be
// given where they meet over a network, or what rank 0 leaves in the folder (for its owner's eyes).
// PENSTOCK_INTERFACE or PENSTOCK_HOSTNAME say on which address this process is to be reached;
// otherwise it is the one on the way to rank 0. IPv4.
#pragma once

#include "base/launched_as.hpp"
#include "hw/host/rendezvous.hpp"

#include <memory>
#include <optional>
#include <string>

namespace penstock {

struct GroupSettings {
  RunIdentity identity;
  std::string folder;          ///< meet there, or else at
  std::string master_address;  ///< a name or an IPv4 address
  std::vector<int> ports;      ///< the first free one; used by rank 0, tried by the others
  std::string hostname;        ///< on which this process is to be reached; may be empty
  double deadline_s = 60;      ///< for a rank to come
};

/// How this process is to find the others; none when it was not started as one of several.
/// Throws InputError naming the variable that is wrong or missing.
std::optional<GroupSettings> group_settings(const Environment& get, double deadline_s);

/// Rank 0's server, or this rank's connection to it. Throws SystemError when they do not meet.
std::unique_ptr<RendezvousStore> meet(const GroupSettings& settings);

/// Is this an address at which only this machine's processes are reached?
bool on_loopback(const std::string& host);

/// Sixteen hexadecimal digits that nobody else draws.
std::string random_name();

}  // namespace penstock
