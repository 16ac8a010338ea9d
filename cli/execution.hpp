// What the commands that execute share: a scenario as a plan for the executor, and penstock-run.
#pragma once

#include "cli/options.hpp"
#include "results/simulation.hpp"
#include "hw/run_plan.hpp"

#include <csignal>
#include <string>
#include <vector>

namespace penstock {

enum class ComputeChoice : std::uint8_t { automatic, real, stand_in };

/// --compute.
ComputeChoice compute_of(const Arguments& arguments);

/// The plan of a prepared scenario. `automatic`: the real model where the scenario has one.
RunPlan run_plan_of(const Simulation& prepared, ComputeChoice compute);

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
