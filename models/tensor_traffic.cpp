#include "models/tensor_traffic.hpp"

namespace penstock {

double tensor_parallel_s(const Cluster& cluster, const std::vector<int>& gpus,
                         const TensorTraffic& traffic) {
  if (traffic.calls == 0) return 0;
  const double share = static_cast<double>(traffic.bytes) / traffic.calls;
  return traffic.calls * all_reduce_s(cluster, gpus, share);
}

}  // namespace penstock
