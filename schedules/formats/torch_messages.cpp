// SPDX-License-Identifier: Apache-2.0
// The messages of a table with communication, and the two ends of each.
#include "schedules/formats/torch_source.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace penstock {
namespace {

/// Sends and receives: each one for a hop between two devices, in the right row, after the producer
/// and before the consumer, and in the same order at both ends.
class Communication {
 public:
  explicit Communication(TorchSource& source)
      : source_(source), partner_(source.size(), kNoAction) {}

  void check() {
    for (ActionId id = 0; id < source_.size(); ++id) {
      const Action& a = source_[id];
      if (is_send(a.kind)) check_send(id);
      if (is_receive(a.kind)) check_receive(id);
      if (a.kind == ActionKind::forward || is_backward(a.kind)) check_hop(id);
    }
    match();
  }

  std::vector<ActionId> take_partners() { return std::move(partner_); }

  /// Where the two ends of a pair of devices would wait for each other with one channel for both
  /// directions.
  std::vector<std::string> one_channel_warnings() const {
    std::vector<std::string> out;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<ActionId>> ends;
    for (ActionId id = 0; id < source_.size(); ++id) {
      if (const auto peer = peer_of(id)) ends[{source_.row_of(id), *peer}].push_back(id);
    }
    for (const auto& [who, here] : ends) {
      if (who.first > who.second) continue;
      const auto& there = ends[{who.second, who.first}];
      const auto clash = [&](ActionId x, ActionId y) {
        return is_send(source_[x].kind) == is_send(source_[y].kind);
      };
      const auto [x, y] = std::ranges::mismatch(here, there, std::not_fn(clash));
      if (x == here.end() || y == there.end()) continue;
      out.push_back(fmt::format(
          "with one channel for both directions between devices {} and {} (NCCL without batches) "
          "'{}' ({}) and '{}' ({}) would wait for each other",
          who.first, who.second, source_.name(*x), source_.place(*x), source_.name(*y),
          source_.place(*y)));
    }
    return out;
  }

 private:
  using Direction = std::pair<std::uint32_t, std::uint32_t>;  // source row, destination row

  static bool is_forward(ActionKind kind) {
    return kind == ActionKind::send_f || kind == ActionKind::recv_f;
  }
  /// The op a SEND sends the output of, or a RECV receives the input of.
  ActionId own_op(const Action& a) const {
    return is_forward(a.kind) ? source_.forward(a.stage, a.microbatch)
                              : source_.backward(a.stage, a.microbatch);
  }
  /// The op at the other end; none at the ends of the pipeline.
  std::optional<Action> other_op(const Action& a) const {
    const bool up = is_send(a.kind) == is_forward(a.kind);  // towards the last stage
    if (up ? a.stage + 1 >= source_.stages() : a.stage == 0) return std::nullopt;
    return Action{is_forward(a.kind) ? ActionKind::forward : ActionKind::backward, false,
                  up ? a.stage + 1 : a.stage - 1, a.microbatch};
  }
  std::optional<std::uint32_t> peer_of(ActionId id) const {
    const Action& a = source_[id];
    if (!is_send(a.kind) && !is_receive(a.kind)) return std::nullopt;
    const auto other = other_op(a);
    if (!other) return std::nullopt;
    const ActionId op = source_.find(other->kind, other->stage, other->microbatch);
    if (op == kNoAction || source_.row_of(op) == source_.row_of(id)) return std::nullopt;
    return source_.row_of(op);
  }

  /// Is there anything to send, in this row, to another?
  bool check_place(ActionId id) {
    const Action& a = source_[id];
    const ActionId op = own_op(a);
    const auto complain = [&](const std::string& why) {
      source_.report(id, fmt::format("'{}' {}", source_.name(id), why));
      return false;
    };
    const auto other = other_op(a);
    if (!other) {
      return complain(fmt::format("is of stage {}, the {}, which has nobody to {}", a.stage,
                                  a.stage == 0 ? "first" : "last",
                                  is_send(a.kind) ? "send to" : "receive from"));
    }
    const std::string wanted =
        fmt::format("{}{}{}", a.stage, is_forward(a.kind) ? "F" : "B", a.microbatch);
    if (op == kNoAction) return complain(fmt::format("goes with '{}', which is nowhere", wanted));
    if (source_.row_of(op) != source_.row_of(id)) {
      return complain(fmt::format("stands on device {}, but '{}' on device {} ({})",
                                  source_.row_of(id), source_.name(op), source_.row_of(op),
                                  source_.place(op)));
    }
    const ActionId end = source_.find(other->kind, other->stage, other->microbatch);
    if (end != kNoAction && source_.row_of(end) == source_.row_of(id)) {
      return complain(
          fmt::format("is a message of device {} to itself: '{}' stands there, too ({})",
                      source_.row_of(id), source_.name(end), source_.place(end)));
    }
    return true;
  }

  void check_send(ActionId id) {
    if (!check_place(id)) return;
    const ActionId op = own_op(source_[id]);
    if (id < op) {
      source_.report(id, fmt::format("'{}' sends what '{}' makes only after it ({})",
                                     source_.name(id), source_.name(op), source_.place(op)));
    }
    expect_other(id, is_forward(source_[id].kind) ? ActionKind::recv_f : ActionKind::recv_b,
                 "is received nowhere");
  }

  void check_receive(ActionId id) {
    if (!check_place(id)) return;
    const ActionId op = own_op(source_[id]);
    if (op < id) {
      source_.report(id, fmt::format("'{}' comes after '{}', which needs it ({})", source_.name(id),
                                     source_.name(op), source_.place(op)));
    }
    expect_other(id, is_forward(source_[id].kind) ? ActionKind::send_f : ActionKind::send_b,
                 "is sent nowhere");
  }

  void expect_other(ActionId id, ActionKind kind, std::string_view why) {
    const auto other = other_op(source_[id]);
    if (source_.find(kind, other->stage, other->microbatch) != kNoAction) return;
    source_.report(id,
                   fmt::format("'{}' {}: there is no '{}'", source_.name(id), why,
                               to_string(Action{kind, false, other->stage, other->microbatch})));
  }

  /// A hop between devices that is neither sent nor received.
  void check_hop(ActionId id) {
    const Action& a = source_[id];
    const auto from = source_.producer(a);
    if (!from) return;
    const ActionId producer = source_.find(from->kind, from->stage, from->microbatch);
    if (producer == kNoAction || source_.row_of(producer) == source_.row_of(id)) return;
    const bool forward = a.kind == ActionKind::forward;
    const Action receive{forward ? ActionKind::recv_f : ActionKind::recv_b, false, a.stage,
                         a.microbatch};
    const Action send{forward ? ActionKind::send_f : ActionKind::send_b, false, from->stage,
                      a.microbatch};
    const bool either = source_.find(receive.kind, a.stage, a.microbatch) != kNoAction ||
                        source_.find(send.kind, send.stage, a.microbatch) != kNoAction;
    if (either) return;
    source_.report(id,
                   fmt::format("'{}' needs '{}' of device {} ({}), but there is no '{}' and no "
                               "'{}'",
                               source_.name(id), source_.name(producer), source_.row_of(producer),
                               source_.place(producer), to_string(send), to_string(receive)));
  }

  /// The k-th send of a direction meets the k-th receive.
  void match() {
    std::map<Direction, std::pair<std::vector<ActionId>, std::vector<ActionId>>> queues;
    for (ActionId id = 0; id < source_.size(); ++id) {
      const auto peer = peer_of(id);
      if (!peer) continue;
      const std::uint32_t here = source_.row_of(id);
      if (is_send(source_[id].kind))
        queues[{here, *peer}].first.push_back(id);
      else
        queues[{*peer, here}].second.push_back(id);
    }
    for (const auto& [direction, queue] : queues) {
      const auto& [sends, receives] = queue;
      const std::size_t both = std::min(sends.size(), receives.size());
      for (std::size_t k = 0; k < both; ++k) {
        partner_[sends[k]] = receives[k];
        partner_[receives[k]] = sends[k];
      }
      report_mismatch(direction, sends, receives);
    }
  }

  /// Only the first of a direction: what follows is out of step because of it.
  void report_mismatch(const Direction& direction, const std::vector<ActionId>& sends,
                       const std::vector<ActionId>& receives) {
    for (std::size_t k = 0; k < std::min(sends.size(), receives.size()); ++k) {
      const auto sent = other_op(source_[sends[k]]);
      const Action& expected = source_[receives[k]];
      const bool same = sent->stage == expected.stage && sent->microbatch == expected.microbatch &&
                        is_forward(source_[sends[k]].kind) == is_forward(expected.kind);
      if (same) continue;
      source_.report(
          receives[k],
          fmt::format(
              "'{}' is receive {} of device {} from device {}, but send {} the other way is "
              "'{}' ({}); messages between two devices arrive in the order they are sent",
              source_.name(receives[k]), k + 1, direction.second, direction.first, k + 1,
              source_.name(sends[k]), source_.place(sends[k])));
      return;
    }
  }

  TorchSource& source_;
  std::vector<ActionId> partner_;
};

}  // namespace

MatchedMessages check_messages(TorchSource& source) {
  Communication communication(source);
  if (!source.communicates()) return {communication.take_partners(), {}};
  communication.check();
  std::vector<std::string> warnings = communication.one_channel_warnings();
  return {communication.take_partners(), std::move(warnings)};
}

}  // namespace penstock
