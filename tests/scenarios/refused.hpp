// SPDX-License-Identifier: Apache-2.0
// The message with which something is refused.
#pragma once

#include "base/error.hpp"

#include <functional>
#include <string>

namespace penstock {

/// Returns the errors that `action` throws as an InputError, "" where it throws none.
inline std::string refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace penstock
