// SPDX-License-Identifier: Apache-2.0
// A device's file of kernel times (models/kernels/kernel_times.hpp) from kernels that were measured
// on the very machine (hw/kernel_measurement.hpp). What was measured is few shapes of few families,
// so a shipped file is the start: of the products' law its rate, its launch and its memory are
// fitted again, its corrections stay; copies are points of their own; penstock's own attention is a
// law beside those of frameworks, which stay first. All else stays as others measured it, and the
// file says so.
#pragma once

#include "hw/kernel_measurement.hpp"
#include "models/kernels/kernel_times.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Mean errors of a family, as shares: with the shipped file's numbers, and with the fitted ones.
struct FittedFamily {
  std::string name;
  std::size_t shapes = 0;
  double before = 0, after = 0;
};

struct KernelFit {
  KernelTimes times;
  std::vector<FittedFamily> families;
  std::vector<std::string> kept;  ///< families that are as they were
};

/// Returns what was measured as a file of kernel times that starts from `shipped`. Throws
/// InputError where no product was measured.
KernelFit fit_kernels(KernelTimes shipped, const MeasuredKernels& measured);

}  // namespace penstock
