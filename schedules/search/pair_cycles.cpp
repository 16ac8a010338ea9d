// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/pair_cycles.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

namespace penstock {
namespace {

/// Activations that a device holds at most.
double peak_of(const OrderProblem& problem, const PairCycle& cycle, std::uint32_t d) {
  const auto& first = cycle.first[d];
  const auto between = [&](Pass from, Pass to) { return first[index(to)] - first[index(from)]; };
  const auto of_chunk = [&](Pass f, Pass i, Pass w) {
    const StageTimes& t = problem.time(d, f);
    return between(f, i) * t.activation + between(i, w) * t.activation_after_input;
  };
  double held = of_chunk(kF0, kI0, kW0) + of_chunk(kF1, kI1, kW1);
  double most = held;
  for (const Pass pass : cycle.order[d]) {
    held += problem.change(d, pass);
    most = std::max(most, held);
  }
  return most;
}

/// What a device holds above its limit, as a share of it.
double excess_of(const OrderProblem& problem, const PairCycle& cycle, std::uint32_t d) {
  return std::max(0.0, peak_of(problem, cycle, d) / problem.limit(d) - 1);
}

/// Minus the logarithm of a number drawn from (0, 1], by a line between powers of two: what a
/// library rounds in its own way would find other orders elsewhere.
double about_exponential(std::uint64_t bits) {
  constexpr double kLn2 = 0.6931471805599453;
  constexpr std::uint64_t kFractions = 4096;
  const double fraction = static_cast<double>(bits % kFractions) / kFractions;
  const int halvings = std::countr_one(bits / kFractions % kFractions);
  return kLn2 * (halvings + 1 - fraction);
}

/// The search's state: a cycle, and what it takes and holds.
class CycleSearch {
 public:
  explicit CycleSearch(const OrderProblem& problem)
      : problem_(problem), period_(problem), excess_(problem.devices) {}

  FoundCycles improved(const PairCycle& from, std::size_t evaluations, std::mt19937_64& random) {
    constexpr double kEnough = 1 + 1e-9, kHeat = 0.06;  // heat: shares of the least period
    constexpr double kFirstPrice = 1;                   // of a limit exceeded by all of it
    FoundCycles best;
    double best_period = kNever, nearest = kNever;
    now_ = from;
    if (!period_.take(now_)) return best;
    for (std::uint32_t d = 0; d < problem_.devices; ++d) excess_[d] = excess(d);
    double held = sum_of(excess_);
    for (std::size_t i = 0;; ++i) {
      if (held <= 0 && period_.period() < best_period) {
        best.within = now_;
        best_period = period_.period();
      }
      if (const double cost = period_.period() * (1 + kPriceOfExcess * held); cost < nearest) {
        best.nearest = now_;
        nearest = cost;
      }
      if (i == evaluations || best_period <= period_.least() * kEnough) return best;
      const double done = static_cast<double>(i) / static_cast<double>(evaluations);
      const double heat = kHeat * period_.least() * (1 - done) * (1 - done);
      const double price = kFirstPrice + (kPriceOfExcess - kFirstPrice) * done * done;
      const double at_most =
          period_.period() * (1 + price * held) + heat * about_exponential(random());
      const std::uint32_t d = change(held > 0, random);
      const double excess_before = std::exchange(excess_[d], excess(d));
      const double trial_held = sum_of(excess_);
      if (period_.take(d, now_.order[d], now_.first[d], at_most / (1 + price * trial_held))) {
        held = trial_held;
      } else {
        now_.order[d] = order_before_;
        now_.first[d] = first_before_;
        excess_[d] = excess_before;
      }
    }
  }

 private:
  static double sum_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  }

  double excess(std::uint32_t d) const { return excess_of(problem_, now_, d); }

  /// Changes the order of a device, one on the critical circle or one that holds too much more
  /// often than others, and keeps what it was. Returns which.
  std::uint32_t change(bool too_much, std::mt19937_64& random) {
    std::uint32_t d = static_cast<std::uint32_t>(random() % problem_.devices);
    std::uint32_t at = static_cast<std::uint32_t>(random() % kPasses);
    const auto draw = random() % 8;
    if (too_much && draw < 4) {
      for (std::uint32_t i = 0; i < problem_.devices && excess_[d] <= 0; ++i)
        d = (d + 1) % problem_.devices;
    } else if (draw < 7) {
      const auto [device, pass] = period_.critical(random());
      d = device;
      const auto& order = now_.order[d];
      at = static_cast<std::uint32_t>(std::ranges::find(order, pass) - order.begin());
      if (random() % 3 != 0) at = (at + kPasses - 1) % kPasses;
    }
    order_before_ = now_.order[d];
    first_before_ = now_.first[d];
    swap(d, at);
    if (random() % 3 == 0) swap(d, (at + (random() % 2 == 0 ? 1 : kPasses - 1)) % kPasses);
    return d;
  }

  /// The pass there and the one after it change places, the last one with the first of the next
  /// cycle.
  void swap(std::uint32_t d, std::uint32_t at) {
    auto& order = now_.order[d];
    if (at + 1 < kPasses) return std::swap(order[at], order[at + 1]);
    ++now_.first[d][index(order.back())];
    --now_.first[d][index(order.front())];
    std::swap(order.back(), order.front());
  }

  const OrderProblem& problem_;
  CyclePeriod period_;
  std::vector<double> excess_;  // of what the device may hold, by device
  PairCycle now_;
  DevicePasses order_before_{};
  DeviceCycles first_before_{};
};

}  // namespace

std::optional<PairCycle> cycle_in(const OrderProblem& problem, const std::vector<Pass>& word) {
  PairCycle cycle;
  const std::size_t length = word.size() / problem.devices;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const auto passes = std::span(word).subspan(d * length, length);
    const std::size_t from = period_in(passes, kPasses);
    if (from == length) return std::nullopt;
    auto& first = cycle.first.emplace_back();
    for (const Pass pass : passes.first(from)) --first[index(pass)];
    auto& order = cycle.order.emplace_back();
    std::copy_n(passes.begin() + static_cast<std::ptrdiff_t>(from), kPasses, order.begin());
  }
  return cycle;
}

std::vector<Pass> word_of(const OrderProblem& problem, const PairCycle& cycle) {
  std::vector<Pass> word;
  word.reserve(problem.ops());
  const auto m = static_cast<std::int32_t>(problem.microbatches);
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const auto& first = cycle.first[d];
    const std::int32_t least = *std::ranges::min_element(first);
    const std::int32_t most = *std::ranges::max_element(first);
    for (std::int32_t n = least; n < most + m; ++n)
      for (const Pass pass : cycle.order[d]) {
        const std::int32_t k = n - first[index(pass)];
        if (k >= 0 && k < m) word.push_back(pass);
      }
  }
  return word;
}

double excess_of(const OrderProblem& problem, const PairCycle& cycle) {
  double sum = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d) sum += excess_of(problem, cycle, d);
  return sum;
}

double period_of(const OrderProblem& problem, const PairCycle& cycle) {
  CyclePeriod period(problem);
  return period.take(cycle) ? period.period() : kNever;
}

FoundCycles improved(const OrderProblem& problem, const PairCycle& from, std::size_t evaluations,
                     std::mt19937_64& random) {
  return CycleSearch(problem).improved(from, evaluations, random);
}

}  // namespace penstock
