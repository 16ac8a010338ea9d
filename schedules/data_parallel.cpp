// Data parallelism in bulk-synchronous steps (Valiant, CACM'90): every replica has the whole model,
// runs its m microbatches (gradient accumulation) and waits until the gradients of all are reduced.
// With wait-free backpropagation (Zhang et al., ATC'17) the reduction of a layer starts as soon as
// its backward has ended in the last microbatch. With bucket k of n ready r_k after the start of
// that backward and taking t_k on the links, an iteration of equal replicas takes
//   T = m F + (m-1) B + e_n + STEP,   e_k = max(r_k, e_(k-1)) + t_k,  r_n = B
#include "schedules/generator.hpp"

namespace penstock {

void generate_data_parallel(const ScheduleShape& shape, OpLists& order) {
  append_one_f_one_b(order, 0, 0, shape.per_batch(0));
  order.end_device();
}

}  // namespace penstock
