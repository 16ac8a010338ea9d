#include "results/post_validation.hpp"

#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// When each device is ready for its steps, by update: [device][update].
std::vector<std::vector<double>> step_starts(const Simulation& s) {
  std::vector<std::vector<double>> starts;
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    auto& mine = starts.emplace_back();
    for (std::uint32_t g = s.program.ops.begin(d); g < s.program.ops.end(d); ++g)
      if (s.program.ops[g].kind == OpKind::step) mine.push_back(s.timeline->op(g).start_s);
  }
  return starts;
}

}  // namespace

double longest_wait_for_norm_s(const Simulation& s) {
  const auto starts = step_starts(s);
  const Placement& placement = s.program.placement;
  const double latency_s = slowest_way(s.scenario.cluster).latency_s;
  double longest_s = 0;
  for (std::uint32_t replica = 0; replica < placement.width(); ++replica) {
    for (std::size_t update = 0; update < starts.front().size(); ++update) {
      double norm_s = 0;  // when the partial norm is at the position
      for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(placement.depth()); ++p) {
        const int device = placement.device_at(replica, p);
        if (device < 0) continue;
        const auto& mine = starts[static_cast<std::size_t>(device)];
        if (update >= mine.size()) continue;
        longest_s = std::max(longest_s, norm_s - mine[update]);
        norm_s = std::max(norm_s, mine[update]) + latency_s;
      }
    }
  }
  return longest_s;
}

std::string post_validation_note(const Simulation& simulation) {
  const double wait_s = longest_wait_for_norm_s(simulation);
  if (wait_s <= 0) {
    return "post-validation: the partial norm comes before every device's step, which waits for "
           "nothing";
  }
  return fmt::format(
      "post-validation: a device would wait up to {} for the partial norm of the stages before it, "
      "which is not in these times",
      format_time(wait_s));
}

}  // namespace penstock
