// SPDX-License-Identifier: Apache-2.0
// What stages cost, as text to compare: a line each.
#pragma once

#include "program/vocabulary.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace penstock {

inline std::string pass_text(const PassCosts& c) {
  std::string text = fmt::format("{} {} {} {}", c.activation_bytes, c.activation_after_input_bytes,
                                 c.forward_workspace_bytes, c.backward_workspace_bytes);
  for (const OpCost& op : c.ops) {
    text += fmt::format(" | {} {} {} {}", op.seconds, op.flops, op.again_flops, op.recipe.times);
    for (const Segment& s : op.recipe.segments)
      text +=
          fmt::format(" {} {} {} {} {} {} {}", static_cast<int>(s.lane), static_cast<int>(s.axis),
                      static_cast<int>(s.what), s.after, s.calls, s.share, s.bytes);
  }
  return text;
}

inline std::string cost_text(const StageCosts& c) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} | {} | {}\n", c.step_s, c.reduce_grad_s,
                     c.overlap_saving_s, c.output_bytes, c.weight_bytes, c.gradient_bytes,
                     c.reduced_bytes, c.optimizer_bytes, c.version_bytes, c.backward_microbatches,
                     pass_text(c), c.stored ? pass_text(*c.stored) : "");
}

inline std::string costs_text(const std::vector<StageCosts>& costs) {
  std::string text;
  for (const StageCosts& c : costs) text += cost_text(c);
  return text;
}

}  // namespace penstock
