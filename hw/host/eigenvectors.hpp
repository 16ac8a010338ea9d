// SPDX-License-Identifier: Apache-2.0
// Eigenvectors of a symmetric matrix in fp64: Householder reflections make it tridiagonal, and the
// QL algorithm with implicit shifts makes that diagonal (Golub and Van Loan, Matrix Computations,
// sections 8.3.1 and 8.3.3). LAPACK's dsyevd would need the Fortran runtime beside a statically
// linked OpenBLAS. Time grows with the cube of the side; results depend on operands alone.
#pragma once

#include <cstdint>

namespace penstock {

/// Replaces the upper triangle of the n x n matrix `a`. Writes the eigenvalues in no order, and
/// their eigenvectors as the rows of `vectors`. Ends for numbers that are not finite, too.
void eigenvectors(std::int64_t n, double* a, double* values, double* vectors);

}  // namespace penstock
