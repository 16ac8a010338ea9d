// SPDX-License-Identifier: Apache-2.0
#include "base/module_path.hpp"

#include <cstdlib>

namespace penstock {
namespace {

std::filesystem::path& path_given() {
  static std::filesystem::path path;
  return path;
}

}  // namespace

std::filesystem::path program_path() {
  std::error_code ignored;
  return path_given().empty() ? std::filesystem::read_symlink("/proc/self/exe", ignored)
                              : path_given();
}

void set_program_path(std::filesystem::path path) { path_given() = std::move(path); }

std::vector<std::filesystem::path> module_paths(const std::string& module,
                                                const std::string& room) {
  namespace fs = std::filesystem;
  constexpr int kLevels = 3;  // from build/ROOM/program up to the tree's root
  std::vector<fs::path> paths;
  const auto add = [&](const fs::path& path) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) paths.push_back(path);
  };
  if (const char* folder = std::getenv("PENSTOCK_MODULES")) add(fs::path(folder) / module);
  fs::path up = program_path().parent_path();
  add(up / module);
  for (int level = 0; level < kLevels && up != up.root_path(); ++level, up = up.parent_path()) {
    add(up / room / module);
    add(up / "lib" / "penstock" / module);
  }
  return paths;
}

std::string python_program() {
  if (const char* named = std::getenv("PENSTOCK_PYTHON")) return named;
  std::error_code ignored;
  return std::filesystem::exists("/usr/bin/python3", ignored) ? "/usr/bin/python3" : "python3";
}

}  // namespace penstock
