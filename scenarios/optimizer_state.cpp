// SPDX-License-Identifier: Apache-2.0
#include "scenarios/optimizer_state.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

namespace penstock {

double moment_bytes(ImportNotes& notes, const OptimizerAsked& asked, const TransformerSpec& model) {
  const char* const key = "model.bytes_per_parameter.optimizer";
  const std::string name = lower_case(asked.named);
  if (name.empty() || name == "adam" || name == "adamw" || name.ends_with("fused_adam") ||
      name == "fusedadam" || name == "cpu_adam" || name == "cpuadam") {
    notes.ignore(asked.option);
    return asked.adam;
  }
  if (name == "sgd" || name == "lion") {  // Lion: Chen et al., arXiv:2302.06675
    notes.has(asked.option, key);
    return name == "sgd" ? asked.sgd : 4;
  }
  if (name == "muon" || name == "dist_muon") {
    // Matrices in layers have one momentum, all others Adam's two moments (Liu et al.,
    // arXiv:2502.16982, section 2.1).
    notes.has(asked.option, key);
    const double matrices = static_cast<double>(model.num_layers) *
                            static_cast<double>(model.layer_matrix_parameters());
    const double ends = (model.tie_embeddings ? 1 : 2) * static_cast<double>(model.vocab_size) *
                        static_cast<double>(model.hidden_size);
    const double all = matrices + ends;
    const double share = all > 0 ? matrices / all : 0;
    notes.assume(
        fmt::format("{}: Muon's momentum for {:.1f} % of the parameters, the matrices of "
                    "layers, Adam's two moments for the others: their mean",
                    key, 100 * share));
    return asked.adam - 4 * share;
  }
  notes.unmodelled(asked.option, "its state is taken for Adam's");
  for (const Leaves memory : {Leaves::more, Leaves::less})
    notes.leave_out(fmt::format("the state of {}", as_comment(name)), memory);
  return asked.adam;
}

}  // namespace penstock
