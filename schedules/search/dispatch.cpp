// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/dispatch.hpp"

#include <algorithm>

namespace penstock {

Dispatch::Dispatch(const OrderProblem& problem)
    : problem_(problem),
      last_(problem.devices - 1),
      run_(problem),
      wake_(problem.devices),
      devices_(problem.devices),
      return_time_(problem.devices) {
  for (std::uint32_t d = last_; d-- > 0;) {
    const bool next = d + 1 == last_;
    return_time_[d] =
        problem.transfer + (next ? 0 : problem.times[d + 1].backward_input + return_time_[d + 1]);
  }
}

void Dispatch::wake_sleeper(std::uint32_t d) {
  if (run_.free_at(d) <= clock_ && wake_.time_of(d) > clock_ && left(d, kW0) > 0)
    wake_.set(d, clock_);
}

void Dispatch::reset(const std::vector<DispatchRule>& rules, const OrderCost& target) {
  clock_ = 0;
  run_.reset();
  double head = 0;  // before the device can begin
  for (std::uint32_t d = 0; d <= last_; ++d) {
    const double aim = std::min(target.stage_time, target.makespan - head);
    devices_[d] = {.spare = with_slack(aim - problem_.work(d)), .rule = rules[d]};
    wake_.set(d, 0);
    head += problem_.times[d].forward + problem_.transfer;
  }
}

/// While nobody knows when the next F or I is there: no sooner than this, as the neighbour has to
/// end what it does first.
double Dispatch::not_before(std::uint32_t d, std::uint32_t neighbour, Pass pass) const {
  if (neighbour > last_ || left(d, pass) == 0) return kNever;
  return std::max(clock_, run_.free_at(neighbour)) + run_.duration(neighbour, pass) +
         problem_.transfer;
}

bool Dispatch::is_ahead(std::uint32_t d) const {
  const DispatchRule& rule = devices_[d].rule;
  const std::uint32_t f = run_.count(d, kF0);
  return f - run_.count(d, kI0) >= rule.ahead ||
         (d < last_ && f - run_.count(d + 1, kF0) >= rule.lead);
}

/// Would the I that are there be done by the arrival of the last one, if a W ran now? The last
/// device is thought to go on without a gap.
bool Dispatch::can_catch_up(std::uint32_t d) const {
  const double arrival = run_.free_at(last_) + left(last_, kF0) * run_.duration(last_, kF0) +
                         left(last_, kI0) * run_.duration(last_, kI0) + return_time_[d];
  const double behind = (left(d, kI0) - 1) * run_.duration(d, kI0);
  return clock_ + run_.duration(d, kW0) + behind <= arrival;
}

void Dispatch::start(std::uint32_t d, Pass pass) {
  Device& device = devices_[d];
  if (run_.started(d)) device.idle += clock_ - run_.free_at(d);
  if (is_weight(pass)) {
    run_.start_weight(d, clock_);
    return wake_.set(d, left(d, kW0) == 0 ? kNever : run_.free_at(d));
  }
  run_.start(d, pass, clock_);
  wake_.set(d, run_.free_at(d));
  device.last = pass;
  if (d > 0) wake_sleeper(d - 1);
  if (d < last_) wake_sleeper(d + 1);
}

void Dispatch::decide(std::uint32_t d) {
  const Device& device = devices_[d];
  const double forward = is_ahead(d) ? kNever : run_.ready(d, kF0), input = run_.ready(d, kI0);
  const bool fits = run_.fits(d, kF0);
  const bool forward_first = device.rule.in_turn && device.last == kI0;
  const bool can_forward = fits && forward <= clock_, can_input = input <= clock_;
  if (can_forward && (forward_first || !can_input)) return start(d, kF0);
  if (can_input) return start(d, kI0);
  if (run_.pending(d) == 0) return wake_.set(d, std::min(fits ? forward : kNever, input));
  if (forward <= clock_) return start(d, kW0);  // which makes room for it
  decide_on_weight(d, fits && !is_ahead(d), forward, input);
}

/// Neither an F nor an I is there: runs a W, or waits for them.
void Dispatch::decide_on_weight(std::uint32_t d, bool may_forward, double forward, double input) {
  const Device& device = devices_[d];
  if (!may_forward) forward = kNever;
  const double known = std::min(forward, input);
  double next = known;
  if (may_forward && forward == kNever) next = std::min(next, not_before(d, d - 1, kF0));
  if (input == kNever) next = std::min(next, not_before(d, d + 1, kI0));
  const bool affordable = left(d, kF0) == 0 && device.rule.waits_late
                              ? !can_catch_up(d)
                              : device.idle + (next - run_.free_at(d)) <= device.spare;
  if (affordable && next - clock_ < device.rule.patience * run_.duration(d, kW0))
    return wake_.set(d, known);
  start(d, kW0);
}

/// All wait for one another: only a W can make room. False when there is none.
bool Dispatch::start_any_weight() {
  for (std::uint32_t d = 0; d <= last_; ++d) {
    if (run_.pending(d) == 0) continue;
    clock_ = std::max(clock_, run_.free_at(d));
    start(d, kW0);
    return true;
  }
  return false;
}

OrderCost Dispatch::run_rules(const std::vector<DispatchRule>& rules, const OrderCost& target) {
  reset(rules, target);
  do {
    for (std::uint32_t d = wake_.first(); wake_.time_of(d) < kNever; d = wake_.first()) {
      clock_ = wake_.time_of(d);
      decide(d);
    }
  } while (start_any_weight());
  return run_.cost();
}

}  // namespace penstock
