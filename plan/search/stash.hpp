// Microbatches that a device holds at once, by the order of its ops alone, which no engine changes.
#pragma once

#include "plan/search/candidate.hpp"

#include <map>
#include <vector>

namespace penstock {

/// A stage that a device holds, and the microbatches of it that it computes.
struct Share {
  std::uint32_t stage;
  double microbatches;
};

/// [device]: its stages. Where one direction is mirrored (Chimera, DualPipe) a stage has two
/// devices.
std::vector<std::vector<Share>> shares_of(const PlanFamily& family);

/// [virtual stage]: the device that has it; of mirrored ones that of the first direction.
std::vector<std::uint32_t> positions_of(const PlanFamily& family);

/// Per device: k microbatches of every layer, at least, however the layers are spread over its
/// stages; activations that are freed by B or I, and those that are kept until W.
struct Stash {
  std::vector<double> until_input, until_weights;
};

/// Keeps what it computed.
class Stashes {
 public:
  const Stash& of(const PlanFamily& family);

 private:
  std::map<std::vector<std::int64_t>, Stash> known_;
};

}  // namespace penstock
