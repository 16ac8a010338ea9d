// PipeDream (Narayanan et al., SOSP'19, section 3): 1F1B without a flush, an update after every
// backward, and weight stashing: F and B of a microbatch use the version of max(k - w_s, 0) with
// w_s = p - 1 - s, so stage s holds w_s + 1 versions. With vertical sync every stage uses the
// version stage 0 used when the microbatch entered, and holds p. With replicas (1F1B-RR) k and w_s
// are those of a replica: see ScheduleShape::warmup.
#include "schedules/generator.hpp"

namespace penstock {

void generate_pipedream(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, shape.warmup(s), shape.total(s));
    order.end_device();
  }
}

}  // namespace penstock
