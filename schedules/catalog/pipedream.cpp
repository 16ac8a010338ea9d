// SPDX-License-Identifier: Apache-2.0
// PipeDream (Narayanan et al., SOSP'19, section 3): 1F1B without a flush, an update after every
// backward, and weight stashing: F and B of a microbatch use the version of max(k - w_s, 0) with
// w_s = p - 1 - s, so stage s holds w_s + 1 versions. With vertical sync every stage uses the
// version stage 0 used when the microbatch entered, and holds p. Without stashing (the naive
// pipeline of its section 3.3) F uses the weights of max(k - w_s, 0) and B those of k, the latest
// there are on one copy, so a gradient is that of no weights at all. With replicas (1F1B-RR) k and
// w_s are those of a replica: see ScheduleShape::warmup.
#include "schedules/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

Refusal refuse_unless_one_per_update(const ScheduleShape& shape) {
  if (shape.microbatches_per_update == 1) return {};
  return {
      fmt::format("PipeDream updates the weights after every microbatch, so microbatches must "
                  "be 1, not {}; set microbatches: 1 and batches: {} for the same amount of "
                  "work",
                  shape.microbatches_per_update, shape.total())};
}

double distance_to_end_pipedream(const ScheduleShape& shape, std::uint32_t device) {
  return std::min(shape.warmup(device) + 1, shape.total(device));
}

}  // namespace

Schedule pipedream() {
  return {.name = "pipedream",
          .paper = "PipeDream, SOSP'19",
          .summary = "1F1B without flush, update per microbatch, weight stashing",
          .bubble = "0 in steady state",
          .stash = "p-s",
          .when =
              "Small models on slow links, where stale gradients are acceptable and p weight "
              "versions fit on the first stage.",
          .update = UpdateRule::stash,
          .generate = generate_one_f_one_b_without_flush,
          .ideal_bubble = no_bubble,
          .refuse_shape = refuse_unless_one_per_update,
          .peak = distance_to_end_pipedream};
}

}  // namespace penstock
