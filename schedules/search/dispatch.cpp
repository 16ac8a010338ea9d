#include "schedules/search/dispatch.hpp"

#include <algorithm>
#include <bit>

namespace penstock {
namespace {

constexpr double kAsleep = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // rounding of sums

}  // namespace

Dispatch::Dispatch(const LinearProblem& problem)
    : problem_(problem),
      p_(problem.depth),
      m_(problem.microbatches),
      leaves_(std::max(2U, std::bit_ceil(problem.depth))),
      devices_(p_),
      forward_end_(std::size_t{p_} * m_),
      input_end_(std::size_t{p_} * m_),
      key_(leaves_, kAsleep),
      tree_(std::size_t{2} * leaves_),
      way_back_(p_) {
  for (std::uint32_t d = p_ - 1; d-- > 0;) {
    const bool next = d + 2 == p_;
    way_back_[d] =
        problem.transfer + (next ? 0 : problem.times[d + 1].backward_input + way_back_[d + 1]);
  }
  for (std::uint32_t d = 0; d < leaves_; ++d) tree_[leaves_ + d] = d;
  for (std::uint32_t at = leaves_ - 1; at > 0; --at) tree_[at] = tree_[2 * at];
}

void Dispatch::wake(std::uint32_t d, double time) {
  key_[d] = time;
  for (std::uint32_t at = (leaves_ + d) / 2; at > 0; at /= 2) {
    const std::uint32_t left = tree_[2 * at], right = tree_[2 * at + 1];
    tree_[at] = key_[right] < key_[left] ? right : left;
  }
}

void Dispatch::wake_sleeper(std::uint32_t d) {
  if (devices_[d].now <= clock_ && key_[d] > clock_ && devices_[d].w < m_) wake(d, clock_);
}

void Dispatch::reset(const std::vector<DispatchRule>& rules, const LinearCost& target) {
  clock_ = 0;
  done_ = 0;
  double head = 0;  // before the device can begin
  for (std::uint32_t d = 0; d < p_; ++d) {
    const StageTimes& t = problem_.times[d];
    const double aim = std::min(target.stage_time, target.makespan - head);
    devices_[d] = {.time = t,
                   .limit = problem_.limits[d] * (1 + kRounding),
                   .spare = (aim - m_ * (t.forward + t.backward())) * (1 + kRounding),
                   .rule = rules[d]};
    wake(d, 0);
    head += t.forward + problem_.transfer;
  }
}

/// When the next F, or I, is there; kAsleep while nobody knows.
double Dispatch::forward_at(std::uint32_t d) const {
  const std::uint32_t k = devices_[d].f;
  if (k == m_) return kAsleep;
  if (d == 0) return 0;
  if (devices_[d - 1].f == k) return kAsleep;
  return forward_end_[std::size_t{d - 1} * m_ + k] + problem_.transfer;
}

double Dispatch::input_at(std::uint32_t d) const {
  const std::uint32_t k = devices_[d].i;
  if (k == devices_[d].f) return kAsleep;
  if (d + 1 == p_) return 0;
  if (devices_[d + 1].i == k) return kAsleep;
  return input_end_[std::size_t{d + 1} * m_ + k] + problem_.transfer;
}

/// No sooner than this while nobody knows: the neighbour has to end what it does first.
double Dispatch::forward_not_before(std::uint32_t d) const {
  if (d == 0 || devices_[d].f == m_) return kAsleep;
  const Device& before = devices_[d - 1];
  return std::max(clock_, before.now) + before.time.forward + problem_.transfer;
}

double Dispatch::input_not_before(std::uint32_t d) const {
  if (d + 1 == p_ || devices_[d].i == m_) return kAsleep;
  const Device& behind = devices_[d + 1];
  return std::max(clock_, behind.now) + behind.time.backward_input + problem_.transfer;
}

bool Dispatch::is_ahead(std::uint32_t d) const {
  const Device& device = devices_[d];
  return device.f - device.i >= device.rule.ahead ||
         (d + 1 < p_ && device.f - devices_[d + 1].f >= device.rule.lead);
}

/// Would the I that are there be done by the arrival of the last one, if a W ran now? The last
/// device is thought to go on without a gap.
bool Dispatch::can_catch_up(std::uint32_t d) const {
  const Device &device = devices_[d], &last = devices_[p_ - 1];
  const double arrival = last.now + (m_ - last.f) * last.time.forward +
                         (m_ - last.i) * last.time.backward_input + way_back_[d];
  const double behind = (m_ - 1 - device.i) * device.time.backward_input;
  return clock_ + device.time.backward_weight + behind <= arrival;
}

void Dispatch::start(std::uint32_t d, OpKind kind) {
  Device& device = devices_[d];
  const StageTimes& t = device.time;
  letters_[d * problem_.word() + device.done()] = kind;
  if (device.done() == 0) device.begin = device.now = clock_;
  device.idle += clock_ - device.now;
  if (kind == OpKind::forward) {
    device.held += t.activation;
    device.now = clock_ + t.forward;
    forward_end_[std::size_t{d} * m_ + device.f++] = device.now;
  } else if (kind == OpKind::backward_input) {
    device.held -= t.activation - t.activation_after_input;
    device.now = clock_ + t.backward_input;
    input_end_[std::size_t{d} * m_ + device.i++] = device.now;
  } else {
    device.held -= t.activation_after_input;
    device.now = clock_ + t.backward_weight;
    ++device.w;
  }
  ++done_;
  wake(d, device.w == m_ ? kAsleep : device.now);
  if (kind == OpKind::backward_weight) return;
  device.last = kind;
  if (d > 0) wake_sleeper(d - 1);
  if (d + 1 < p_) wake_sleeper(d + 1);
}

void Dispatch::decide(std::uint32_t d) {
  const Device& device = devices_[d];
  const double forward = is_ahead(d) ? kAsleep : forward_at(d), input = input_at(d);
  const bool fits = device.held + device.time.activation <= device.limit;
  const bool forward_first = device.rule.in_turn && device.last == OpKind::backward_input;
  const bool can_forward = fits && forward <= clock_, can_input = input <= clock_;
  if (can_forward && (forward_first || !can_input)) return start(d, OpKind::forward);
  if (can_input) return start(d, OpKind::backward_input);
  if (device.w == device.i) {
    const double next = std::min(fits ? forward : kAsleep, input);
    return wake(d, next);
  }
  if (forward <= clock_) return start(d, OpKind::backward_weight);  // which makes room for it
  decide_on_weight(d, fits && !is_ahead(d), forward, input);
}

/// Neither an F nor an I is there: runs a W, or waits for them.
void Dispatch::decide_on_weight(std::uint32_t d, bool may_forward, double forward, double input) {
  const Device& device = devices_[d];
  if (!may_forward) forward = kAsleep;
  const double known = std::min(forward, input);
  double next = known;
  if (may_forward && forward == kAsleep) next = std::min(next, forward_not_before(d));
  if (input == kAsleep) next = std::min(next, input_not_before(d));
  const bool affordable = device.f == m_ && device.rule.waits_late
                              ? !can_catch_up(d)
                              : device.idle + (next - device.now) <= device.spare;
  if (affordable && next - clock_ < device.rule.patience * device.time.backward_weight)
    return wake(d, known);
  start(d, OpKind::backward_weight);
}

/// All wait for one another: only a W can make room. False when there is none.
bool Dispatch::start_any_weight() {
  for (std::uint32_t d = 0; d < p_; ++d) {
    if (devices_[d].w == devices_[d].i) continue;
    clock_ = std::max(clock_, devices_[d].now);
    start(d, OpKind::backward_weight);
    return true;
  }
  return false;
}

LinearCost Dispatch::run(const std::vector<DispatchRule>& rules, const LinearCost& target,
                         std::vector<OpKind>& letters) {
  letters.resize(p_ * problem_.word());
  letters_ = letters.data();
  reset(rules, target);
  while (done_ < letters.size()) {
    const std::uint32_t d = tree_[1];
    if (key_[d] == kAsleep) {
      if (!start_any_weight()) return {};
      continue;
    }
    clock_ = key_[d];
    decide(d);
  }
  LinearCost cost{0, 0, 0};
  for (const Device& device : devices_) {
    cost.stage_time = std::max(cost.stage_time, device.now - device.begin);
    cost.makespan = std::max(cost.makespan, device.now);
    cost.mean += (device.now - device.begin) / p_;
  }
  return cost;
}

}  // namespace penstock
