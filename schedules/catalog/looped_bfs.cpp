// SPDX-License-Identifier: Apache-2.0
// Looped breadth-first (Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys'23, section 3.2):
// device d holds the stages d, p+d, ..., and runs all m forwards of a chunk before the next chunk,
// then the backwards in exactly the reverse order. The bubble is that of interleaved 1F1B,
// (p-1)(F+B) of a chunk; all activations are held, v m of a chunk. A chunk's weights are used by
// all microbatches in a row, and its gradients are complete early.
#include "schedules/catalog.hpp"

namespace penstock {
namespace {

void generate_looped_bfs(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t m = shape.microbatches_per_update;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    for (std::uint32_t s = d; s < shape.stages(); s += shape.depth) {
      for (std::uint32_t k = 0; k < m; ++k) order.add_op(make_op(OpKind::forward, s, k));
    }
    for (std::uint32_t c = shape.chunks; c-- > 0;) {
      for (std::uint32_t k = m; k-- > 0;)
        order.add_op(make_op(OpKind::backward, c * shape.depth + d, k));
    }
    order.end_device();
  }
}

Refusal refuse_looped_bfs(const ScheduleShape& shape) { return refuse_uneven("looped-bfs", shape); }

double all_activations(const ScheduleShape& shape, std::uint32_t) {
  return static_cast<double>(shape.chunks) * shape.microbatches_per_update;
}

/// With fewer microbatches than devices a chunk's first microbatch is not back at the first device
/// when that has run the last one.
double bubble_looped_bfs(const ScheduleShape& shape) {
  const bool fills = shape.chunks == 1 || shape.microbatches_per_update >= shape.depth;
  return fills ? fill_and_drain(shape) : kNoClaim;
}

}  // namespace

Schedule looped_bfs() {
  return {.name = "looped-bfs",
          .aliases = {"ScheduleLoopedBFS", "LoopedBFS", "breadth-first"},
          .paper = "Breadth-First Pipeline Parallelism, MLSys'23",
          .summary = "all microbatches on a chunk before the next chunk, then all back; flush",
          .bubble = "(p-1)/(v m+p-1), m >= p",
          .stash = "v m chunks",
          .when =
              "Small batches with sharded data parallelism: each chunk's weights are gathered and "
              "its gradients reduced once. It holds the activations of all microbatches.",
          .generate = generate_looped_bfs,
          .ideal_bubble = bubble_looped_bfs,
          .refuse_shape = refuse_looped_bfs,
          .peak = all_activations,
          .chunks = {.least = 1, .most = kAnyNumber, .usual = 2}};
}

}  // namespace penstock
