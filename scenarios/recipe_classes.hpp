// SPDX-License-Identifier: Apache-2.0
// Reads which model a recipe of NeMo or Megatron-Bridge trains from the name of its class
// (_target_: "...llama.Llama31ModelProvider8B"): its family, and the model where it names its size.
// The class itself is Python and not read; a family that is not known here says nothing.
#pragma once

#include "scenarios/flag_values.hpp"

#include <string>

namespace penstock {

struct RecipeClass {
  enum class Family { gpt, llama, bert, other, unknown };

  std::string name;  ///< without its module
  Family family = Family::unknown;
  std::string why;                        ///< no decoder of one stack of layers: what it is
  std::string shipped;                    ///< the model that it names, "" where none is shipped
  bool experts = false, latents = false;  ///< its layers have experts, latent attention
};

/// Returns what the name of a class says, or of a function "model" in a module that names one.
RecipeClass recipe_class(const std::string& target);

/// Reads what a model's class in Python says where the file does not: its sizes, where it names
/// them, or that its layers are Llama's. Throws InputError where the class is no decoder of one
/// stack of layers, and where only Python says what its layers are.
void read_recipe_class(const Value& model, const Value& target, MegatronJob& job,
                       OptionReader& out);

}  // namespace penstock
