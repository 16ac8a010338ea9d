// SPDX-License-Identifier: Apache-2.0
#include "models/gradient_buckets.hpp"

#include <algorithm>

namespace penstock {

std::vector<GradientBucket> gradient_buckets(const std::vector<LayerGradient>& layers,
                                             double least_bytes) {
  double all_bytes = 0, all_s = 0;
  for (const LayerGradient& layer : layers) {
    all_bytes += layer.gradient_bytes;
    all_s += layer.backward_s;
  }
  if (all_bytes <= 0) return {{}};
  std::vector<GradientBucket> buckets;
  double bytes = 0, done_s = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    bytes += layers[i].gradient_bytes;
    done_s += layers[i].backward_s;
    const bool full = bytes > 0 && bytes >= least_bytes;
    if (!full && (i > 0 || bytes <= 0)) continue;
    const double ready = all_s > 0 ? std::min(1.0, done_s / all_s) : 1;
    buckets.push_back({ready, bytes / all_bytes});
    bytes = 0;
  }
  buckets.back().ready = 1;  // the update waits for the whole backward anyway
  return buckets;
}

std::vector<GradientBucket> equal_buckets(int count) {
  std::vector<GradientBucket> buckets;
  for (int k = 1; k <= count; ++k) buckets.push_back({static_cast<double>(k) / count, 1.0 / count});
  return buckets;
}

}  // namespace penstock
