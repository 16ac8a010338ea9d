// SPDX-License-Identifier: Apache-2.0
// The names of parameterized tests whose parameter is a name: GoogleTest takes no '-' in one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace penstock {

inline std::string name_of(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

/// For INSTANTIATE_TEST_SUITE_P over names.
struct ByName {
  template <class Name>
  std::string operator()(const testing::TestParamInfo<Name>& tested) const {
    return name_of(std::string(tested.param));
  }
};

}  // namespace penstock
