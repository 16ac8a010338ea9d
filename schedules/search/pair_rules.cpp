// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/pair_rules.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

PairRules::PairRules(const OrderProblem& problem)
    : problem_(problem),
      run_(problem),
      wake_(problem.devices),
      lower_most_(problem.devices),
      after_forward_(problem.devices) {}

void PairRules::reset(const PairRule& rule) {
  rule_ = rule;
  run_.reset();
  for (std::uint32_t d = 0; d < problem_.devices; ++d) {
    const double upper = run_.activation(d, Pass::f_upper), limit = problem_.limit(d);
    double reserve = rule.reserve + rule.reserve_slope * d;
    if (rule.half && upper > 0) reserve = std::min(reserve, std::floor(limit / upper / 2));
    const double least = run_.activation(d, Pass::f_lower);
    lower_most_[d] = std::max(limit - upper * std::max(reserve, 1.0), least);
  }
  std::fill(after_forward_.begin(), after_forward_.end(), false);
  wake_.set(0, 0);
}

OrderCost PairRules::run_rule(const PairRule& rule) {
  reset(rule);
  for (std::uint32_t d = wake_.first(); wake_.time_of(d) < kNever; d = wake_.first())
    decide(d, wake_.time_of(d));
  return run_.cost();
}

std::array<Pass, 4> PairRules::preference(std::uint32_t d) const {
  std::array<Pass, 4> order = rule_.ranks;
  if (rule_.prefer == PairRule::Prefer::in_turn) {
    const bool backward_first = after_forward_[d];
    std::size_t i = 0;
    for (const Pass pass : rule_.ranks) {
      if (is_forward(pass) != backward_first) order[i++] = pass;
    }
    for (const Pass pass : rule_.ranks) {
      if (is_forward(pass) == backward_first) order[i++] = pass;
    }
  }
  if (rule_.prefer == PairRule::Prefer::slots) {
    std::array<double, 4> slot{};
    for (const Pass pass : order)
      slot[index(pass)] = rule_.slots[d][index(pass)] + kBlockInterval * run_.count(d, pass);
    for (std::size_t i = 1; i < order.size(); ++i) {
      for (std::size_t j = i; j > 0 && slot[index(order[j])] < slot[index(order[j - 1])]; --j)
        std::swap(order[j], order[j - 1]);
    }
  }
  return order;
}

bool PairRules::has_room(std::uint32_t d, Pass pass) const {
  if (!run_.fits(d, pass)) return false;
  return pass != Pass::f_lower || run_.held_lower(d) + run_.activation(d, pass) <= lower_most_[d];
}

PairRules::Choice PairRules::choose(std::uint32_t d, double now) const {
  Choice choice;
  const std::uint32_t pending = run_.pending(d);
  for (const Pass pass : preference(d)) {
    const double ready = run_.ready(d, pass);
    if (ready == kNever) continue;
    const bool room = has_room(d, pass);
    if (!room && pending == 0) continue;
    if (ready <= now) {
      choice.any = true;
      choice.pass = pass;
      if (!room || (is_forward(pass) && pending > rule_.pending)) choice.pass = Pass::w_lower;
      return choice;
    }
    if (room) choice.better = std::min(choice.better, ready);
    choice.next = std::min(choice.next, ready);
  }
  return choice;
}

/// Is a W to fill the time until `next`?
bool PairRules::weight_before(std::uint32_t d, double now, double next) const {
  if (run_.pending(d) == 0) return false;
  const double time = run_.duration(d, run_.next_weight(d));
  if (now + time * (1 - rule_.overrun) <= next) return true;
  return run_.started(d) && run_.idle(d) + (next - run_.free_at(d)) > rule_.idle;
}

void PairRules::decide(std::uint32_t d, double now) {
  const Choice choice = choose(d, now);
  if (!choice.any) {
    if (weight_before(d, now, choice.next)) return start(d, Pass::w_lower, now);
    return wake_.set(d, choice.next);
  }
  const Pass timed = is_weight(choice.pass) ? run_.next_weight(d) : choice.pass;
  if (choice.better < now + rule_.patience * run_.duration(d, timed)) {
    if (weight_before(d, now, choice.better)) return start(d, Pass::w_lower, now);
    return wake_.set(d, choice.better);
  }
  start(d, choice.pass, now);
}

void PairRules::start(std::uint32_t d, Pass pass, double now) {
  if (is_weight(pass)) {
    run_.start_weight(d, now);
    return wake_.set(d, run_.free_at(d));
  }
  after_forward_[d] = is_forward(pass);
  const DeviceRun::Arrival to = run_.start(d, pass, now);
  wake_.set(d, run_.free_at(d));
  if (to.time == kNever || to.device == d) return;
  const double time = std::max(to.time, run_.free_at(to.device));
  if (time < wake_.time_of(to.device)) wake_.set(to.device, time);
}

namespace {

template <typename T, std::size_t N>
const T& any_of(std::mt19937_64& random, const std::array<T, N>& values) {
  return values[random() % N];
}

}  // namespace

PairRule any_rule(std::mt19937_64& random, std::uint32_t p, double room) {
  using Prefer = PairRule::Prefer;
  static constexpr std::array kRanks = {
      std::array{kI1, kI0, kF1, kF0}, std::array{kI0, kI1, kF1, kF0},
      std::array{kF1, kI1, kI0, kF0}, std::array{kF1, kF0, kI1, kI0},
      std::array{kI1, kF1, kI0, kF0}};
  PairRule rule;
  rule.prefer =
      any_of(random, std::array{Prefer::slots, Prefer::slots, Prefer::fixed, Prefer::in_turn});
  rule.ranks = any_of(random, kRanks);
  if (rule.prefer == Prefer::slots) rule.slots = any_slots(random, p, room);
  rule.patience = any_of(random, std::array{0.0, 0.5, 1.0});
  rule.overrun = any_of(random, std::array{0.0, 0.3, 0.6, 1.0});
  rule.pending = any_of(random, std::array{0U, 1U, 2U, 1000U});
  rule.reserve = any_of(random, std::array{1.0, 1.0, 2.0});
  rule.reserve_slope = any_of(random, std::array{0.0, 0.5, 1.0});
  rule.half = random() % 2 == 0;
  rule.idle = any_of(random, std::array{0.0, 0.5, 0.9, 1.0, kNever, kNever});
  return rule;
}

PairRule similar_rule(const PairRule& rule, const PairRule& other, std::mt19937_64& random) {
  PairRule mixed = rule;
  const auto take = [&](auto PairRule::*field) {
    if (random() % 4 == 0) mixed.*field = other.*field;
  };
  take(&PairRule::prefer);
  take(&PairRule::ranks);
  take(&PairRule::patience);
  take(&PairRule::overrun);
  take(&PairRule::pending);
  take(&PairRule::reserve);
  take(&PairRule::reserve_slope);
  take(&PairRule::half);
  take(&PairRule::idle);
  if (other.prefer == PairRule::Prefer::slots && random() % 4 == 0) mixed.slots = other.slots;
  if (mixed.slots.empty()) mixed.prefer = rule.prefer;
  return mixed;
}

}  // namespace penstock
