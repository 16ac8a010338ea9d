// SPDX-License-Identifier: Apache-2.0
// penstock-run as a child process: where it lies, what ends it, what it says.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace penstock {

/// A folder that is removed with its contents at the end; until then SIGINT, SIGTERM and SIGHUP
/// wait (run_executor passes them on).
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  sigset_t before_;
};

/// Runs penstock-run, which lies beside penstock or where $PENSTOCK_RUN says; its stderr is ours.
/// Returns its exit status, or 128 + a signal to stop that came, which is passed on. Throws
/// SystemError when it cannot be started.
int run_executor(const std::vector<std::string>& arguments);

/// The same, and returns what it says.
std::string ask_executor(const std::vector<std::string>& arguments, int& status);

}  // namespace penstock
