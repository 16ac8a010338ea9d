// SPDX-License-Identifier: Apache-2.0
// What a GPU is like, beyond its name, as far as a prediction of runs on it depends on that: into
// how many partitions it splits and on which SMs their kernels run, how many streams are served at
// once, what its timer and its events can tell apart, how fast kernels are launched (and so whether
// CUDA graphs would help), when freed memory counts as free, and what copies take.
#pragma once

#include <functional>
#include <string>

namespace penstock::cuda {

/// Says a line for each, as it is found; half a minute at most. What cannot be found out is a line,
/// too.
void examine_gpu(int gpu, const std::function<void(const std::string&)>& say);

}  // namespace penstock::cuda
