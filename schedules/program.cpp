#include "schedules/program.hpp"

namespace penstock {
namespace {

std::uint32_t minus(std::uint32_t a, std::uint32_t b) { return a > b ? a - b : 0; }

}  // namespace

std::uint32_t VersionRule::version(std::uint32_t stage, std::uint32_t k, std::uint32_t per_update,
                                   bool forward) const {
  switch (kind) {
    case Kind::flush: return k / per_update;
    case Kind::latest: return (forward && !delay.empty() ? minus(k, delay[stage]) : k) / per_update;
    case Kind::listed: return (forward ? forward_listed : backward_listed)[stage][k];
    case Kind::stash: return minus(k, delay[stage]);
    case Kind::double_buffer: return minus(k / per_update, 1);
  }
  return 0;
}

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
