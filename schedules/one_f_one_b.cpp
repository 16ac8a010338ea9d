// 1F1B with a flush: PipeDream-Flush (Narayanan et al., ICML'21), the same order as DAPPLE's P_A
// (Fan et al., PPoPP'21) and Megatron's default. Stage s runs K_s - 1 forwards ahead, then one
// forward and one backward in turn; at most K_s microbatches are stashed.
//   P_A: K_s = min(p - s, m)           P_B: K_s = min(2(p - s) - 1, m), for expensive transfers
#include "schedules/generator.hpp"

#include <algorithm>

namespace penstock {

void append_one_f_one_b(OpLists& order, std::uint32_t s, std::uint32_t warmup,
                        std::uint32_t count) {
  const auto stage = static_cast<std::uint16_t>(s);
  warmup = std::min(warmup, count);
  for (std::uint32_t k = 0; k < warmup; ++k) order.add({.microbatch = k, .stage = stage});
  for (std::uint32_t k = warmup; k < count; ++k) {
    order.add({.microbatch = k, .stage = stage});
    order.add({.microbatch = k - warmup, .stage = stage, .kind = OpKind::backward});
  }
  for (std::uint32_t k = count - warmup; k < count; ++k) {
    order.add({.microbatch = k, .stage = stage, .kind = OpKind::backward});
  }
}

void generate_1f1b(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, shape.warmup(s), shape.per_batch(s));
    order.end_device();
  }
}

void generate_dapple_pb(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t m = shape.microbatches_per_update;
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, std::min(2 * (shape.depth - s) - 1, m) - 1, m);
    order.end_device();
  }
}

}  // namespace penstock
