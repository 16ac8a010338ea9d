// The key `stack`: which software trains, a file of models/stacks, an own one, or a map.
#pragma once

#include "scenarios/library.hpp"

namespace penstock {

StackSpec read_stack(const Section& stack);

/// What a stack says of parameters, where the model leaves it open, and of links.
void apply_to_model(const StackSpec& stack, TransformerSpec& model);
void apply_to_links(const StackSpec& stack, Cluster& cluster);

}  // namespace penstock
