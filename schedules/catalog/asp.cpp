// SPDX-License-Identifier: Apache-2.0
// Asynchronous data parallelism (ASP): every replica has the whole model, pushes the gradient of
// its m microbatches to parameter servers, pulls the weights as they then are, and goes on without
// waiting for other replicas (Recht et al., "Hogwild!", NIPS'11, with a central server as
// PipeDream, SOSP'19, section 2, describes it). An update is made with weights that have seen fewer
// updates than the servers': with w equal replicas w - 1 fewer on average. A replica alone with the
// servers updates every  m (F + B) + 2 (latency + bytes/bandwidth) + STEP.
#include "schedules/catalog.hpp"

namespace penstock {
namespace {

void generate_asp(const ScheduleShape& shape, OpLists& order) {
  append_one_f_one_b(order, 0, 0, shape.total());
  order.end_device();
}

}  // namespace

Schedule asp() {
  return {.name = "asp",
          .aliases = {"async-data-parallel"},
          .paper = "Recht et al., NIPS'11; PipeDream, SOSP'19, section 2",
          .summary =
              "whole model per replica; each pushes gradients and pulls weights, waiting for no "
              "other",
          .bubble = "push and pull: 2(latency + bytes/b)",
          .stash = "1",
          .when = "A baseline: no waiting at all, but stale weights, which costs accuracy.",
          .update = UpdateRule::latest,
          .generate = generate_asp,
          .ideal_bubble = no_bubble,
          .refuse_shape = refuse_stages,
          .whole_model = true,
          .asynchronous = true};
}

}  // namespace penstock
