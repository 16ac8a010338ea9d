// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_files.hpp"

#include "base/error.hpp"
#include "base/folder.hpp"
#include "base/output_file.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// "plan-12.csv"?
bool is_plan_file(const std::string& name) {
  constexpr std::string_view kBegin = "plan-";
  if (!name.starts_with(kBegin)) return false;
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto dot = std::find_if_not(name.begin() + kBegin.size(), name.end(), digit);
  if (dot == name.begin() + kBegin.size() || dot == name.end()) return false;
  return std::ranges::find(kPlanEndings, std::string(dot + 1, name.end())) !=
         std::end(kPlanEndings);
}

/// Names, sorted.
std::vector<std::string> plan_files(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(folder))
    if (is_plan_file(name)) names.push_back(name);
  return names;
}

}  // namespace

std::string PlanFolder::refuse(const std::string& folder, bool replaces) {
  constexpr std::size_t kNamed = 6;
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored))
    return fmt::format("'{}' is a file; name a folder", folder);
  std::vector<std::string> names = plan_files(folder);
  if (names.empty() || replaces) return "";
  const std::size_t more = names.size() - std::min(names.size(), kNamed);
  names.resize(names.size() - more);
  return fmt::format(
      "'{}' has plans already: {}{}; give another folder, or --force to replace them", folder,
      fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

PlanFolder::PlanFolder(const std::string& folder) : folder_(folder) {
  for (const std::string& name : plan_files(folder))
    require_no_input((fs::path(folder) / name).string());
  std::error_code error;
  made_ = fs::create_directories(folder, error);
  if (error)
    throw SystemError(fmt::format("cannot make the folder '{}': {}", folder, error.message()));
}

PlanFolder::~PlanFolder() {
  std::error_code ignored;
  if (made_ && written_.empty()) fs::remove(folder_, ignored);
}

std::vector<std::string> PlanFolder::write(int number, const std::vector<PlanFile>& files) {
  std::vector<std::string> paths;
  std::vector<std::pair<std::string, std::string_view>> contents;
  for (const PlanFile& file : files) {
    paths.push_back((fs::path(folder_) / fmt::format("plan-{}.{}", number, file.ending)).string());
    contents.emplace_back(paths.back(), file.text);
  }
  write_files(contents);
  written_.insert(written_.end(), paths.begin(), paths.end());
  return paths;
}

void PlanFolder::remove_others() {
  for (const std::string& name : plan_files(folder_)) {
    const std::string path = (fs::path(folder_) / name).string();
    std::error_code ignored;
    if (std::ranges::find(written_, path) == written_.end()) fs::remove(path, ignored);
  }
}

}  // namespace penstock
