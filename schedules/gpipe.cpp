// GPipe (Huang et al., NeurIPS'19): all m forwards, then all m backwards, on one weight version.
// `gpipe` runs the backwards in reverse (B_m ... B_1, as torchgpipe's dependencies force them),
// `gpipe-fifo` in ascending order (PyTorch's ScheduleGPipe, Megatron).
#include "schedules/generator.hpp"

namespace penstock {
namespace {

void generate(const ScheduleShape& shape, OpLists& order, bool reverse) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    const std::uint32_t m = shape.per_batch(s);
    const auto stage = static_cast<std::uint16_t>(s);
    for (std::uint32_t k = 0; k < m; ++k) order.add({.microbatch = k, .stage = stage});
    for (std::uint32_t j = 0; j < m; ++j) {
      order.add({.microbatch = reverse ? m - 1 - j : j, .stage = stage, .kind = OpKind::backward});
    }
    order.end_device();
  }
}

}  // namespace

void generate_gpipe(const ScheduleShape& shape, OpLists& order) { generate(shape, order, true); }
void generate_gpipe_fifo(const ScheduleShape& shape, OpLists& order) {
  generate(shape, order, false);
}

}  // namespace penstock
