#include "schedules/program.hpp"

namespace penstock {

std::uint32_t VersionRule::held(std::uint32_t stage) const {
  switch (kind) {
    case Kind::flush:
    case Kind::latest: return 1;
    case Kind::stash: return delay[stage] + 1;
    case Kind::double_buffer: return 2;
    case Kind::listed: return listed_held[stage];
  }
  return 1;
}

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
