// Where the test vectors lie: $PENSTOCK_SHARED, else ../shared beside the project.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace penstock {

inline std::filesystem::path shared_folder() {
  if (const char* folder = std::getenv("PENSTOCK_SHARED")) return folder;
  const char* source = std::getenv("PENSTOCK_SOURCE");
  return std::filesystem::path(source != nullptr ? source : ".") / ".." / "shared";
}

}  // namespace penstock
