// SPDX-License-Identifier: Apache-2.0
#include "scenarios/other_formats.hpp"

#include "base/error.hpp"
#include "models/layout_string.hpp"
#include "schedules/formats/torch_table.hpp"

#include <fmt/format.h>

namespace penstock {

std::string layout_text(const Scenario& scenario) {
  if (scenario.layers.empty()) {
    throw InputError(scenario.origin + ", model",
                     "a model given by its costs has no layers; a layout says where they are");
  }
  if (scenario.schedule->layout != Layout::loop && scenario.placement().stages() > 1 &&
      scenario.schedule->positions.empty()) {
    throw InputError(scenario.origin + ", schedule",
                     fmt::format("Megatron puts virtual stage i on rank i mod p, '{}' does not; a "
                                 "layout would say something else",
                                 scenario.schedule->name));
  }
  return to_layout(layout_of(scenario.layers)) + "\n";
}

std::string torch_csv(const Scenario& scenario) {
  if (!scenario.shape.replicas.alike()) {
    throw InputError(
        scenario.origin + ", pipeline.width",
        "the table has a row per device of one pipeline; stages with different numbers "
        "of replicas do not make one");
  }
  return to_csv(table_of(scenario.schedule->order(scenario.shape)));
}

}  // namespace penstock
