// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/cycle_period.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace penstock {

CyclePeriod::CyclePeriod(const OrderProblem& problem)
    : devices_(problem.devices), at_(std::size_t{kPasses} * problem.devices) {
  for (std::uint32_t d = 0; d < devices_; ++d) {
    const double work = problem.work(d) / problem.microbatches;
    if (work <= least_) continue;
    least_ = work;
    busiest_ = d;
  }
  rounding_ = least_ * 1e-10;
  const std::vector<PassLine> lines = pass_lines(problem);
  const auto add = [&](std::size_t line, double message) {
    const auto own = static_cast<std::uint32_t>(nodes_.size());
    const bool waits = lines[line].from < lines.size();
    const std::uint32_t input = waits ? at_[lines[line].from] : own;
    at_[line] = own;
    Node& node = nodes_.emplace_back();
    node.of = {static_cast<std::uint32_t>(line / kPasses), static_cast<Pass>(line % kPasses)};
    node.input = {input, waits ? nodes_[input].duration + message : -kNever, 0};
    node.duration = lines[line].duration;
    if (waits) nodes_[input].outputs[nodes_[input].output_count++] = own;
  };
  double message = 0;
  for (std::size_t line = index(kF0); line < lines.size(); line = lines[line].to) {
    add(line, message);
    message = lines[line].message;
  }
  for (std::size_t d = 0; d < devices_; ++d) add(d * kPasses + index(kW0), 0);
  for (std::size_t d = devices_; d-- > 0;) add(d * kPasses + index(kW1), 0);
  start_.resize(nodes_.size());
  for_input_.resize(nodes_.size());
  seen_.resize(nodes_.size());
  due_.resize(nodes_.size() / 64 + 1);
}

bool CyclePeriod::take(const PairCycle& cycle) {
  for (std::uint32_t d = 0; d < devices_; ++d) put(d, cycle.order[d], cycle.first[d]);
  std::ranges::fill(start_, 0);
  std::ranges::fill(for_input_, false);
  return find_period();
}

bool CyclePeriod::take(std::uint32_t d, const DevicePasses& order, const DeviceCycles& first,
                       double at_most) {
  if (at_most < least_) return false;
  DevicePasses order_before{};
  DeviceCycles first_before{};
  std::uint32_t n = node(d, kF0);
  while (nodes_[n].pass_before.cycles == 0) n = nodes_[n].after;
  for (Pass& pass : order_before) {
    pass = nodes_[n].of.pass;
    first_before[index(pass)] = nodes_[n].first;
    n = nodes_[n].after;
  }
  start_before_ = start_;
  for_input_before_ = for_input_;
  circle_before_ = circle_;
  const double period_before = period_;
  put(d, order, first);
  make_due_after(d, at_most);
  if (keeps_waits(d, at_most) && find_period()) return true;
  put(d, order_before, first_before);
  start_ = start_before_;
  for_input_ = for_input_before_;
  circle_.swap(circle_before_);
  period_ = period_before;
  return false;
}

CyclePeriod::PassOfDevice CyclePeriod::critical(std::uint64_t draw) const {
  return nodes_[circle_[draw % circle_.size()]].of;
}

inline void CyclePeriod::put(std::uint32_t d, const DevicePasses& order,
                             const DeviceCycles& first) {
  for (std::uint32_t i = 0; i < kPasses; ++i) {
    const std::uint32_t n = node(d, order[i]);
    const std::uint32_t before = node(d, order[(i + kPasses - 1) % kPasses]);
    nodes_[n].pass_before = {before, nodes_[before].duration, i == 0 ? 1.0 : 0.0};
    nodes_[before].after = n;
    nodes_[n].first = first[index(order[i])];
  }
  const auto put_input = [&](std::uint32_t n) {
    Node& node = nodes_[n];
    node.input.cycles = node.first - nodes_[node.input.from].first;
  };
  for (std::uint32_t i = 0; i < kPasses; ++i) {
    const std::uint32_t n = node(d, static_cast<Pass>(i));
    put_input(n);
    for (std::uint32_t out = 0; out < nodes_[n].output_count; ++out)
      put_input(nodes_[n].outputs[out]);
  }
}

/// If what it waits for asks for that.
inline bool CyclePeriod::start_later(std::uint32_t n, double period) {
  const double free = start_after(nodes_[n].pass_before, period);
  const double there = start_after(nodes_[n].input, period);
  if (std::max(free, there) <= start_[n] + rounding_) return false;
  start_[n] = std::max(free, there);
  for_input_[n] = there > free;
  return true;
}

/// What waits for passes of a device whose order has changed, or longer, the longer the period is;
/// for a shorter one than before everything.
void CyclePeriod::make_due_after(std::uint32_t d, double period) {
  for (std::uint32_t n = 0; n < nodes_.size(); ++n)
    if (period < period_ || nodes_[n].input.cycles < 0) make_due(n);
  for (std::uint32_t i = 0; i < kPasses; ++i) {
    const std::uint32_t n = node(d, static_cast<Pass>(i));
    make_due(n);
    for (std::uint32_t out = 0; out < nodes_[n].output_count; ++out)
      make_due(nodes_[n].outputs[out]);
  }
}

/// Lets passes that are due start later, until every wait is kept; false: some wait for one
/// another. A circle of them leads through the device that changed, or through any where the period
/// is shorter; one that is longer by rounding alone is left after so many rounds.
bool CyclePeriod::keeps_waits(std::uint32_t d, double period) {
  constexpr int kMostRounds = 400;
  const bool anywhere = period < period_;
  const auto refused = [&] {
    std::ranges::fill(due_, 0);
    return false;
  };
  std::ranges::fill(seen_, 0);
  for (int round = 0; round < kMostRounds; ++round) {
    bool later = false;
    for (std::uint32_t word = 0; word < due_.size(); ++word) {
      for (std::uint64_t left = due_[word]; left != 0;) {
        const int bit = std::countr_zero(left);
        const std::uint32_t n = word * 64 + static_cast<std::uint32_t>(bit);
        due_[word] &= ~(std::uint64_t{1} << bit);
        if (start_later(n, period)) {
          later = true;
          const bool again = std::exchange(seen_[n], 1) == 1;
          if (again && (anywhere || nodes_[n].of.device == d) && waits_for_itself(n))
            return refused();
          make_due(nodes_[n].after);
          for (std::uint32_t i = 0; i < nodes_[n].output_count; ++i) make_due(nodes_[n].outputs[i]);
        }
        left = due_[word] & ~std::uint64_t{1} << bit;
      }
    }
    if (!later) return true;
  }
  return refused();
}

/// Does a pass that started later wait for what waits for it?
bool CyclePeriod::waits_for_itself(std::uint32_t n) const {
  std::uint32_t at = longest_wait(n).from;
  for (std::size_t i = 0; i < nodes_.size() && seen_[at] == 1 && at != n; ++i)
    at = longest_wait(at).from;
  return at == n;
}

/// From the starts and the longest waits that are known, of any period.
bool CyclePeriod::find_period() {
  constexpr std::size_t kMostRounds = 400;
  period_ = least_;
  circle_.clear();
  for (std::uint32_t i = 0; i < kPasses; ++i)
    circle_.push_back(node(busiest_, static_cast<Pass>(i)));
  const auto count = static_cast<std::uint32_t>(nodes_.size());
  for (std::size_t round = 0; round < kMostRounds; ++round) {
    const double before = period_;
    if (!lengthen()) return false;
    if (round == 0 || period_ > before) start_by_circle();
    bool later = false;
    for (std::uint32_t n = 0; n < count; ++n) later |= start_later(n, period_);
    if (later) continue;
    const double least = *std::ranges::min_element(start_);
    for (double& start : start_) start -= least;
    return true;
  }
  return false;
}

/// To the longest of the circles in which passes wait for what they wait for the longest; false:
/// one takes no cycle, and no period is long enough.
bool CyclePeriod::lengthen() {
  constexpr double kLonger = 1 + 1e-12;
  std::ranges::fill(seen_, 0);
  for (std::uint32_t begin = 0; begin < nodes_.size(); ++begin) {
    const std::uint32_t mark = begin + 1;
    std::uint32_t n = begin;
    while (seen_[n] == 0) {
      seen_[n] = mark;
      n = longest_wait(n).from;
    }
    if (seen_[n] != mark) continue;
    double time = 0, cycles = 0;
    found_circle_.clear();
    do {
      const Wait& longest = longest_wait(n);
      found_circle_.push_back(n);
      time += longest.time;
      cycles += longest.cycles;
      n = longest.from;
    } while (n != found_circle_.front());
    if (cycles < 1) return false;
    if (time / cycles <= period_ * kLonger) continue;
    period_ = time / cycles;
    circle_.swap(found_circle_);
  }
  return true;
}

/// What leads to the critical circle starts as that asks.
void CyclePeriod::start_by_circle() {
  enum : std::uint32_t { kUnseen, kOnPath, kKnown };
  std::ranges::fill(seen_, kUnseen);
  seen_[circle_.front()] = kKnown;
  for (std::uint32_t begin = 0; begin < nodes_.size(); ++begin) {
    std::uint32_t n = begin;
    for (path_.clear(); seen_[n] == kUnseen; n = longest_wait(n).from) {
      seen_[n] = kOnPath;
      path_.push_back(n);
    }
    if (seen_[n] != kKnown) continue;
    for (; !path_.empty(); path_.pop_back()) {
      const std::uint32_t at = path_.back();
      start_[at] = start_after(longest_wait(at), period_);
      seen_[at] = kKnown;
    }
  }
}

}  // namespace penstock
