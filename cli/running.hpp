// What the commands that simulate share: options into values, one scenario per process.
#pragma once

#include "cli/options.hpp"
#include "cli/output.hpp"

#include <functional>

namespace penstock {

std::vector<Override> overrides_of(const Arguments& arguments);

/// Throws InputError when an argument names no file, as reading a scenario does.
void require_file(const std::string& path);

/// --engine; simgrid unless told otherwise.
EngineChoice engine_of(const Arguments& arguments);

/// What `work` returns, done in a child process because SimGrid can run only once in one. Errors of
/// the child are thrown here again, as InputError ("PATH: cannot be DONE") or SystemError.
std::string in_child(const std::string& path, const std::string& done,
                     const std::function<std::string()>& work);

/// Simulates in a child process, because SimGrid can run only once in one; returns the result as
/// JSON, and what `section` makes of the run (none: nothing). Errors of the child are thrown here
/// again, as InputError or SystemError.
struct ChildSimulation {
  Json result;
  std::string section;
};
ChildSimulation simulate_in_child(
    const std::string& scenario_path, const std::vector<Override>& overrides, EngineChoice engine,
    const OutputOptions& options,
    const std::function<std::string(const Simulation&)>& section = {});

}  // namespace penstock
