// SPDX-License-Identifier: Apache-2.0
// What an executor keeps while its device runs: of a stage, of a microbatch on it, of a reduction.
#pragma once

#include "hw/executor.hpp"

#include <array>
#include <memory>
#include <vector>

namespace penstock {

/// Holds a unit of a stage's weights or gradients while it is whole. There are two of each, and
/// a unit has that of its number modulo two, so that the next one can come while it is used.
struct DeviceExecutor::UnitPlace {
  static constexpr std::size_t kNone = ~std::size_t{0};
  Block* block = nullptr;
  std::size_t unit = kNone;
  Event done = nullptr;  // gathered or, of gradients, reduced
  std::vector<Block*> received = {};
};

struct DeviceExecutor::StageState {
  /// A way of computing a microbatch, and what it takes.
  struct Variant {
    std::unique_ptr<Stage> stage;
    StageHoldings bytes;
  };

  std::uint32_t number;
  Variant usual;
  Variant stored;  // without recomputation; no stage where no op asks for it
  std::unique_ptr<WeightStore> weights;
  std::array<UnitPlace, 2> whole_weights, whole_gradients;
  std::size_t reduced = 0;              // units of the op that runs
  std::size_t used = UnitPlace::kNone;  // the unit whose weights it computes with
  std::size_t paced = 0;                // units for whose part of its time it has computed
  Event unit_begin = nullptr;           // where what is paced next of it begins

  const Variant& variant(const Op& op) const { return op.has(Op::stored) ? stored : usual; }
  const StageHoldings& bytes() const { return usual.bytes; }
  const StageSizes& sizes() const { return usual.stage->sizes(); }
};

/// The buffers of one microbatch on one stage, from its F to its W or B.
struct DeviceExecutor::InFlight {
  Block* input = nullptr;
  Block* saved = nullptr;
  Block* saved_for_weight = nullptr;
  Block* output = nullptr;
  Block* output_gradient = nullptr;
  Block* input_gradient = nullptr;
  Block* kept = nullptr;
  Block* workspace = nullptr;
  std::unique_ptr<TokenRoutes> routes = nullptr;  // where a model has experts
};

/// A part of a reduction, as this device takes part in it.
struct DeviceExecutor::Part {
  ReducedPart stated;
  std::int64_t first;  // of its elements
  std::vector<CollectiveStep> steps = {};
};

/// A reduction that goes on.
struct DeviceExecutor::Reduction {
  struct Received {
    Block* block;
    Event arrived;
  };
  std::vector<Received> received = {};  // in the order of the steps
  std::size_t taken = 0;                // of them
  std::vector<bool> there = {};         // parts whose gradients are complete
  std::size_t begun = 0;                // parts
  const Block* piled = nullptr;         // to be added to what comes next
  Event start = nullptr;                // of the first part
  Event met = nullptr, end = nullptr;   // of the last part
};

}  // namespace penstock
