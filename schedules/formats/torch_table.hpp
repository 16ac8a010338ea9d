// SPDX-License-Identifier: Apache-2.0
// The tables of torch.distributed.pipelining: a row per device (its rank), a cell per action.
//
//   <stage><kind>[<microbatch>]   kind: F I B W, UNSHARD RESHARD REDUCE_GRAD, SEND_F RECV_F SEND_B
//                                 RECV_B; e.g. 2F0, 1UNSHARD, 3SEND_F1
//   (0F7;7B3)OVERLAP_F_B          a forward and a backward that run together
//   nothing                       a bubble: a slot that the schedule leaves idle
//
// PyTorch 2.5 wrote B for the input's half, W for the weights' and BW for both: a table that has
// BW, or W and nowhere an I, is read so.
//
// As CSV: one line per device, cells separated by commas (torch's _load_csv and _dump_csv). A table
// has compute actions only ("compute_only"), or everything a device does ("compute_comms").
#pragma once

#include "program/op_lists.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class ActionKind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  unshard,
  reshard,
  reduce_grad,
  send_f,
  recv_f,
  send_b,
  recv_b,
  bubble,
};

/// By ActionKind.
inline constexpr std::string_view kActionNames[] = {"F",       "B",       "I",           "W",
                                                    "UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F",
                                                    "RECV_F",  "SEND_B",  "RECV_B"};

constexpr bool is_compute(ActionKind kind) { return kind <= ActionKind::backward_weight; }
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_f || kind == ActionKind::send_b;
}
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::recv_f || kind == ActionKind::recv_b;
}
constexpr bool is_backward(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_input;
}

inline constexpr std::uint32_t kNoMicrobatch = 0xFFFFFFFF;

struct Action {
  ActionKind kind = ActionKind::bubble;
  bool paired = false;  ///< runs together with the next action of the row
  std::uint32_t stage = 0;
  std::uint32_t microbatch = kNoMicrobatch;

  bool operator==(const Action&) const = default;
};

/// `2F5`, `1UNSHARD`; a bubble is empty.
std::string to_string(const Action& action);

/// What a device does, in order.
using ActionRow = std::vector<Action>;

struct TorchTable {
  std::vector<ActionRow> rows;  ///< per device

  /// Does it say when to send and receive?
  bool communicates() const;
};

/// The compute ops of an order; nothing is idle in it.
TorchTable table_of(const OpLists& order);

/// One line per device, cells separated by commas.
std::string to_csv(const TorchTable& table);

/// With everything else a device does, by the rules of torch's lowering: bubbles are dropped; a
/// stage's parameters are fetched (UNSHARD) when it is among the next three that compute and given
/// up (RESHARD) when it is not, REDUCE_GRAD follows a stage's last gradient; a SEND stands straight
/// after its producer, and its RECV takes the next place of the peer's row at that time. A hop
/// within a device is neither. `where`: by stage and microbatch, so that mirrored placements, which
/// torch does not have, are lowered in the same way. Precondition: the order does not deadlock.
TorchTable with_communication(const TorchTable& compute, const Placement& where);

}  // namespace penstock
