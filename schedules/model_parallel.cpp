// Model parallelism without pipelining: one microbatch in the whole system, F1 B1 F2 B2 ...
// Each device waits while the others work: a bubble of (p-1)/p.
#include "schedules/generator.hpp"

namespace penstock {

void generate_model_parallel(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, 0, shape.per_batch(s));
    order.end_device();
  }
}

}  // namespace penstock
