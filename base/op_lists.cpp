#include "base/op_lists.hpp"

namespace penstock {

std::uint32_t OpLists::previous_compute(int device, std::uint32_t g) const {
  while (g > begin(device)) {
    if (is_compute(ops_[--g].kind)) return g;
  }
  return kNoOp;
}

std::uint32_t OpLists::next_compute(int device, std::uint32_t g) const {
  while (++g < end(device)) {
    if (is_compute(ops_[g].kind)) return g;
  }
  return kNoOp;
}

Placement loop_placement(int depth, int chunks, int width) {
  Placement placement{.depth = depth, .width = width, .position = {}};
  for (int s = 0; s < depth * chunks; ++s) {
    placement.position.push_back(static_cast<std::uint32_t>(s % depth));
  }
  return placement;
}

}  // namespace penstock
