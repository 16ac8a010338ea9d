// SPDX-License-Identifier: Apache-2.0
// Data parallelism in bulk-synchronous steps (Valiant, CACM'90): every replica has the whole model,
// runs its m microbatches (gradient accumulation) and waits until the gradients of all are reduced.
// With wait-free backpropagation (Zhang et al., ATC'17) the reduction of a layer starts as soon as
// its backward has ended in the last microbatch. With bucket k of n ready r_k after the start of
// that backward and taking t_k on the links, an iteration of equal replicas takes
//   T = m F + (m-1) B + e_n + STEP,   e_k = max(r_k, e_(k-1)) + t_k,  r_n = B
#include "schedules/catalog.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

void generate_data_parallel(const ScheduleShape& shape, OpLists& order) {
  append_one_f_one_b(order, 0, 0, shape.per_batch(0));
  order.end_device();
}

}  // namespace

Refusal refuse_stages(const ScheduleShape& shape) {
  if (shape.depth == 1) return {};
  return {fmt::format("data parallelism keeps the whole model on every replica, so stages must be "
                      "1, not {}; set width for the number of replicas, or take a pipeline with "
                      "replicated stages, such as 1f1b",
                      shape.depth),
          "stages"};
}

Schedule data_parallel() {
  return {.name = "data-parallel",
          .aliases = {"bsp", "ddp"},
          .paper = "Valiant, CACM'90 (BSP); Zhang et al., ATC'17",
          .summary =
              "whole model per replica; bucket k, ready at r_k, reduced beside the backward; flush",
          .bubble = "0; e_k = max(r_k, e_(k-1)) + t_k",
          .stash = "1",
          .when =
              "When the model and its optimizer fit on one GPU and its gradients cross the "
              "links in the time of a backward.",
          .generate = generate_data_parallel,
          .ideal_bubble = no_bubble,
          .refuse_shape = refuse_stages,
          .whole_model = true};
}

}  // namespace penstock
