// SPDX-License-Identifier: Apache-2.0
// Starts the processes of a run on this machine, watches them, and leaves nothing behind.
//
// Every process gets RANK, WORLD_SIZE, LOCAL_RANK and PENSTOCK_RENDEZVOUS, a temporary folder. When
// one of them fails, the others have a grace period to end by themselves (they notice that it is
// gone, and say what they were doing); then SIGTERM, then SIGKILL. A launcher that is told to stop
// (SIGINT, SIGTERM, SIGHUP) passes that on; when it is killed, the kernel kills its processes.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct LaunchRequest {
  std::string executable;  ///< a path, or a name to be looked up in PATH
  std::vector<std::string> arguments;
  int processes = 1;
  /// Per rank, in front of the executable, e.g. {"ip", "netns", "exec", "ns3"}; may be empty.
  std::vector<std::vector<std::string>> prefixes;
  std::vector<std::pair<std::string, std::string>> environment;  ///< for all ranks
  double grace_s = 60;  ///< from the first failure to SIGTERM
  double kill_s = 5;    ///< from SIGTERM to SIGKILL
  int errors_fd = 2;    ///< where the lines of the ranks' stderr go, each as "[rank 2] line"
};

struct LaunchResult {
  /// Per rank: its exit status, or 128 + the signal that ended it, as a shell says it.
  std::vector<int> status;
  int interrupted_by = 0;  ///< signal that told the launcher to stop; 0: none

  /// 0, or the status of the rank that was first seen to fail.
  int first_failure = 0;
};

/// Runs the processes and waits for all of them. Their stdout is this process's, their stdin is
/// empty. Throws SystemError when a process cannot even be made. Call it before there are other
/// threads, which would not know about its signals.
LaunchResult launch(const LaunchRequest& request);

}  // namespace penstock
