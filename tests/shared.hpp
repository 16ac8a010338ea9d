// SPDX-License-Identifier: Apache-2.0
// Where the test vectors lie: $PENSTOCK_SHARED, else ../shared beside the project.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace penstock {

inline std::filesystem::path shared_folder() {
  if (const char* folder = std::getenv("PENSTOCK_SHARED")) return folder;
  const char* source = std::getenv("PENSTOCK_SOURCE");
  return std::filesystem::path(source != nullptr ? source : ".") / ".." / "shared";
}

}  // namespace penstock

/// Ends the test, as skipped, where there are no test vectors at all; where there are, one that is
/// missing is a failure.
#define SKIP_WITHOUT_SHARED(path)                                                          \
  if (!std::filesystem::exists(penstock::shared_folder()))                                 \
    GTEST_SKIP() << "test vectors not found: shared folder " << penstock::shared_folder(); \
  ASSERT_TRUE(std::filesystem::exists(path)) << path
