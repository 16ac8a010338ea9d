// Time of what the GPUs that share a stage exchange, in closed form.
#pragma once

#include "base/vocabulary.hpp"
#include "models/cluster.hpp"

#include <vector>

namespace penstock {

/// Time of an op's traffic among these GPUs when nothing else uses their links, seconds: each call
/// is a ring all-reduce, so calls * 2 (n-1) latency + 2 (n-1)/n bytes / bandwidth. Megatron waits
/// for each: nothing of it is hidden behind computing.
double tensor_parallel_s(const Cluster& cluster, const std::vector<int>& gpus,
                         const TensorTraffic& traffic);

}  // namespace penstock
