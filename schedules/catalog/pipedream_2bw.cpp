// SPDX-License-Identifier: Apache-2.0
// PipeDream-2BW (Narayanan et al., ICML'21, section 3.1): 1F1B without a flush, an update every
// m >= p microbatches, and two weight versions: a microbatch of batch j uses version max(j - 1, 0)
// on every stage, so the weight delay is one: W(t+1) = W(t) - lr * grad f(W(t-1)).
#include "schedules/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

Refusal refuse_unless_m_covers_depth(const ScheduleShape& shape) {
  if (shape.microbatches_per_update >= shape.depth) return {};
  return {
      fmt::format("PipeDream-2BW needs at least as many microbatches per update as stages (m "
                  ">= p), or two weight versions are not enough: microbatches is {}, the "
                  "nearest legal value is {}",
                  shape.microbatches_per_update, shape.depth)};
}

double distance_to_end_2bw(const ScheduleShape& shape, std::uint32_t device) {
  if (!shape.replicas.alike()) return kNoClaim;
  return std::min(shape.depth - device, shape.total());
}

}  // namespace

Schedule pipedream_2bw() {
  return {.name = "pipedream-2bw",
          .aliases = {"2bw"},
          .paper = "PipeDream-2BW, ICML'21",
          .summary = "1F1B without flush, update per m >= p microbatches, two weight versions",
          .bubble = "0 in steady state",
          .stash = "min(p-s, m)",
          .when =
              "When a delay of one update is acceptable and a second copy of the weights fits: "
              "no bubble, whatever the number of microbatches.",
          .update = UpdateRule::double_buffer,
          .generate = generate_one_f_one_b_without_flush,
          .ideal_bubble = no_bubble,
          .refuse_shape = refuse_unless_m_covers_depth,
          .peak = distance_to_end_2bw};
}

}  // namespace penstock
