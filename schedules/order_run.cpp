// SPDX-License-Identifier: Apache-2.0
#include "schedules/order_run.hpp"

#include <algorithm>
#include <span>

namespace penstock {
namespace {

constexpr std::size_t kUnknown = SIZE_MAX, kNothing = SIZE_MAX - 1;

bool has_input_part(const Op& op) {
  return op.kind == OpKind::backward || op.kind == OpKind::backward_input;
}
bool has_weight_part(const Op& op) {
  return op.kind == OpKind::backward || op.kind == OpKind::backward_weight;
}

double of_op(const Op& op, const OpParts& parts) {
  if (op.kind == OpKind::forward) return parts[kForwardPart];
  return (has_input_part(op) ? parts[kInputPart] : 0) +
         (has_weight_part(op) ? parts[kWeightPart] : 0);
}

}  // namespace

OrderRun::OrderRun(const OpLists& order, std::size_t stages, std::size_t microbatches)
    : order_(order), stages_(stages), m_(microbatches) {
  for (int d = 0; d < order.devices(); ++d) {
    first_.push_back(device_.size());
    device_.resize(device_.size() + order.of_device(d).size(), static_cast<std::uint32_t>(d));
  }
  end_.resize(device_.size());
  after_.resize(device_.size());
}

void OrderRun::run_order(const std::vector<OpParts>& duration, double message) {
  for (auto* outputs : {&forward_, &backward_}) outputs->assign(stages_ * m_, kUnknown);
  begins_.assign(first_.size(), 0);
  ends_.assign(first_.size(), 0);
  stuck_.clear();
  std::vector<std::size_t> next(first_.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < next.size(); ++d) {
      const std::size_t before = next[d];
      next[d] = advance(d, before, duration, message);
      moved = moved || next[d] != before;
    }
  }
  for (std::size_t d = 0; d < next.size(); ++d) {
    const std::span<const Op> ops = order_.of_device(static_cast<int>(d));
    if (next[d] > 0) ends_[d] = end_[first_[d] + next[d] - 1];
    if (next[d] < ops.size()) stuck_.push_back(ops[next[d]]);
  }
}

/// Which op gives an op its input: unknown, nothing, or one that has run. A B or I comes after its
/// F, a W after its I, all on one device.
std::size_t OrderRun::input(const Op& op) const {
  const std::size_t here = at(op.stage, op.microbatch);
  if (op.kind == OpKind::backward_weight) return backward_[here];
  if (op.kind == OpKind::forward) return op.stage == 0 ? kNothing : forward_[here - m_];
  if (forward_[here] == kUnknown || op.stage + 1U == stages_) return forward_[here];
  return backward_[here + m_];
}

/// Runs a device as far as its inputs go; returns how far.
std::size_t OrderRun::advance(std::size_t d, std::size_t next, const std::vector<OpParts>& duration,
                              double message) {
  const std::span<const Op> ops = order_.of_device(static_cast<int>(d));
  while (next < ops.size()) {
    const std::size_t op = first_[d] + next, count = ops[next].has(Op::paired) ? 2 : 1;
    double start = next == 0 ? 0 : end_[op - 1], taken = 0;
    std::size_t after = next == 0 ? kNothing : op - 1;
    for (const Op& one : ops.subspan(next, count)) {
      taken += of_op(one, duration[one.stage]);
      const std::size_t gives = input(one);
      if (gives == kUnknown) return next;
      if (gives == kNothing) continue;
      const double there = end_[gives] + (device_[gives] == d ? 0 : message);
      if (there <= start && after != kNothing) continue;
      start = std::max(start, there);
      after = gives;
    }
    if (next == 0) begins_[d] = start;
    const std::size_t last = op + count - 1;
    for (std::size_t i = op; i <= last; ++i) {
      end_[i] = start + taken;
      after_[i] = i == op ? after : i - 1;
    }
    for (const Op& one : ops.subspan(next, count)) {
      if (one.kind == OpKind::forward) forward_[at(one.stage, one.microbatch)] = last;
      if (has_input_part(one)) backward_[at(one.stage, one.microbatch)] = last;
    }
    next += count;
  }
  return next;
}

OpPath OrderRun::path_to(std::size_t device) const {
  OpPath path{std::vector<OpParts>(stages_), 0, device};
  const std::size_t ops = order_.of_device(static_cast<int>(device)).size();
  std::size_t op = ops == 0 ? kNothing : first_[device] + ops - 1;
  while (op != kNothing) {
    const std::size_t d = device_[op], before = after_[op];
    const Op& one = order_.of_device(static_cast<int>(d))[op - first_[d]];
    OpParts& times = path.times[one.stage];
    times[kForwardPart] += one.kind == OpKind::forward ? 1 : 0;
    times[kInputPart] += has_input_part(one) ? 1 : 0;
    times[kWeightPart] += has_weight_part(one) ? 1 : 0;
    path.messages += before != kNothing && device_[before] != d ? 1 : 0;
    op = before;
  }
  return path;
}

}  // namespace penstock
