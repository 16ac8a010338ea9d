// SPDX-License-Identifier: Apache-2.0
// The key `stack`: which software trains, a file of models/stacks, an own one, or a map.
#pragma once

#include "scenarios/library.hpp"

#include <span>
#include <variant>

namespace penstock {

/// A key whose value is a number, and where it goes.
struct StackNumber {
  const char* key;
  std::variant<double StackSpec::*, std::optional<double> StackSpec::*> field;
  Dimension dimension;
  bool of_layers = false;  ///< says something only of layers taken apart
  bool of_memory = false;  ///< changes memory and no time
};
std::span<const StackNumber> stack_numbers();

StackSpec read_stack(const Section& stack);

/// What a stack says of parameters, where the model leaves it open, and of links and devices.
void apply_to_model(const StackSpec& stack, TransformerSpec& model);
void apply_to_cluster(const StackSpec& stack, Cluster& cluster);

}  // namespace penstock
