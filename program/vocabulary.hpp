// SPDX-License-Identifier: Apache-2.0
// The only domain words every room shares: kinds of operation, ids, and what a stage costs.
//
// Ids are 0-based. A *device* is one pipeline position of one replica (replica r of position d is
// device r*p + d): one GPU, or several that share its stage (tensor-parallel ranks); a
// *stage* is a virtual stage 0 ... p*v-1; a *microbatch* counts over all batches of the run. An
// operation is written as in PyTorch's pipelining tables: `<stage><kind><microbatch>`, e.g. `2F5`.
#pragma once

#include "program/recipe.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class OpKind : std::uint8_t {
  forward,          ///< F: activations of the next stage
  backward,         ///< B: gradients of the input and of the weights
  backward_input,   ///< I: gradient of the input only
  backward_weight,  ///< W: gradient of the weights only
  reduce_grad,      ///< REDUCE_GRAD: all-reduce of the gradients over the replicas of a stage
  step,             ///< STEP: optimizer step, makes the next weight version
};

inline constexpr std::size_t kOpKinds = 6;

/// The kind's token: F, B, I, W, REDUCE_GRAD, STEP.
std::string_view token(OpKind kind);

constexpr bool is_backward(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::backward_input;
}
constexpr bool is_compute(OpKind kind) { return kind <= OpKind::backward_weight; }

/// One operation in a device's ordered list. Eight bytes: a run of 1,024 stages x 2,048
/// microbatches has 4.2 million of them. For `step` and `reduce_grad`, `microbatch` is the update.
struct Op {
  enum Flag : std::uint8_t {
    receives = 1,  ///< its input comes from another device
    sends = 2,     ///< a message leaves for another device as soon as it ends
    detached = 4,  ///< REDUCE_GRAD: the device goes on at once, only its STEP waits for the traffic
    paired = 8,    ///< runs together with the next op of its device: an overlapped F and B
    stored = 16,   ///< F and its B: nothing is recomputed (torchgpipe's checkpoint)
    gathers = 32,  ///< F: the first of its device's one stage after a STEP: gathers new weights
    prefetched = 64,  ///< F: the first of one of several stages, whose new weights it waits for
  };
  std::uint32_t microbatch = 0;
  std::uint16_t stage = 0;
  OpKind kind = OpKind::forward;
  std::uint8_t flags = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
  bool operator==(const Op&) const = default;
};
static_assert(sizeof(Op) == 8);

/// `2F5`, `0I3`, `1STEP4`.
std::string to_string(const Op& op);

/// How a transfer holds its two ends. One textbook 1F1B takes 6.9 to 15.5 s in five engines that
/// each hide another rule, so it is named, and printed in every result.
enum class Transfers : std::uint8_t {
  free,        ///< messages cost nothing
  overlapped,  ///< eager, beside compute: neither end is held
  coupled,     ///< the send after an op and the receive of the next are one rendezvous batch
  blocking,    ///< eager: the sender is held for latency + bytes / bandwidth
};
inline constexpr std::string_view kTransfersNames[] = {"free", "overlapped", "coupled", "blocking"};
constexpr std::string_view to_string(Transfers t) { return kTransfersNames[static_cast<int>(t)]; }
/// Does a device go on only when what it sent has arrived?
constexpr bool holds_sender(Transfers transfers) {
  return transfers == Transfers::coupled || transfers == Transfers::blocking;
}

/// A part of the gradients of a device that is reduced by itself: `share` of the bytes, there when
/// `ready` of the time of its stage's last backward of the update has passed (wait-free
/// backpropagation: Zhang et al., ATC'17).
struct GradientBucket {
  static constexpr std::uint16_t kAllStages = 0xFFFF;

  double ready = 1;
  double share = 1;
  /// kAllStages: it is there when all gradients of the device are; on a device with one stage,
  /// that.
  std::uint16_t stage = kAllStages;
};

/// Holds what a compute op of one kind costs each GPU of its stage.
struct OpCost {
  double seconds = 0;      ///< of computing, also of what is computed again
  double flops = 0;        ///< of the model, without what is computed again
  double again_flops = 0;  ///< of activations that are computed again
  Recipe recipe{};         ///< how the seconds go with what the GPUs of the stage exchange
};

/// Holds what one microbatch costs on a stage, per GPU: its F, B, I and W, and the bytes that they
/// keep.
struct PassCosts {
  std::array<OpCost, 4> ops{};  ///< index = OpKind
  /// F where it gathers the weights of an update (Op::gathers); none: it is like the others.
  std::optional<OpCost> gathering{};

  std::int64_t activation_bytes = 0;  ///< kept from F until B, or until I
  std::int64_t activation_after_input_bytes =
      0;                                      ///< kept from I until W: more, where I makes again
  std::int64_t forward_workspace_bytes = 0;   ///< lives while F runs
  std::int64_t backward_workspace_bytes = 0;  ///< lives while B, I or W runs
  /// Of these, what only B and I need: activations that they make again.
  std::int64_t again_workspace_bytes = 0;

  /// Returns the costs of a compute op of this kind.
  OpCost& operator[](OpKind kind) { return ops.at(static_cast<std::size_t>(kind)); }
  const OpCost& operator[](OpKind kind) const { return ops.at(static_cast<std::size_t>(kind)); }
  const OpCost& operator[](const Op& op) const {
    return op.has(Op::gathers) && gathering ? *gathering : (*this)[op.kind];
  }
};

/// Costs of microbatches that are not alike, as their tokens go to other experts or their documents
/// have other lengths. By microbatch of the run: whose times its ops take, and whose bytes its
/// device holds.
struct DrawnCosts {
  std::vector<PassCosts> passes;
  std::vector<std::uint32_t> times, held;
};

/// What one virtual stage costs per microbatch (times, activation bytes) or in total (parameters),
/// per GPU where several share the stage.
struct StageCosts : PassCosts {
  /// Costs of a microbatch of which everything is stored where others are recomputed (Op::stored);
  /// none: all microbatches are alike.
  std::optional<PassCosts> stored{};
  /// Costs of each microbatch; null: they are alike. Then those of the stage are of a mean one.
  std::shared_ptr<const DrawnCosts> drawn{};

  double reduce_grad_s = 0;  ///< all-reduce of the gradients over the replicas
  double step_s = 0;         ///< optimizer step

  /// What an F and a B that run together (DualPipe) take less than one after the other.
  double overlap_saving_s = 0;

  /// Sent on per microbatch, by each GPU of the stage to its counterpart; the input gradient has
  /// the same size.
  std::int64_t output_bytes = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t version_bytes = 0;         ///< each weight version held beyond the live one
  std::int64_t reduced_bytes = 0;         ///< all-reduced between replicas
  std::int64_t expert_reduced_bytes = 0;  ///< of these, gradients of experts

  /// Microbatches of one backward op: all of an update where a schedule runs one backward for them
  /// (TiMePReSt). The backward's times are of all of them; bytes stay those of one.
  int backward_microbatches = 1;

  /// Returns the costs of the op's microbatch.
  const PassCosts& pass(const Op& op) const {
    if (drawn && is_compute(op.kind)) return drawn->passes[drawn->times[op.microbatch]];
    return pass(op.has(Op::stored));
  }
  const PassCosts& pass(bool is_stored) const { return is_stored && stored ? *stored : *this; }
  /// Calls `visit(seconds)` for the seconds of computing in all its ops, and what pairs save.
  template <class Visit>
  void for_each_compute_s(const Visit& visit) {
    const auto visit_pass = [&](PassCosts& pass) {
      for (OpCost& op : pass.ops) visit(op.seconds);
      if (pass.gathering) visit(pass.gathering->seconds);
    };
    visit_pass(*this);
    if (stored) visit_pass(*stored);
    if (drawn) {  // others may have the same
      auto own = std::make_shared<DrawnCosts>(*drawn);
      for (PassCosts& pass : own->passes) visit_pass(pass);
      drawn = std::move(own);
    }
    visit(overlap_saving_s);
  }
};

/// Bytes of the message an op sends: its stage's output, or the gradient of its stage's input,
/// which is as large as the output of the stage before. `costs` is per virtual stage.
inline std::int64_t message_bytes(const std::vector<StageCosts>& costs, const Op& sender) {
  if (sender.kind == OpKind::forward) return costs[sender.stage].output_bytes;
  return costs[sender.stage - 1U].output_bytes * costs[sender.stage].backward_microbatches;
}

}  // namespace penstock
