// SPDX-License-Identifier: Apache-2.0
// Work in a child process: what can be started only once in a process (SimGrid), crash or never
// end.
//
// The child is a fork, so it has everything that is loaded here, and sends back one string. It dies
// with this process, however that ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace penstock {

struct ChildResult {
  std::optional<std::string> answer;  ///< none: it ended without
  int status = 0;                     ///< as waitpid() says it

  bool out_of_time() const;
};

/// What `work` returns, done in a child process that has `limit_s` seconds for it (0: for ever).
/// `work` must not throw. Throws SystemError when there can be no process; `what` is its object.
ChildResult run_in_child(const std::string& what, const std::function<std::string()>& work,
                         double limit_s = 0);

/// "by signal 11 (Segmentation fault)", "with status 3".
std::string how_it_ended(int status);

/// Ends this process, as one out of time, in `limit_s` seconds; 0: not any more. Returns the
/// seconds that were left.
double limit_time(double limit_s);
bool out_of_time(int status);

/// In a new process: ends it when its parent ends, also when that already has.
void end_with_parent(pid_t parent);

}  // namespace penstock
