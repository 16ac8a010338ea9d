// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/vee.hpp"

#include "schedules/catalog.hpp"
#include "schedules/search/moves.hpp"
#include "schedules/search/pair_cycles.hpp"
#include "schedules/search/pair_rounds.hpp"
#include "schedules/search/pair_rules.hpp"
#include "schedules/search/pair_slots.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::uint64_t kSeed = 20240515;

/// Ops that each source may visit in all: of a whole search, and of one that begins with the orders
/// of a shorter problem.
struct Effort {
  std::size_t by_rules, by_blocks, by_moves;

  Effort times(std::size_t n) const { return {n * by_rules, n * by_blocks, n * by_moves}; }
};
constexpr Effort kWhole{250'000, 40'000, 4'000'000}, kAfterShorter{50'000, 20'000, 500'000};

/// The best orders so far, unlike in what they take, the best first.
class BestVee {
 public:
  explicit BestVee(std::size_t most) : most_(most) {}

  /// `cost` orders them; `word` is copied only where the order is kept.
  void offer(double cost, const OrderCost& taken, const std::vector<Pass>& word) {
    if (!taken.found()) return;
    const auto place = std::ranges::lower_bound(costs_, cost);
    const auto at = place - costs_.begin();
    if (place != costs_.end() && *place == cost) return;
    if (costs_.size() == most_) {
      if (place == costs_.end()) return;
      costs_.pop_back();
      orders_.pop_back();
    }
    costs_.insert(costs_.begin() + at, cost);
    orders_.insert(orders_.begin() + at, {taken, word});
  }
  std::vector<Order>& orders() { return orders_; }

 private:
  std::size_t most_;
  std::vector<double> costs_;
  std::vector<Order> orders_;
};

/// Stage time and makespan that no order is below.
OrderCost least_times(const OrderProblem& problem) {
  OrderCost least{0, 0};
  double arrival = 0;  // of the first microbatch
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    least.stage_time = std::max(least.stage_time, problem.work(d));
    least.makespan = std::max(least.makespan, arrival + problem.work(d));
    arrival = arrival + problem.times[d].forward + problem.transfer;
  }
  return least;
}

/// Activations of the upper chunk that a device may hold.
double least_room(const OrderProblem& problem) {
  double least = problem.devices * 2.0;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const double activation = problem.time(d, kF1).activation;
    if (activation > 0) least = std::min(least, problem.limit(d) / activation);
  }
  return least;
}

/// The schedules of two chunks there and back whose order does not depend on costs, the one that
/// holds least first.
std::vector<Schedule> published() { return {v_min(), v_half(), v_zb(), zb_v()}; }

OrderProblem shortened(const OrderProblem& problem, std::uint32_t microbatches) {
  OrderProblem shorter = problem;
  shorter.microbatches = std::min(problem.microbatches, microbatches);
  return shorter;
}

/// A batch long enough for what repeats to show.
std::uint32_t repeats_in(const OrderProblem& problem) { return 2 * problem.devices + 8; }

ScheduleShape shape_of(const OrderProblem& problem) {
  return {.depth = problem.devices,
          .microbatches_per_update = problem.microbatches,
          .chunks = 2,
          .times = problem.times,
          .transfer = problem.transfer};
}

class VeeSearch {
 public:
  VeeSearch(const OrderProblem& problem, const Effort& effort)
      : problem_(problem),
        short_(shortened(problem, repeats_in(problem))),
        effort_(effort),
        room_(least_room(problem)),
        best_(kImproved) {}

  /// An order to begin with.
  void know(Order order) {
    if (order.cost.found()) known_.push_back(std::move(order));
  }
  /// The same, and it takes no place from others.
  void know_too(Order order) {
    if (!order.cost.found()) return;
    know(std::move(order));
    best_ = BestVee(kImproved + 1);
  }

  std::vector<Order> run() {
    const Order rounds = round_order(problem_);
    aim_.add_known(rounds.cost);
    know(rounds);
    know_published();
    for (const Order& order : known_) offer(order);
    try_rules();
    try_blocks();
    improve();
    return std::move(best_.orders());
  }

 private:
  void offer(const Order& order) { best_.offer(aim_.cost(order.cost), order.cost, order.word); }

  /// Rules at random, and then ones like the best of them.
  void try_rules() {
    constexpr std::size_t kLeast = 2, kMost = 3000, kParents = 4;
    const std::size_t count = std::clamp(effort_.by_rules / problem_.ops(), kLeast, kMost);
    const double work = least_times(problem_).stage_time;
    std::mt19937_64 random(kSeed);
    PairRules rules(problem_);
    std::vector<std::pair<double, PairRule>> good;
    for (std::size_t i = 0; i < count; ++i) {
      PairRule rule = any_rule(random, problem_.devices, room_ / problem_.devices);
      if (i >= count / 2) rule = similar_rule(good[random() % good.size()].second, rule, random);
      PairRule timed = rule;
      if (rule.idle < kNever && !best_.orders().empty())
        timed.idle *= best_.orders().front().cost.stage_time - work;
      const OrderCost taken = rules.run_rule(timed);
      const double cost = aim_.cost(taken);
      best_.offer(cost, taken, rules.word());
      const auto worse = std::ranges::find_if(good, [&](const auto& g) { return cost < g.first; });
      good.insert(worse, {cost, std::move(rule)});
      if (good.size() > kParents) good.pop_back();
    }
  }

  /// Building blocks that fit: those of known families, then others at random. Where there is no
  /// time for them all, one, unless a published order already holds what may be held.
  void try_blocks() {
    constexpr std::size_t kMost = 80, kOrderPerEvaluation = 20;
    const std::size_t each = short_.ops() + problem_.ops() / kOrderPerEvaluation;
    const std::size_t count = std::min(effort_.by_blocks / each, kMost);
    std::mt19937_64 random(kSeed);
    std::vector<PairSlots> blocks = bent_blocks(problem_.devices, room_);
    const std::size_t known = blocks.size();
    if (count == 0 && known > 0) blocks.resize(published_ + 1 < std::floor(room_) ? 1 : 0);
    while (blocks.size() < count)
      blocks.push_back(any_slots(random, problem_.devices, room_ / problem_.devices));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (!is_block(blocks[i]) || repeated_peak(blocks[i]) > room_) continue;
      try_block(blocks[i], i < known ? Reorder::both_ends : Reorder::best);
    }
  }

  void try_block(const PairSlots& slots, Reorder reorder) {
    OpLists lists;
    generate_from_block(block_of(slots), shape_of(short_), lists, reorder,
                        static_cast<std::int32_t>(room_));
    offer(evaluated_whole(lists));
  }

  /// Where there are many ops, only those that by their own formula hold about as much as they may.
  void know_published() {
    constexpr std::size_t kManyOps = 50'000;
    constexpr double kFarFromFull = 1.5;
    for (const Schedule& schedule : published()) {
      const double peak = schedule.peak(shape_of(short_), problem_.devices - 1);
      if (peak <= room_) published_ = std::max(published_, peak);
      if (problem_.ops() > kManyOps && (peak > room_ || peak * kFarFromFull < room_)) continue;
      OpLists lists;
      schedule.generate(shape_of(short_), lists);
      const Order order = evaluated_whole(lists);
      aim_.add_known(order.cost);
      know(order);
    }
  }

  Order evaluated_whole(const OpLists& short_order) const {
    return evaluated(problem_, lengthened(problem_, word_of(short_, short_order)));
  }

  /// Few ops leave the time to begin again, as long as that helps: moves end in another order each
  /// time.
  void improve() {
    constexpr std::size_t kTooFew = 50, kMost = 4000, kFewOps = 600, kTimes = 4;
    std::vector<Order>& orders = best_.orders();
    const std::size_t shares = std::min(orders.size(), kImproved);
    const std::size_t evaluations = std::min(effort_.by_moves / problem_.ops() / shares, kMost);
    if (evaluations < kTooFew) return;
    std::mt19937_64 random(kSeed);
    const OrderCost enough = least_times(problem_);
    Replay replay(problem_);
    const std::vector<Order> first = orders;
    double least = kNever;
    for (std::size_t i = 0; i < (problem_.ops() < kFewOps ? kTimes : 1); ++i) {
      const double before = least;
      for (Order order : first) {
        improve_by_thresholds(problem_, aim_, enough, evaluations, replay, random, order);
        least = std::min(least, aim_.cost(order.cost));
        orders.push_back(std::move(order));
      }
      if (least >= before) break;
    }
    std::ranges::stable_sort(orders, {}, [&](const Order& order) { return aim_.cost(order.cost); });
    orders.resize(first.size());
  }

  static constexpr std::size_t kImproved = 4;  // orders that moves begin with

  const OrderProblem& problem_;
  OrderProblem short_;  // fewer microbatches, where orders repeat and can be lengthened
  Effort effort_;
  double room_;
  double published_ = 0;  // activations that the fullest published order which fits holds
  PairAim aim_;
  std::vector<Order> known_;
  BestVee best_;
};

}  // namespace

/// Walks from the cycles of the published orders and from the best: short ones, then twice as long,
/// as long as no period is near to what no device's work admits less than. One walk finds nothing
/// now and then, whatever its length. That of V-Min, which seldom leads to a good one, comes last.
std::optional<PairCycle> repeating_vee(const OrderProblem& problem, std::uint32_t budget) {
  constexpr std::size_t kVisits = 30'000'000, kPerPair = 250;  // of passes; evaluations, in all
  constexpr std::size_t kFirstPerPair = 2;
  constexpr int kMostInVain = 2;
  constexpr double kNear = 1.001;
  if (problem.microbatches <= problem.devices) return std::nullopt;
  const OrderProblem short_one = shortened(problem, repeats_in(problem));
  std::vector<PairCycle> starts;
  for (const Schedule& schedule : {v_half(), v_zb(), zb_v(), v_min()}) {
    OpLists lists;
    schedule.generate(shape_of(short_one), lists);
    if (auto cycle = cycle_in(short_one, word_of(short_one, lists)))
      starts.push_back(*std::move(cycle));
  }
  if (starts.empty()) return std::nullopt;
  const std::size_t passes = std::size_t{kPasses} * problem.devices;
  const std::size_t evaluations = budget * std::min(kVisits / passes, kPerPair * passes * passes);
  double longest = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d) longest = std::max(longest, problem.work(d));
  const double near = longest / problem.microbatches * kNear;
  std::mt19937_64 random(kSeed);
  std::optional<PairCycle> best;
  double period = kNever;
  std::size_t spent = 0;
  const auto walk = [&](const PairCycle& from, std::size_t length) {
    if (period <= near) return;
    spent += length;
    auto found = improved(problem, from, length, random).within;
    if (!found || period_of(problem, *found) >= period) return;
    period = period_of(problem, *found);
    best = std::move(found);
  };
  int in_vain = 0;  // lengths
  const std::size_t shortest =
      std::min(kFirstPerPair * passes * passes, evaluations / (starts.size() + 1));
  for (std::size_t length = shortest; period > near && in_vain < kMostInVain &&
                                      spent + length * (starts.size() + 1) <= evaluations;
       length *= 2) {
    const double before = period;
    for (const PairCycle& start : starts) walk(start, length);
    if (best) walk(PairCycle(*best), length);
    in_vain = best && period >= before ? in_vain + 1 : 0;
  }
  return best;
}

Order search_vee(const OrderProblem& problem, std::uint32_t budget,
                 const std::vector<std::vector<Pass>>& known) {
  constexpr std::size_t kFewOps = 20'000;
  const OrderProblem shorter = shortened(problem, 4 * problem.devices);
  const bool whole = shorter.microbatches == problem.microbatches || shorter.ops() > kFewOps;
  VeeSearch search(problem, (whole ? kWhole : kAfterShorter).times(budget));
  const std::optional<PairCycle> cycle = repeating_vee(problem, budget);
  if (cycle) search.know_too(evaluated(problem, word_of(problem, *cycle)));
  for (const std::vector<Pass>& word : known) search.know(evaluated(problem, word));
  if (whole) return search.run().front();
  VeeSearch short_search(shorter, kWhole.times(budget));
  if (cycle) short_search.know_too(evaluated(shorter, word_of(shorter, *cycle)));
  for (const Order& order : short_search.run())
    search.know(evaluated(problem, lengthened(problem, order.word)));
  return search.run().front();
}

}  // namespace penstock
