#include "schedules/search/vee.hpp"

#include "schedules/search/pair_moves.hpp"
#include "schedules/search/pair_rounds.hpp"
#include "schedules/search/pair_rules.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Ops that the rules and the moves may visit in all, and at least and at most so many of them.
constexpr std::size_t kOpsByRules = 400'000, kOpsByMoves = 4'000'000;
constexpr std::size_t kLeastRules = 6, kMostRules = 1000;

/// The best orders so far, unlike in what they take, the best first.
class Best {
 public:
  Best(const PairAim& aim, std::size_t most) : aim_(aim), most_(most) {}

  void offer(const PairOrder& order, const std::vector<Pass>& word) {
    if (!order.found()) return;
    const auto place = std::ranges::find_if(
        orders_, [&](const PairOrder& other) { return aim_.cost(order) <= aim_.cost(other); });
    if (place != orders_.end() && aim_.cost(*place) == aim_.cost(order)) return;
    if (place == orders_.end() && orders_.size() == most_) return;
    orders_.insert(place, {order.makespan, order.stage_time, word});
    if (orders_.size() > most_) orders_.pop_back();
  }
  std::vector<PairOrder>& orders() { return orders_; }

 private:
  PairAim aim_;
  std::size_t most_;
  std::vector<PairOrder> orders_;
};

double longest_work(const PairProblem& problem) {
  double longest = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d) longest = std::max(longest, problem.work(d));
  return longest;
}

/// Activations of the upper chunk that a device may hold, per device of the pipeline.
double least_room(const PairProblem& problem) {
  double least = problem.devices * 2.0;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const double activation = problem.times[problem.stages[d][1]].activation;
    if (activation > 0) least = std::min(least, problem.limits[d] / activation);
  }
  return least / problem.devices;
}

/// Rules at random, and then ones like the best of them.
void try_rules(const PairProblem& problem, const PairAim& aim, Best& best) {
  const std::size_t count = std::clamp(kOpsByRules / problem.ops(), kLeastRules, kMostRules);
  const double work = longest_work(problem), room = least_room(problem);
  std::mt19937_64 random(20240515);
  PairRules rules(problem);
  std::vector<std::pair<double, PairRule>> tried;
  for (std::size_t i = 0; i < count; ++i) {
    PairRule rule = any_rule(random, problem.devices, room);
    if (i >= count / 2) rule = similar_rule(tried[random() % std::min<std::size_t>(4,tried.size())].second, rule, random);
    PairRule now = rule;
    if (now.idle < kNever && !best.orders().empty()) {
      now.idle *= best.orders().front().stage_time - work;
    }
    const PairOrder order = rules.run(now);
    best.offer(order, rules.word());
    const double cost = aim.cost(order);
    const auto place = std::ranges::find_if(tried, [&](const auto& t) { return cost < t.first; });
    if (place != tried.end() || tried.size() < 4) tried.insert(place, {cost, rule});
    if (tried.size() > 4) tried.pop_back();
  }
}

}  // namespace

PairOrder search_vee(const PairProblem& problem) {
  constexpr std::size_t kImproved = 4;
  PairAim aim;
  const PairOrder rounds = round_order(problem);
  aim.add(rounds);
  Best best(aim, kImproved);
  best.offer(rounds, rounds.word);
  try_rules(problem, aim, best);
  PairMoves moves(problem, aim);
  std::mt19937_64 random(20240515);
  for (PairOrder& order : best.orders())
    moves.improve(order, kOpsByMoves / problem.ops() / best.orders().size(), random);
  return std::ranges::min(best.orders(), {}, [&](const PairOrder& o) { return aim.cost(o); });
}

}  // namespace penstock
