// SPDX-License-Identifier: Apache-2.0
// What an error says: the texts of a test's expectations.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace penstock {

/// Has a text all these parts?
inline testing::AssertionResult has_parts(const std::string& text,
                                          std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos)
      return testing::AssertionFailure() << "no '" << part << "' in: " << text;
  return testing::AssertionSuccess();
}

/// What a call throws.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace penstock
