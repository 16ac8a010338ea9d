#include "models/collectives.hpp"

namespace penstock {

double ring_all_reduce_s(int members, double bytes, double latency_s, double bytes_per_s) {
  if (members < 2) return 0;
  const double steps = 2.0 * (members - 1);
  return steps * latency_s + steps / members * bytes / bytes_per_s;
}

}  // namespace penstock
