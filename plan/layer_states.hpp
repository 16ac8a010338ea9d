// SPDX-License-Identifier: Apache-2.0
// Places where a model may be cut into stages.
//
// A chain of layers can be cut behind each. A graph with branches can be cut wherever a set of
// layers is closed under "reads"; PipeDream (Narayanan et al., SOSP'19, section 3.1; the graph is
// made linear in github.com/msr-fiddle/pipedream, graph/graph.py) names such a set by its
// *antichain*: layers of which none comes before another, everything before them being on the near
// side. From the antichain of the first source, one layer after another is replaced by a reader of
// its output; sources that are not the first one of the file enter with their first reader. What a
// cut sends on is counted as PipeDream does: the outputs of the antichain and of every layer before
// it that is also read on another branch (its *augmented* antichain).
#pragma once

#include "models/pipedream_profile.hpp"
#include "plan/bits.hpp"

#include <string>
#include <vector>

namespace penstock {

/// A possible cut. Its times and bytes are those of one microbatch, summed over all layers before
/// it.
struct LayerState {
  double forward_s = 0, backward_s = 0;
  double activation_bytes = 0;  ///< the outputs of the layers
  double parameter_bytes = 0;   ///< the gradients that replicas all-reduce
  double cut_bytes = 0;         ///< the message of a stage that ends here
  std::string name;             ///< the name of the last layer
  std::vector<int> layers;      ///< the antichain
  Bits layers_before;           ///< all layers before the cut
  Bits states_before;           ///< states that a stage ending here may begin behind

  double time_s() const { return forward_s + backward_s; }
};

/// Returns the antichain states of a profile in a topological order; the last one is the whole
/// model. `scale` is the size of a microbatch in minibatches of the profile. Returns none when
/// there are more than `most`, as the states of branches side by side multiply.
std::vector<LayerState> antichain_states(const PipedreamProfile& profile, double scale,
                                         std::size_t most);

/// Returns the cuts behind each layer in execution order. A cut sends every tensor that is read
/// behind it, once.
std::vector<LayerState> chain_states(const PipedreamProfile& profile, double scale);

/// Makes each state follow all that stand before it.
void make_chain(std::vector<LayerState>& states);

/// Returns the layers between two states, in execution order: those behind state `begin` - 1 (0:
/// from the first layer) up to state `end`.
std::vector<int> layers_between(const std::vector<LayerState>& states, int begin, int end);

}  // namespace penstock
