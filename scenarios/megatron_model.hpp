// SPDX-License-Identifier: Apache-2.0
// The model that Megatron-LM's flags describe: its sizes, experts, attention, number types and
// bytes (megatron/training/arguments.py). How a job divides it is in megatron_import.cpp.
#pragma once

#include "models/transformer.hpp"
#include "scenarios/import_notes.hpp"

#include <cstdint>
#include <string>

namespace penstock {

struct MegatronModelAsked {
  std::string model;       ///< a model's name or configuration that stands for the flags of sizes
  std::string stack;       ///< the software, which says what a gradient has of bytes
  bool deepspeed = false;  ///< Megatron-DeepSpeed's flags and defaults
  bool bert = false;
};

struct MegatronModel {
  std::string text;  ///< the keys of a scenario's model, indented
  TransformerSpec shape;
  std::int64_t layers = 0;
};

/// Reads the flags of the model, which are understood in `notes` from then on.
MegatronModel model_of_flags(ImportNotes& notes, const MegatronModelAsked& asked);

/// Returns a size of the model; where it is not there, notes.head() asks for it or for a model.
std::int64_t model_size(ImportNotes& notes, const char* flag, const char* key);

}  // namespace penstock
