// SPDX-License-Identifier: Apache-2.0
// Model parallelism without pipelining: one microbatch in the whole system, F1 B1 F2 B2 ...
// Each device waits while the others work: a bubble of (p-1)/p.
#include "schedules/catalog.hpp"

namespace penstock {
namespace {

void generate_model_parallel(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, 0, shape.per_batch(s));
    order.end_device();
  }
}

double all_but_one(const ScheduleShape& shape) { return (shape.depth - 1.0) / shape.depth; }
double one(const ScheduleShape&, std::uint32_t) { return 1; }

}  // namespace

Schedule model_parallel() {
  return {.name = "model-parallel",
          .aliases = {"inter-layer-mp"},
          .paper = "PipeDream, SOSP'19, section 2",
          .summary = "one microbatch in the whole system; the baseline without pipelining",
          .bubble = "(p-1)/p",
          .stash = "1",
          .when = "A baseline; or one sample at a time, when nothing else fits in memory.",
          .generate = generate_model_parallel,
          .ideal_bubble = all_but_one,
          .peak = one};
}

}  // namespace penstock
