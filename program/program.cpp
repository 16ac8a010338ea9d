// SPDX-License-Identifier: Apache-2.0
#include "program/program.hpp"

namespace penstock {

std::string VersionRule::describe() const {
  switch (kind) {
    case Kind::flush: return "one version, updated at the flush";
    case Kind::stash: return "weight stashing";
    case Kind::double_buffer: return "two versions (double-buffered)";
    case Kind::latest: return "the latest version";
    case Kind::listed: return "versions of forward and backward differ";
  }
  return "";
}

}  // namespace penstock
