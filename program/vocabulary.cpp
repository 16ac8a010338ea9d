// SPDX-License-Identifier: Apache-2.0
#include "program/vocabulary.hpp"

namespace penstock {

std::string_view token(OpKind kind) {
  static constexpr std::string_view kTokens[] = {"F", "B", "I", "W", "REDUCE_GRAD", "STEP"};
  return kTokens[static_cast<int>(kind)];
}

std::string to_string(const Op& op) {
  return std::to_string(op.stage).append(token(op.kind)).append(std::to_string(op.microbatch));
}

}  // namespace penstock
