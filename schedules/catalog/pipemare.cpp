// SPDX-License-Identifier: Apache-2.0
// PipeMare (Yang et al., MLSys'21): never a bubble, never a second weight version. In every slot a
// stage runs one forward and one backward; the forward of a microbatch takes the weights as they
// are, and so does its backward 2 (p-1-s) + 1 slots later, with other weights: the forward's were
//   tau_fwd(s) = (2 (p-1-s) + 1) / m     updates older (i = s + 1 in the paper), tau_bkwd = 0.
// The forward of a slot stands before its backward, so it does not see that slot's update, as in
// the paper, where both run at once; the delays are then the paper's exactly.
// What PipeMare does against the discrepancy (T1, T2): schedules/pipemare.hpp.
#include "schedules/catalog.hpp"
#include "schedules/pipemare.hpp"

#include <algorithm>

namespace penstock {
namespace {

void generate_pipemare(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, delayed::slots(shape.depth, s), shape.total());
    order.end_device();
  }
}

void list_delays(const ScheduleShape& shape, const OpLists&, VersionRule& rule) {
  for (std::uint32_t s = 0; s < shape.depth; ++s)
    rule.delay.push_back(delayed::slots(shape.depth, s));
  if (!shape.correction) return;
  rule.backward = VersionRule::Backward::corrected;
  ++rule.extra_copies;
}

double slots_and_its_own(const ScheduleShape& shape, std::uint32_t device) {
  return std::min(delayed::slots(shape.depth, device) + 1, shape.total());
}

}  // namespace

Schedule pipemare() {
  return {
      .name = "pipemare",
      .paper = "PipeMare, MLSys'21",
      .summary = "one forward and one backward per slot, no flush, one weight version",
      .bubble = "0 in steady state",
      .stash = "2(p-s)",
      .when =
          "When neither bubbles nor weight copies are affordable and training tolerates "
          "forwards on weights 2(p-1-s)+1 microbatches older than the backward's; it takes twice "
          "1F1B's "
          "activations.",
      .update = UpdateRule::latest,
      .generate = generate_pipemare,
      .ideal_bubble = no_bubble,
      .refuse_shape = [](const ScheduleShape& shape) { return refuse_uneven("pipemare", shape); },
      .peak = slots_and_its_own,
      .corrects = true,
      .list_versions = list_delays};
}

}  // namespace penstock
