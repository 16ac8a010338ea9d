#include "base/op_lists.hpp"

namespace penstock {

Placement loop_placement(int depth, int chunks, int width) {
  Placement placement{.depth = depth, .width = width, .position = {}};
  for (int s = 0; s < depth * chunks; ++s) {
    placement.position.push_back(static_cast<std::uint32_t>(s % depth));
  }
  return placement;
}

}  // namespace penstock
