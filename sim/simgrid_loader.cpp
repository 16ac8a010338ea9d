// Finds and opens the SimGrid module beside this program.
#include "sim/simgrid/module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace penstock {
namespace {

constexpr const char* kModule = "libpenstock_simgrid.so";

/// Where the module may lie: $PENSTOCK_MODULES, the build tree, an installation.
std::vector<std::filesystem::path> candidates() {
  std::vector<std::filesystem::path> paths;
  if (const char* folder = std::getenv("PENSTOCK_MODULES"))
    paths.emplace_back(std::filesystem::path(folder) / kModule);
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (auto up = self; up != up.root_path() && paths.size() < 6; up = up.parent_path()) {
    paths.push_back(up / "sim" / "simgrid" / kModule);
    paths.push_back(up / "lib" / "penstock" / kModule);
  }
  return paths;
}

struct Module {
  SimgridEntry* entry = nullptr;
  std::string problem;
};

Module open_module() {
  for (const auto& path : candidates()) {
    if (!std::filesystem::exists(path)) continue;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
      return {nullptr, fmt::format("the SimGrid module cannot be loaded: {}", dlerror())};
    if (auto* entry = reinterpret_cast<SimgridEntry*>(dlsym(handle, kSimgridEntry)))
      return {entry, ""};
    return {nullptr, fmt::format("'{}' is not penstock's SimGrid module", path.string())};
  }
  return {nullptr,
          fmt::format("the SimGrid module '{}' was not found beside this program", kModule)};
}

const Module& module() {
  static const Module loaded = open_module();
  return loaded;
}

}  // namespace

std::string why_no_simgrid() { return module().problem; }

Timeline simulate_simgrid(const SimulationInput& input, const SimgridOptions& options,
                          SimgridCounts* counts) {
  static bool used = false;
  invariant(!used, "simgrid: one simulation per process");
  if (module().entry == nullptr) throw SystemError(module().problem + "; use --engine exact");
  used = true;
  SimgridCounts ignored;
  Timeline timeline(input.program.ops.size());
  module().entry(input, options, counts != nullptr ? *counts : ignored, timeline);
  return timeline;
}

}  // namespace penstock
