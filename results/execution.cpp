// SPDX-License-Identifier: Apache-2.0
#include "results/execution.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

namespace penstock {

void require_executable(const Scenario& scenario, bool perturbed) {
  for (const Axis axis : kInnerAxes) {
    if (scenario.mesh.size(axis) == 1) continue;
    throw InputError(scenario.origin,
                     fmt::format("the executor gives each stage to one device, not to {} GPUs; use "
                                 "--set pipeline.{}=1",
                                 scenario.mesh.size(axis), traits(axis).name));
  }
  if (scenario.mesh.divided) {
    throw InputError(scenario.origin,
                     "the executor gives each stage to one device, not to replicas that split its "
                     "microbatches; use --set pipeline.width=1");
  }
  if (!perturbed &&
      (scenario.perturbations.changes_times() || scenario.perturbations.reliability)) {
    throw InputError(scenario.origin,
                     "'perturbations' can be predicted, not executed; leave them out");
  }
}

}  // namespace penstock
