#include "plan/search/order_run.hpp"

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

}  // namespace

OrderRun::OrderRun(const OpLists& order, const std::vector<std::uint32_t>& position, std::size_t m)
    : order_(order), position_(position), m_(m) {
  for (int d = 0; d < order.devices(); ++d) {
    first_.push_back(device_.size());
    device_.resize(device_.size() + order.of(d).size(), static_cast<std::uint32_t>(d));
  }
  end_s_.resize(device_.size());
  after_.resize(device_.size());
}

std::vector<double> OrderRun::run(const std::vector<StageParts>& duration_s, double message_s) {
  for (auto* outputs : {&forward_, &backward_}) outputs->assign(position_.size() * m_, kUnknown);
  std::vector<std::size_t> next(first_.size(), 0);
  std::size_t done = 0;
  for (std::size_t before = 1; before != done;) {
    before = done;
    for (std::size_t d = 0; d < next.size(); ++d)
      done += advance(d, next[d], duration_s, message_s);
  }
  if (done != end_s_.size()) return {};
  std::vector<double> out;
  for (std::size_t d = 0; d < next.size(); ++d)
    out.push_back(next[d] == 0 ? 0 : end_s_[first_[d] + next[d] - 1]);
  return out;
}

/// Which op gives an op its input: unknown, nothing, or one that has run.
std::size_t OrderRun::input(const Op& op) const {
  const std::size_t at = op.stage * m_ + op.microbatch;
  if (op.kind == OpKind::backward_weight) return kNothing;  // its I comes before it
  if (op.kind == OpKind::forward) return op.stage == 0 ? kNothing : forward_[at - m_];
  return op.stage + 1U == position_.size() ? forward_[at] : backward_[at + m_];
}

/// Runs a device as far as its inputs go; returns by how many ops.
std::size_t OrderRun::advance(std::size_t d, std::size_t& next,
                              const std::vector<StageParts>& duration_s, double message_s) {
  const std::span<const Op> ops = order_.of(static_cast<int>(d));
  const std::size_t from = next;
  for (; next < ops.size(); ++next) {
    const Op& op = ops[next];
    const std::size_t at = first_[d] + next, gives = input(op);
    if (gives == kUnknown) break;
    double start = next == 0 ? 0 : end_s_[at - 1];
    after_[at] = next == 0 ? kNothing : at - 1;
    if (gives != kNothing) {
      const double there = end_s_[gives] + (device_[gives] == d ? 0 : message_s);
      if (there > start || next == 0) {
        start = there;
        after_[at] = gives;
      }
    }
    const StageParts& takes = duration_s[op.stage];
    end_s_[at] = start + (op.kind == OpKind::forward ? takes[kForward] : 0) +
                 (has_input_part(op) ? takes[kInput] : 0) +
                 (has_weight_part(op) ? takes[kWeight] : 0);
    const std::size_t here = op.stage * m_ + op.microbatch;
    if (op.kind == OpKind::forward) forward_[here] = at;
    if (has_input_part(op)) backward_[here] = at;
  }
  return next - from;
}

Path OrderRun::path_to(std::size_t device) const {
  Path path{std::vector<StageParts>(position_.size()), 0, device};
  const std::size_t ops = order_.of(static_cast<int>(device)).size();
  std::size_t at = ops == 0 ? kNothing : first_[device] + ops - 1;
  while (at != kNothing) {
    const std::size_t d = device_[at], before = after_[at];
    const Op& op = order_.of(static_cast<int>(d))[at - first_[d]];
    StageParts& times = path.times[op.stage];
    times[kForward] += op.kind == OpKind::forward ? 1 : 0;
    times[kInput] += has_input_part(op) ? 1 : 0;
    times[kWeight] += has_weight_part(op) ? 1 : 0;
    path.messages += before != kNothing && device_[before] != d ? 1 : 0;
    at = before;
  }
  return path;
}

}  // namespace penstock
