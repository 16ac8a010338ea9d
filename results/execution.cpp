// SPDX-License-Identifier: Apache-2.0
#include "results/execution.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

void require_executable(const Scenario& scenario, bool perturbed, bool real) {
  if (real && scenario.mesh.replica_sharers() > 1) {
    throw InputError(
        scenario.origin,
        fmt::format("the executor gives each sequence to one GPU, not to {}; use{}{}, or "
                    "--compute stand-in",
                    scenario.mesh.replica_sharers(),
                    scenario.mesh.size(Axis::context) > 1 ? " --set pipeline.context=1" : "",
                    scenario.mesh.size(Axis::ulysses) > 1 ? " --set pipeline.ulysses=1" : ""));
  }
  if (real && scenario.transfers_divided) {
    throw InputError(scenario.origin,
                     "the executor sends whole messages between tensor ranks; use --set "
                     "pipeline.transfers_divided=false, or --compute stand-in");
  }
  if (real && scenario.transformer && scenario.transformer->product_types != ProductTypes{}) {
    throw InputError(
        scenario.origin,
        "the executor multiplies in 16 or 32 bits; use --set model.precision=mixed-bf16, "
        "or --compute stand-in");
  }
  const Mesh& mesh = scenario.mesh;
  if (real && mesh.expert_tensor > 1) {
    throw InputError(scenario.origin,
                     "the executor gives each expert to one GPU; use --set "
                     "pipeline.expert_tensor=1, or --compute stand-in");
  }
  if (real && mesh.expert > 1 && (mesh.routing.once_per_node || mesh.routing.narrow)) {
    throw InputError(scenario.origin,
                     "the executor sends a copy of a token to each of its experts, as wide as they "
                     "are; use --set pipeline.expert_exchange=all-to-all and --set "
                     "pipeline.narrow_dispatch=false, or --compute stand-in");
  }
  if (scenario.tensor_overlap) {
    throw InputError(scenario.origin,
                     "the executor exchanges between products, not beside them; use --set "
                     "pipeline.tensor_overlap=false");
  }
  if (std::ranges::any_of(scenario.recompute.values(),
                          [](const Recomputation& r) { return r.offload > 0; })) {
    throw InputError(scenario.origin,
                     "the executor keeps activations where they are made; use --set "
                     "pipeline.offload=0");
  }
  if (scenario.routing || scenario.documents) {
    throw InputError(scenario.origin,
                     fmt::format("'{}' can be predicted, not executed; leave it out",
                                 scenario.routing ? "routing" : "documents"));
  }
  if (!perturbed &&
      (scenario.perturbations.changes_times() || scenario.perturbations.reliability)) {
    throw InputError(scenario.origin,
                     "'perturbations' can be predicted, not executed; leave them out");
  }
}

}  // namespace penstock
