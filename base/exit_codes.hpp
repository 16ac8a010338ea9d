// SPDX-License-Identifier: Apache-2.0
// Exit codes of every penstock program.
#pragma once

namespace penstock {

enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,
  exit_usage = 2,  ///< wrong command line or input file
  exit_out_of_tolerance = 3,
  exit_no_hardware = 4,  ///< the hardware asked for is not available
  exit_internal_bug = 70,
  exit_interrupted = 130,  ///< by Ctrl-C; what was done is kept
};

}  // namespace penstock
