// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/pair_rounds.hpp"

#include "schedules/search/run.hpp"

#include <algorithm>

namespace penstock {
namespace {

struct RoundRule {
  bool before_forward = true;         ///< a W may put off an F
  bool before_first_backward = true;  ///< and an I of the upper chunk
  std::vector<double> allowed;        ///< idle time by device, of the rounds before; may be empty
};

class Rounds {
 public:
  explicit Rounds(const OrderProblem& problem)
      : problem_(problem), p_(problem.devices), m_(problem.microbatches), run_(problem) {}

  OrderCost run_rule(const RoundRule& rule) {
    rule_ = &rule;
    run_.reset();
    stuck_ = false;
    most_allowed_ = 0;
    for (const double idle : rule.allowed) most_allowed_ = std::max(most_allowed_, idle);
    most_idle_ = 0;
    first_forwards();
    level_forwards();
    for (std::uint32_t round = 0; round < 2 * m_ && !stuck_; ++round) {
      backwards();
      forwards();
    }
    for (std::uint32_t d = 0; d < p_ && !stuck_; ++d) {
      while (run_.pending(d) > 0) run_.start_weight(d, run_.free_at(d));
    }
    return stuck_ ? OrderCost{} : run_.cost();
  }

  double most_idle() const { return most_idle_; }
  const std::vector<Pass>& word() const { return run_.word(); }
  std::vector<double> idle() const {
    std::vector<double> all;
    for (std::uint32_t d = 0; d < p_; ++d) all.push_back(run_.idle(d));
    return all;
  }

 private:
  bool left(std::uint32_t d, Pass pass) const { return run_.count(d, pass) < m_; }
  std::uint32_t forwards_of(std::uint32_t d) const {
    return run_.count(d, kF0) + run_.count(d, kF1);
  }

  /// Runs an op as early as it can; stuck when its input never comes or it does not fit.
  void put(std::uint32_t d, Pass pass) {
    const double ready = run_.ready(d, pass);
    stuck_ = stuck_ || ready == kNever || !run_.fits(d, pass);
    if (stuck_) return;
    run_.start(d, pass, std::max(ready, run_.free_at(d)));
    most_idle_ = std::max(most_idle_, run_.idle(d));
  }

  /// The first microbatch goes down the V and up again; until it is back, the devices before take
  /// more, as many as every one of them has the time and the room for.
  void first_forwards() {
    for (std::uint32_t d = 0; d < p_; ++d) put(d, kF0);
    for (std::uint32_t d = p_; d-- > 0 && !stuck_;) {
      const double back = run_.ready(d, kF1);
      while (!stuck_ && d + 1 < p_ && may_take_more(d, back)) {
        for (std::uint32_t before = 0; before <= d; ++before) put(before, kF0);
      }
      put(d, kF1);
    }
  }

  bool may_take_more(std::uint32_t d, double until) const {
    return run_.held(d) + run_.activation(d, kF0) * (2 + 2 * d) <= problem_.limit(d) &&
           run_.free_at(d) + run_.duration(d, kF0) <= until && left(d, kF0);
  }

  /// No device may have begun fewer forwards than the one before it.
  void level_forwards() {
    Pass next = kF0;
    for (std::uint32_t d = 1; d < p_; ++d) {
      while (!stuck_ && lags(d)) {
        for (std::uint32_t after = p_; after-- > d;) {
          if (left(after, next)) put(after, next);
        }
        next = next == kF0 ? kF1 : kF0;
      }
    }
  }

  bool lags(std::uint32_t d) const {
    return forwards_of(d) < forwards_of(d - 1) ||
           (run_.count(d, kF1) <= run_.count(d - 1, kF1) && left(d - 1, kF1));
  }

  bool upper_backward_next(std::uint32_t d) const {
    if (run_.count(d, kI0) >= run_.count(d, kI1)) return true;
    if (d + 1 == p_ || !left(d, kI1)) return false;
    return run_.count(d + 1, kI0) <= run_.count(d, kI0);
  }

  void backwards() {
    std::vector<bool> upper(p_);
    for (std::uint32_t d = 0; d < p_; ++d) upper[d] = upper_backward_next(d);
    for (std::uint32_t d = p_; d-- > 0 && !stuck_;) {
      if (!upper[d]) put_after_weights(d, kI0, true, d + 1 < p_);
    }
    for (std::uint32_t d = 0; d < p_ && !stuck_; ++d) {
      if (upper[d]) put_after_weights(d, kI1, rule_->before_first_backward, d > 0);
    }
  }

  void forwards() {
    for (std::uint32_t d = 0; d < p_ && !stuck_; ++d) {
      if (!left(d, kF1)) continue;
      const bool caught_up = run_.count(d, kF1) >= run_.count(d, kF0);
      if (!caught_up && (d + 1 == p_ || run_.count(d + 1, kF1) > run_.count(d, kF1))) {
        put_forward(d, kF1, d + 1 < p_);
      } else if (caught_up ||
                 (left(d, kF0) && (d == 0 || run_.count(d - 1, kF0) > run_.count(d, kF0)))) {
        put_forward(d, kF0, d > 0);
      }
    }
  }

  void put_forward(std::uint32_t d, Pass pass, bool from_another) {
    while (!run_.fits(d, pass) && run_.pending(d) > 0) weight(d);
    put_after_weights(d, pass, rule_->before_forward, from_another);
  }

  /// Fills the gap before an op that comes from another device, and runs it.
  void put_after_weights(std::uint32_t d, Pass pass, bool may_put_off, bool from_another) {
    const double there = from_another ? run_.ready(d, pass) : kNever;
    if (there < kNever) {
      while (run_.pending(d) > 0 &&
             there >= run_.free_at(d) + run_.duration(d, run_.next_weight(d)))
        weight(d);
      if (may_put_off && run_.pending(d) > 0 && there - run_.free_at(d) > spare(d)) weight(d);
    }
    put(d, pass);
  }

  void weight(std::uint32_t d) { run_.start_weight(d, run_.free_at(d)); }

  /// Idle time that a device can still afford.
  double spare(std::uint32_t d) const {
    const double allowed = rule_->allowed.empty() ? 0 : most_allowed_ - rule_->allowed[d];
    return std::max(most_idle_, allowed) - run_.idle(d);
  }

  const OrderProblem& problem_;
  std::uint32_t p_, m_;
  DeviceRun run_;
  const RoundRule* rule_ = nullptr;
  double most_idle_ = 0, most_allowed_ = 0;
  bool stuck_ = false;
};

/// The rule, and then again with what the devices stood idle as long as that becomes less.
void repeat(Rounds& rounds, RoundRule rule, Order& best) {
  for (double least = kNever;;) {
    const OrderCost cost = rounds.run_rule(rule);
    if (!cost.found() || rounds.most_idle() >= least) return;
    if (cost.stage_time < best.cost.stage_time) best = {cost, rounds.word()};
    least = rounds.most_idle();
    rule.allowed = rounds.idle();
  }
}

}  // namespace

Order round_order(const OrderProblem& problem) {
  Order best;
  Rounds rounds(problem);
  for (const bool backward : {true, false}) {
    for (const bool forward : {true, false}) repeat(rounds, {forward, backward, {}}, best);
  }
  return best;
}

}  // namespace penstock
