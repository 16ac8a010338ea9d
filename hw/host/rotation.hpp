// SPDX-License-Identifier: Apache-2.0
// The step of basis rotation for one matrix on the host; hw/optimizer_step.hpp has the formulas.
//
// The eigenvectors of the first means are the singular vectors of the first gradient: those of the
// smaller side are found in fp64, those of the larger side are their products with the gradient,
// and the vectors of the null space complete them. QR decompositions are Householder's, in blocks
// (Schreiber and Van Loan, 1989). Results depend on operands alone: every sum has one order.
// A GPU multiplies by itself and has the host renew the bases.
#pragma once

#include "hw/adamw_factors.hpp"

#include <cstdint>

namespace penstock {

/// A matrix of rows x cols, and what its step works on.
struct RotatedMatrix {
  std::int64_t rows, cols;
  const float* master_in;
  float* master_out;
  float* gradient;
  float *first_moment, *second_moment;
  float* kept;     ///< rotation_numbers() of them, zeros before the first step
  float* scratch;  ///< rotation_scratch_numbers()
};

/// Writes the bases of `matrix`, at step 1 from its gradient and later from its means, and sorts
/// the second moment as the bases are. The weights and the first moment are not read.
using RenewBases = void(const RotatedMatrix& matrix, std::int64_t step);
RenewBases renew_bases;

/// Zeroes the gradient. `step` counts from 1; `f.rate`, `f.kept` are of this step.
void rotated_step(const RotatedMatrix& matrix, const AdamwFactors& f, std::int64_t step);

}  // namespace penstock
