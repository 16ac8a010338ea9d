// SPDX-License-Identifier: Apache-2.0
// Holdings: everything that occupies the memory of a GPU, by owner, between two points of the run.
//   weights, versions held, gradients, optimizer   all the time
//   activations   from the start of F: a part until the end of I or B, another until that of W or
//                 B; what I leaves for W, from its end until that of W
//   buffers       a received message from its departure until F starts, or the backward has ended;
//                 a sent one from the end of its op until it has arrived
//   workspace     while an op runs
// They are a list, whose owners and points are open to others. The predicted memory
// (traces/memory.hpp) and the executor's ledger (hw/ledger.hpp) go through the same one. At one
// instant, what ends is freed before what starts is allocated.
#pragma once

#include "program/op_lists.hpp"

#include <array>

namespace penstock {

enum class Owner : std::uint8_t {
  weights,
  weight_versions,
  gradients,
  optimizer,
  activations,
  buffers,
  workspace
};
inline constexpr std::size_t kOwners = 7;
inline constexpr std::string_view kOwnerNames[kOwners] = {
    "weights", "weight_versions", "gradients", "optimizer", "activations", "buffers", "workspace"};

/// A point of an op: its message departs, it starts, it ends, the message that it sends arrives.
enum class OpPoint : std::uint8_t { departure, start, end, arrival };
inline constexpr std::size_t kOpPoints = 4;

/// A point in the life of a microbatch on a stage. That of I or of W is one of B, too, where what
/// is held began before.
struct LifePoint {
  OpKind of = OpKind::forward;
  OpPoint at = OpPoint::start;

  bool operator==(const LifePoint&) const = default;
};

/// What a microbatch holds on a stage, in bytes of a GPU. Of a backward of several microbatches,
/// what F began and messages count for each of them.
struct Holding {
  Owner owner = Owner::activations;
  std::int64_t bytes = 0;
  LifePoint from, until;

  bool operator==(const Holding&) const = default;
};

/// What a virtual stage holds on a GPU.
struct StageHoldings {
  /// All the time; the bytes of a version count for each beyond the live one.
  std::int64_t weights = 0, version = 0, gradients = 0, optimizer = 0;
  std::vector<Holding> of_microbatch{};

  /// Adds what is held while an op of this kind runs.
  void work(OpKind kind, std::int64_t bytes);
  /// Adds activations that F makes: until the end of I, until that of W, and what I makes for W.
  void keep(std::int64_t until_input, std::int64_t until_weight, std::int64_t made_for_weight);
  /// Adds the buffers of messages: F's, and gradients, which are as large.
  void send(std::int64_t input_message, std::int64_t output_message);
  /// Returns all that an owner has of a microbatch, whenever that is, and the largest part of it.
  std::int64_t all_of(Owner owner) const;
  std::int64_t largest_of(Owner owner) const;
  /// Returns the bytes of an owner between two points.
  std::int64_t between(Owner owner, const LifePoint& from, const LifePoint& until) const;
};

/// As its costs say; `stored`: of microbatches of which nothing is recomputed (Op::stored);
/// `parts`: GPUs that hold a part of each message.
StageHoldings stage_holdings(const std::vector<StageCosts>& costs, std::uint32_t stage, bool stored,
                             int parts = 1);
/// The same of microbatches with these costs.
StageHoldings stage_holdings(const std::vector<StageCosts>& costs, std::uint32_t stage,
                             const PassCosts& pass, int parts = 1);

/// Calls `change(owner, bytes)` for what a stage holds all the time, with so many versions of its
/// weights beyond the live one.
template <class Change>
void for_each_constant_holding(const StageHoldings& held, std::int64_t versions,
                               const Change& change) {
  change(Owner::weights, held.weights);
  change(Owner::weight_versions, held.version * versions);
  change(Owner::gradients, held.gradients);
  change(Owner::optimizer, held.optimizer);
}

/// Bytes by point and owner.
using OpChanges = std::array<std::array<std::int64_t, kOwners>, kOpPoints>;
/// Returns what a compute op takes and, negative, gives back. `microbatches`: those that a backward
/// is of.
OpChanges changes_of(const Op& op, const StageHoldings& held, std::int64_t microbatches);

/// Calls `change(point, owner, bytes)` for what a compute op takes and, negative, gives back; at
/// most once for each point and owner.
template <class Change>
void for_each_holding(const Op& op, const StageHoldings& held, std::int64_t microbatches,
                      const Change& change) {
  const OpChanges changes = changes_of(op, held, microbatches);
  for (std::size_t point = 0; point < kOpPoints; ++point)
    for (std::size_t owner = 0; owner < kOwners; ++owner)
      if (changes[point][owner] != 0)
        change(static_cast<OpPoint>(point), static_cast<Owner>(owner), changes[point][owner]);
}

}  // namespace penstock
