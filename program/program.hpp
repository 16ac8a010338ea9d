// SPDX-License-Identifier: Apache-2.0
// A Program: everything an engine needs to know about *what* to run, and nothing about time.
//
// It is the lowered form of a schedule: per device the ordered ops (with optimizer steps and
// gradient reductions), which of them send and receive, the placement of stages, the rule that
// says which weight version each F and B uses, and how transfers hold their ends.
#pragma once

#include "program/op_lists.hpp"

#include <string>

namespace penstock {

/// Which weight version a microbatch uses, for F and B alike. With k the 0-based microbatch of its
/// replica and m microbatches per update (PipeDream, SOSP'19; PipeDream-2BW, ICML'21, section 3.1):
///   flush           floor(k / m)              held 1
///   stash           max(k - delay[s], 0)      held delay[s] + 1   (m = 1)
///   double_buffer   max(floor(k / m) - 1, 0)  held 2
///   latest          what is there when the op starts: F floor(max(k - delay[s], 0) / m), B
///                   floor(k / m) updates of its own replica (PipeMare), and those of the other
///                   replicas by then (ASP; program/latest_versions.hpp)
///   listed          as the generator lists them, for F and for B (TiMePReSt)
struct VersionRule {
  enum class Kind : std::uint8_t { flush, stash, double_buffer, latest, listed };
  Kind kind = Kind::flush;
  std::vector<std::uint32_t> delay;  ///< stash, latest: per virtual stage; empty: 0
  std::uint32_t extra_copies = 0;    ///< held beyond the rule by a particular implementation
  /// The weights a backward uses where they are no version by themselves; each takes a buffer as
  /// large as the weights, which `extra_copies` counts:
  ///   corrected  u = w - tau delta, of the latest w (PipeMare's T2; schedules/pipemare.hpp)
  ///   mixed      e^-d W(version) + (1 - e^-d) W(latest), d updates between them (I-TiMePReSt)
  enum class Backward : std::uint8_t { plain, corrected, mixed };
  Backward backward = Backward::plain;
  /// listed: [stage][k], of F and of B (I, W); `listed_held`: versions kept per stage.
  std::vector<std::vector<std::uint32_t>> forward_listed, backward_listed;
  std::vector<std::uint32_t> listed_held;

  /// `forward`: of F, otherwise of B, I and W.
  std::uint32_t version(std::uint32_t stage, std::uint32_t k, std::uint32_t per_update,
                        bool forward) const;
  /// Versions the rule keeps on a stage, the live one included.
  std::uint32_t held(std::uint32_t stage) const;
  std::string describe() const;

 private:
  static std::uint32_t minus(std::uint32_t a, std::uint32_t b) { return a > b ? a - b : 0; }
};

inline std::uint32_t VersionRule::version(std::uint32_t stage, std::uint32_t k,
                                          std::uint32_t per_update, bool forward) const {
  switch (kind) {
    case Kind::flush: return k / per_update;
    case Kind::latest: return (forward && !delay.empty() ? minus(k, delay[stage]) : k) / per_update;
    case Kind::listed: return (forward ? forward_listed : backward_listed)[stage][k];
    case Kind::stash: return minus(k, delay[stage]);
    case Kind::double_buffer: return minus(k / per_update, 1);
  }
  return 0;
}

inline std::uint32_t VersionRule::held(std::uint32_t stage) const {
  switch (kind) {
    case Kind::flush:
    case Kind::latest: return 1;
    case Kind::stash: return delay[stage] + 1;
    case Kind::double_buffer: return 2;
    case Kind::listed: return listed_held[stage];
  }
  return 1;
}

/// When the devices of a flushing pipeline make their optimizer steps, each not before its own
/// gradients are there (and reduced).
enum class StepSync : std::uint8_t {
  device,           ///< at once
  global,           ///< all together: a barrier
  post_validation,  ///< when the partial norm of the positions before has come, too
                    ///< (norm_chain.hpp)
};
inline constexpr std::string_view kStepSyncNames[] = {"device", "global", "post-validation"};

struct Program {
  std::string schedule;  ///< published name
  OpLists ops;
  Placement placement;
  VersionRule versions;
  Transfers transfers = Transfers::overlapped;
  std::uint32_t microbatches_per_update = 1;  ///< m, of a replica where the widths are equal
  std::uint32_t batches = 1;                  ///< updates of the run where the widths are equal
  bool flushes = true;                        ///< the pipeline drains at every update
  StepSync step_sync = StepSync::device;
  bool asynchronous = false;         ///< REDUCE_GRAD: a replica and the parameter servers, alone
  bool detached_reductions = false;  ///< REDUCE_GRAD runs beside the next batch; its STEP waits
  bool reduces_within = false;  ///< Mesh::reduces_within: REDUCE_GRAD without other devices, too
  bool gathers = false;  ///< new weights are gathered in the first F of each stage (Op::gathers)
  bool whole_backward = false;  ///< one B per update, with the number of its last microbatch

  /// Microbatches of the whole run, over all replicas and updates.
  std::uint32_t microbatches() const {
    return microbatches_per_update * batches * placement.round();
  }
  /// Number of a microbatch, or of an update, within the replica of a stage that it belongs to.
  std::uint32_t local(const Op& op) const {
    return placement.replicated() ? op.microbatch / placement.width_of(op.stage) : op.microbatch;
  }
  /// Microbatches of one update, on a replica of a stage. PipeDream updates after each one.
  std::uint32_t per_update(std::uint32_t stage) const {
    return placement.even() || versions.kind == VersionRule::Kind::stash
               ? microbatches_per_update
               : microbatches_per_update * (placement.round() / placement.width_of(stage));
  }
  /// Updates of a stage in the whole run.
  std::uint32_t updates(std::uint32_t stage) const {
    return placement.even() ? batches
                            : microbatches() / placement.width_of(stage) / per_update(stage);
  }
  /// Has a microbatch a backward of its own on a stage?
  bool has_backward(std::uint32_t stage, std::uint32_t microbatch) const {
    if (!whole_backward) return true;
    const std::uint32_t m = per_update(stage);
    return microbatch / placement.width_of(stage) % m == m - 1;
  }
  /// Microbatches that an op computes: all of an update where that has one backward.
  std::uint32_t microbatches_of(const Op& op) const {
    return whole_backward && op.kind == OpKind::backward ? per_update(op.stage) : 1;
  }
  /// Weight version an F, B, I or W uses.
  std::uint32_t version(const Op& op) const {
    return versions.version(op.stage, local(op), per_update(op.stage), op.kind == OpKind::forward);
  }
};

}  // namespace penstock
