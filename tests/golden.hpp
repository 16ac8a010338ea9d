// SPDX-License-Identifier: Apache-2.0
// A text against the file that it was kept in. UPDATE_GOLDEN=1 rewrites the file and marks the test
// skipped: read every change.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace penstock {

inline void expect_golden(const std::filesystem::path& path, const std::string& text) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    GTEST_SKIP() << path << " rewritten";
  }
  std::ostringstream kept;
  kept << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_EQ(text, kept.str()) << path << "; UPDATE_GOLDEN=1 rewrites it";
}

}  // namespace penstock
