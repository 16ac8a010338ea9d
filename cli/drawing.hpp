// SPDX-License-Identifier: Apache-2.0
// A schedule drawn in the terminal: a row per device, time to the right.
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// At most `columns` wide; what would be too narrow to read is cut into a few drawings. Each op is
/// a box as wide as its time, labelled with its kind and, where that fits, its microbatch (0-based,
/// over all batches): "F0---", "B0=====", in lower case for every other stage of a device; an
/// overlapped pair "F4-&B1==". A dot is idle time.
struct DrawingStyle {
  bool colour = false;    ///< escape codes paint the boxes
  bool versions = false;  ///< numbers are the weight versions that ops use, not microbatches
};
std::string draw_schedule(const Simulation& simulation, const Result& result, int columns,
                          DrawingStyle style);

}  // namespace penstock
