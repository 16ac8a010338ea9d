// SPDX-License-Identifier: Apache-2.0
// The bytes that optimizers keep of a parameter beside its fp32 copy, by the names that importers
// read: Adam has two moments, SGD and Lion have one momentum, Muon has one of matrices.
#pragma once

#include "models/transformer.hpp"
#include "scenarios/import_notes.hpp"

#include <string>

namespace penstock {

struct OptimizerAsked {
  std::string option;   ///< that names it, and
  std::string named{};  ///< its value
  double adam = 8;      ///< bytes of Adam's two moments
  double sgd = 4;       ///< bytes of SGD's momentum, 0 without
};

/// Returns the bytes of moments. What it takes for granted is noted; an optimizer that is not known
/// has Adam's, and model.missing says so.
double moment_bytes(ImportNotes& notes, const OptimizerAsked& asked, const TransformerSpec& model);

}  // namespace penstock
