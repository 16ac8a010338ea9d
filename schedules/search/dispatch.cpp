#include "schedules/search/dispatch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

Dispatch::Dispatch(const LinearProblem& problem)
    : problem_(problem),
      p_(problem.depth),
      m_(problem.microbatches),
      leaves_(std::bit_ceil(problem.depth)),
      devices_(p_),
      forward_end_(std::size_t{p_} * m_),
      input_end_(std::size_t{p_} * m_),
      key_(leaves_, kNever),
      tree_(std::size_t{2} * leaves_) {
  for (std::uint32_t d = 0; d < leaves_; ++d) tree_[leaves_ + d] = d;
}

void Dispatch::wake(std::uint32_t d, double time) {
  key_[d] = time;
  for (std::uint32_t at = (leaves_ + d) / 2; at > 0; at /= 2) {
    const std::uint32_t left = tree_[2 * at], right = tree_[2 * at + 1];
    tree_[at] = key_[right] < key_[left] ? right : left;
  }
}

void Dispatch::reset(const DispatchRule& rule) {
  rule_ = rule;
  clock_ = 0;
  for (std::uint32_t d = 0; d < p_; ++d) {
    const double ahead = 1 + std::ceil(rule.reach * (p_ - 1 - d) - 1e-9);
    devices_[d] = {.time = problem_.times[d], .limit = problem_.limits[d]};
    devices_[d].most_ahead = d + 1 == p_ && std::isinf(rule.reach) ? m_
                             : ahead < m_                          ? static_cast<std::uint32_t>(ahead)
                                                                   : m_;
    wake(d, 0);
  }
}

bool Dispatch::room(const Device& device) const {
  return device.held + device.time.activation <= device.limit * (1 + 1e-9);
}

/// When the next F, or I, is there; kNever while nobody knows.
double Dispatch::forward_at(std::uint32_t d) const {
  const std::uint32_t k = devices_[d].f;
  if (k == m_) return kNever;
  if (d == 0) return 0;
  if (devices_[d - 1].f == k) return kNever;
  return forward_end_[std::size_t{d - 1} * m_ + k] + problem_.transfer;
}

double Dispatch::input_at(std::uint32_t d) const {
  const std::uint32_t k = devices_[d].i;
  if (k == devices_[d].f) return kNever;
  if (d + 1 == p_) return 0;
  if (devices_[d + 1].i == k) return kNever;
  return input_end_[std::size_t{d + 1} * m_ + k] + problem_.transfer;
}

/// A bound on it from below while nobody knows: the neighbour has first to end what it does.
double Dispatch::forward_not_before(std::uint32_t d) const {
  if (devices_[d].f == m_) return kNever;
  const double busy = std::max(clock_, devices_[d - 1].now);
  return busy + devices_[d - 1].time.forward + problem_.transfer;
}

double Dispatch::input_not_before(std::uint32_t d) const {
  if (devices_[d].i == m_) return kNever;
  if (d + 1 == p_) return kNever;
  const double busy = std::max(clock_, devices_[d + 1].now);
  return busy + devices_[d + 1].time.backward_input + problem_.transfer;
}

void Dispatch::start(std::uint32_t d, OpKind kind) {
  Device& device = devices_[d];
  const StageTimes& t = device.time;
  letters_[d * problem_.word() + device.f + device.i + device.w] = kind;
  if (device.f + device.i + device.w == 0) device.begin = clock_;
  if (kind == OpKind::forward) {
    device.held += t.activation;
    device.now = clock_ + t.forward;
    forward_end_[std::size_t{d} * m_ + device.f++] = device.now;
    if (d + 1 < p_ && key_[d + 1] == kNever) wake(d + 1, clock_);
  } else if (kind == OpKind::backward_input) {
    device.held -= t.activation - t.activation_after_input;
    device.now = clock_ + t.backward_input;
    input_end_[std::size_t{d} * m_ + device.i++] = device.now;
    if (d > 0 && key_[d - 1] == kNever) wake(d - 1, clock_);
  } else {
    device.held -= t.activation_after_input;
    device.now = clock_ + t.backward_weight;
    ++device.w;
  }
  if (kind != OpKind::backward_weight) device.last = kind;
  wake(d, device.w == m_ ? kNever : device.now);
}

void Dispatch::decide(std::uint32_t d) {
  const Device& device = devices_[d];
  const bool ahead = device.f - device.i < device.most_ahead &&
                     (d + 1 == p_ || device.f < devices_[d + 1].f + rule_.lead);
  const bool fits = room(device);
  const double forward = forward_at(d), input = input_at(d);
  const bool has_weight = device.w < device.i;
  const bool can_forward = forward <= clock_ && ahead && fits;
  const bool can_input = input <= clock_;
  using First = DispatchRule::First;
  const bool forward_first =
      rule_.first == First::forward ||
      (rule_.first == First::in_turn && device.last == OpKind::backward_input);
  if (can_forward && (forward_first || !can_input)) return start(d, OpKind::forward);
  if (can_input && !(forward_first && forward <= clock_ && ahead && !fits && has_weight && rule_.eager_weight))
    return start(d, OpKind::backward_input);
  if (!has_weight) {
    const double next = std::min(ahead && fits ? forward : kNever, input);
    return wake(d, next > clock_ ? next : kNever);
  }
  const double next_forward = !(ahead && fits)   ? kNever
                              : forward < kNever ? forward
                                                 : forward_not_before(d);
  const double next_input = input < kNever ? input : input_not_before(d);
  const double next = std::min(next_forward, next_input);
  const bool blocked = forward <= clock_ && ahead && !fits;
  if (blocked || next - clock_ >= rule_.patience * device.time.backward_weight)
    return start(d, OpKind::backward_weight);
  const double known = std::min(ahead && fits ? forward : kNever, input);
  wake(d, known > clock_ ? known : kNever);
}

LinearCost Dispatch::run(const DispatchRule& rule, std::vector<OpKind>& letters) {
  letters.resize(p_ * problem_.word());
  letters_ = letters.data();
  reset(rule);
  const std::size_t total = letters.size();
  for (std::size_t done = 0; done < total;) {
    const std::uint32_t d = earliest();
    if (key_[d] == kNever) {
      // All wait for one another: those that hold a W run it.
      bool any = false;
      for (std::uint32_t e = 0; e < p_; ++e) {
        if (devices_[e].w < devices_[e].i) {
          clock_ = std::max(clock_, devices_[e].now);
          start(e, OpKind::backward_weight);
          ++done;
          any = true;
        }
      }
      if (!any) return {};
      continue;
    }
    clock_ = key_[d];
    const std::uint32_t before = devices_[d].f + devices_[d].i + devices_[d].w;
    decide(d);
    done += devices_[d].f + devices_[d].i + devices_[d].w - before;
  }
  LinearCost cost{0, 0};
  for (const Device& device : devices_) {
    cost.stage_time = std::max(cost.stage_time, device.now - device.begin);
    cost.makespan = std::max(cost.makespan, device.now);
  }
  return cost;
}

}  // namespace penstock
