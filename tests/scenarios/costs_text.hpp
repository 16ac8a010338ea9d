// What stages cost, as text to compare: a line each.
#pragma once

#include "program/vocabulary.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace penstock {

inline std::string cost_text(const StageCosts& c) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} | ", c.forward_s, c.backward_s,
                                 c.backward_input_s, c.backward_weight_s, c.step_s, c.reduce_grad_s,
                                 c.overlap_saving_s, c.recompute_s);
  text += fmt::format("{} {} {} {} {} {} {} {} | ", c.output_bytes, c.weight_bytes,
                      c.gradient_bytes, c.reduced_bytes, c.optimizer_bytes, c.version_bytes,
                      c.activation_bytes, c.activation_after_input_bytes);
  text +=
      fmt::format("{} {} {} {} {} {} {} {}", c.stored_activation_bytes, c.stored_workspace_bytes,
                  c.forward_workspace_bytes, c.backward_workspace_bytes, c.forward_flops,
                  c.backward_flops, c.recompute_flops, c.backward_microbatches);
  for (const Recipe& recipe : c.recipes) {
    text += fmt::format(" | {}", recipe.times);
    for (const Segment& s : recipe.segments)
      text +=
          fmt::format(" {} {} {} {} {} {} {}", static_cast<int>(s.lane), static_cast<int>(s.axis),
                      static_cast<int>(s.what), s.after, s.calls, s.share, s.bytes);
  }
  return text + "\n";
}

inline std::string costs_text(const std::vector<StageCosts>& costs) {
  std::string text;
  for (const StageCosts& c : costs) text += cost_text(c);
  return text;
}

}  // namespace penstock
