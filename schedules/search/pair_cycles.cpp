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

/// The search's state: a cycle, and since when each of its passes can start.
class CycleSearch {
 public:
  explicit CycleSearch(const OrderProblem& problem)
      : problem_(problem),
        nodes_(kPasses * problem.devices),
        input_(nodes_),
        before_(nodes_),
        after_(nodes_),
        from_(nodes_),
        seen_(nodes_),
        wraps_(nodes_),
        queued_(nodes_),
        outputs_(nodes_),
        duration_(nodes_),
        until_there_(nodes_),
        first_(nodes_),
        start_(nodes_),
        excess_(problem.devices) {
    const double each = problem.microbatches;
    for (std::uint32_t d = 0; d < problem.devices; ++d) {
      if (problem.work(d) / each <= least_) continue;
      least_ = problem.work(d) / each;
      busiest_ = d;
    }
    find_inputs();
  }

  double period_of(const PairCycle& cycle) {
    now_ = cycle;
    for (std::uint32_t d = 0; d < problem_.devices; ++d) take_order(d);
    return find_period() ? period_ : kNever;
  }

  std::optional<PairCycle> improved(const PairCycle& from, std::size_t evaluations,
                                    std::mt19937_64& random) {
    constexpr double kEnough = 1 + 1e-9, kHeat = 0.06;  // heat: shares of the least period
    constexpr double kFirstPrice = 1, kLastPrice = 10;  // of a limit exceeded by all of it
    std::optional<PairCycle> best;
    double best_period = kNever;
    if (period_of(from) == kNever) return best;
    for (std::uint32_t d = 0; d < problem_.devices; ++d) excess_[d] = device_excess(d);
    double held = sum_of(excess_);
    for (std::size_t i = 0;; ++i) {
      if (held <= 0 && period_ < best_period) {
        best = now_;
        best_period = period_;
      }
      if (i == evaluations || best_period <= least_ * kEnough) return best;
      const double done = static_cast<double>(i) / static_cast<double>(evaluations);
      const double heat = kHeat * least_ * (1 - done) * (1 - done);
      const double price = kFirstPrice + (kLastPrice - kFirstPrice) * done * done;
      const double at_most = period_ * (1 + price * held) + heat * about_exponential(random());
      const std::uint32_t d = change(held > 0, random);
      const double excess_before = std::exchange(excess_[d], device_excess(d));
      const double trial_held = sum_of(excess_);
      if (changed_period(d, at_most / (1 + price * trial_held))) {
        held = trial_held;
      } else {
        now_.order[d] = order_before_;
        now_.first[d] = first_before_;
        excess_[d] = excess_before;
        take_order(d);
      }
    }
  }

 private:
  static std::uint32_t node(std::uint32_t d, Pass pass) { return d * kPasses + index(pass); }
  static double sum_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  }

  /// The pass whose output each one waits for; the first one waits for none.
  void find_inputs() {
    const std::vector<PassLine> lines = pass_lines(problem_);
    const auto add = [&](std::uint32_t n, double message) {
      const auto from = static_cast<std::uint32_t>(lines[n].from);
      input_[n] = from < nodes_ ? from : n;
      if (from < nodes_) outputs_[from].push_back(n);
      until_there_[n] = lines[input_[n]].duration + message;
      duration_[n] = lines[n].duration;
      in_order_.push_back(n);
    };
    double message = 0;
    for (std::uint32_t n = node(0, kF0); n < nodes_;) {
      add(n, message);
      message = lines[n].message;
      n = static_cast<std::uint32_t>(lines[n].to);
    }
    for (std::uint32_t d = 0; d < problem_.devices; ++d) add(node(d, kW0), 0);
    for (std::uint32_t d = problem_.devices; d-- > 0;) add(node(d, kW1), 0);
  }

  void take_order(std::uint32_t d) {
    for (std::uint32_t i = 0; i < kPasses; ++i) {
      const std::uint32_t n = node(d, now_.order[d][i]);
      before_[n] = node(d, now_.order[d][(i + kPasses - 1) % kPasses]);
      after_[before_[n]] = n;
      wraps_[n] = i == 0;
      first_[node(d, static_cast<Pass>(i))] = now_.first[d][i];
    }
  }

  /// The period of the cycle, its critical circle and its starts; false: passes wait for
  /// themselves.
  bool find_period() {
    period_ = least_;
    circle_.clear();
    for (std::uint32_t i = 0; i < kPasses; ++i)
      circle_.push_back(node(busiest_, static_cast<Pass>(i)));
    std::ranges::fill(start_, 0);
    return lengthen_until(kNever, in_order_);
  }

  /// The same after a device's order has changed; false, and nothing else changes: it is longer
  /// than `at_most`.
  bool changed_period(std::uint32_t d, double at_most) {
    if (at_most < least_) return false;
    take_order(d);
    const double period = period_;
    start_before_ = start_;
    circle_before_ = circle_;
    touched_.clear();
    for (std::uint32_t i = 0; i < kPasses; ++i) {
      const std::uint32_t n = node(d, static_cast<Pass>(i));
      touched_.push_back(n);
      for (const std::uint32_t out : outputs_[n]) touched_.push_back(out);
    }
    const auto fails = [&] {
      start_ = start_before_;
      circle_ = circle_before_;
      period_ = period;
      return false;
    };
    if (!lengthen_until(at_most, touched_)) return fails();
    const bool circle_changed = period_ <= period && std::ranges::any_of(circle_, [&](auto n) {
                                  return n / kPasses == d || input_[n] / kPasses == d;
                                });
    return !circle_changed || find_period() || fails();
  }

  /// Lengthens the period until no pass waits longer than that; false: it would be longer than
  /// `at_most`. `waiting`: the passes that may have to start later.
  bool lengthen_until(double at_most, const std::vector<std::uint32_t>& waiting) {
    constexpr std::size_t kMostRounds = 400;
    const double rounding = least_ * 1e-10;
    forget();
    queue_ = waiting;
    for (const std::uint32_t n : queue_) queued_[n] = true;
    const auto add = [&](std::uint32_t n) {
      if (!queued_[n]) queue_.push_back(n);
      queued_[n] = true;
    };
    const auto leave = [&](bool found) {
      for (const std::uint32_t n : queue_) queued_[n] = false;
      return found;
    };
    std::size_t next_look = nodes_;
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const std::uint32_t n = queue_[i], before = before_[n], input = input_[n];
      queued_[n] = false;
      const double free = start_[before] + duration_[before] - (wraps_[n] ? period_ : 0);
      const double there =
          input == n ? free
                     : start_[input] + until_there_[n] - period_ * (first_[n] - first_[input]);
      if (std::max(free, there) <= start_[n] + rounding) continue;
      start_[n] = std::max(free, there);
      from_[n] = there > free ? input + nodes_ : before;
      add(after_[n]);
      for (const std::uint32_t out : outputs_[n]) add(out);
      if (i < next_look) continue;
      next_look = i + nodes_;
      const double shorter = period_;
      if (i > kMostRounds * nodes_ || !lengthen() || period_ > at_most) return leave(false);
      if (period_ > shorter)  // these wait the longer, the longer the period
        for (std::uint32_t m = 0; m < nodes_; ++m)
          if (first_[m] < first_[input_[m]]) add(m);
    }
    const double least = *std::ranges::min_element(start_);
    for (double& start : start_) start -= least;
    return true;
  }

  void forget() {
    for (std::uint32_t n = 0; n < nodes_; ++n) from_[n] = n;
  }

  /// Where passes wait for one another in a circle, the period is at least what that takes; false:
  /// no period is long enough.
  bool lengthen() {
    std::ranges::fill(seen_, 0);
    for (std::uint32_t begin = 0; begin < nodes_; ++begin) {
      std::uint32_t n = begin;
      for (; seen_[n] == 0 && from_[n] != n; n = from_[n] % nodes_) seen_[n] = begin + 1;
      if (from_[n] == n || seen_[n] != begin + 1) continue;
      double time = 0, cycles = 0;
      found_circle_.clear();
      for (std::uint32_t at = n; found_circle_.empty() || at != n;) {
        found_circle_.push_back(at);
        const std::uint32_t before = from_[at] % nodes_;
        const bool waits_for_input = from_[at] >= nodes_;
        time += waits_for_input ? until_there_[at] : duration_[before];
        cycles += waits_for_input ? first_[at] - first_[before] : (wraps_[at] ? 1 : 0);
        at = before;
      }
      if (cycles < 1) return false;
      if (time / cycles > period_) {
        period_ = time / cycles;
        circle_ = found_circle_;
      }
      forget();
      return true;
    }
    return true;
  }

  double device_excess(std::uint32_t d) const { return excess_of(problem_, now_, d); }

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
      const std::uint32_t n = circle_[random() % circle_.size()];
      d = n / kPasses;
      const auto& order = now_.order[d];
      at = static_cast<std::uint32_t>(std::ranges::find(order, static_cast<Pass>(n % kPasses)) -
                                      order.begin());
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
  std::uint32_t nodes_, busiest_ = 0;  // a node: a pass of a device
  double least_ = 0;                   // period: the most work of a device
  double period_ = 0;
  std::vector<std::uint32_t> in_order_, input_, before_, after_, from_, seen_, queue_, touched_;
  std::vector<std::uint32_t> circle_, circle_before_,
      found_circle_;                  // critical: as long as it takes
  std::vector<char> wraps_, queued_;  // it waits for one of the cycle before
  std::vector<std::vector<std::uint32_t>> outputs_;
  std::vector<double> duration_, until_there_, first_, start_, start_before_;
  std::vector<double> excess_;  // of what the device may hold, by device
  PairCycle now_;
  std::array<Pass, kPasses> order_before_{};
  std::array<std::int32_t, kPasses> first_before_{};
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
  return CycleSearch(problem).period_of(cycle);
}

std::optional<PairCycle> improved(const OrderProblem& problem, const PairCycle& from,
                                  std::size_t evaluations, std::mt19937_64& random) {
  return CycleSearch(problem).improved(from, evaluations, random);
}

}  // namespace penstock
