// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/torch_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

ActionKind kind_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return ActionKind::forward;
    case OpKind::backward: return ActionKind::backward;
    case OpKind::backward_input: return ActionKind::backward_input;
    default: return ActionKind::backward_weight;
  }
}

}  // namespace

std::string to_string(const Action& action) {
  if (action.kind == ActionKind::bubble) return "";
  std::string text = fmt::format("{}{}", action.stage, kActionNames[static_cast<int>(action.kind)]);
  if (action.microbatch != kNoMicrobatch) text += std::to_string(action.microbatch);
  return text;
}

bool TorchTable::communicates() const {
  const auto moves = [](const Action& a) { return is_send(a.kind) || is_receive(a.kind); };
  return std::ranges::any_of(rows,
                             [&](const ActionRow& row) { return std::ranges::any_of(row, moves); });
}

TorchTable table_of(const OpLists& order) {
  TorchTable table;
  for (int d = 0; d < order.devices(); ++d) {
    ActionRow& row = table.rows.emplace_back();
    for (const Op& op : order.of_device(d)) {
      if (is_compute(op.kind))
        row.push_back({kind_of(op.kind), op.has(Op::paired), op.stage, op.microbatch});
    }
  }
  return table;
}

std::string to_csv(const TorchTable& table) {
  std::string text;
  for (const ActionRow& row : table.rows) {
    bool second = false;  // of a pair
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += second ? ';' : ',';
      if (row[i].paired && !second) text += '(';
      text += to_string(row[i]);
      if (second) text += ")OVERLAP_F_B";
      second = row[i].paired && !second;
    }
    text += '\n';
  }
  return text;
}

}  // namespace penstock
