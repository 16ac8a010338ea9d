// SPDX-License-Identifier: Apache-2.0
#include "scenarios/shipped_text.hpp"

#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

namespace penstock {

std::string shipped_text(const std::string& path, const std::map<std::string, std::string>& parts) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::string text = read_text(data_folder() + "/" + path, kMost);
  for (const auto& [name, part] : parts) {
    const std::string mark = "@" + name + "@";
    const std::size_t at = text.find(mark);
    invariant(at != std::string::npos, "a shipped text has no place for what it is to hold");
    text.replace(at, mark.size(), part);
  }
  return text;
}

}  // namespace penstock
