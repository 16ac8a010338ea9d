// PipeDream-2BW (Narayanan et al., ICML'21, section 3.1): 1F1B without a flush, an update every
// m >= p microbatches, and two weight versions: a microbatch of batch j uses version max(j - 1, 0)
// on every stage, so the weight delay is one: W(t+1) = W(t) - lr * grad f(W(t-1)).
#include "schedules/generator.hpp"

namespace penstock {

void generate_pipedream_2bw(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, shape.warmup(s), shape.total(s));
    order.end_device();
  }
}

}  // namespace penstock
