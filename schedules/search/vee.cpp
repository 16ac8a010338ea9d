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

void try_rules(const PairProblem& problem, Best& best) {
  const std::size_t count = std::clamp(kOpsByRules / problem.ops(), kLeastRules, kMostRules);
  const double work = longest_work(problem);
  PairRules rules(problem);
  for (PairRule rule : pair_rules(count)) {
    if (rule.idle < kNever) {
      if (best.orders().empty()) continue;
      rule.idle *= best.orders().front().stage_time - work;
    }
    best.offer(rules.run(rule), rules.word());
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
  try_rules(problem, best);
  PairMoves moves(problem, aim);
  std::mt19937_64 random(20240515);
  for (PairOrder& order : best.orders())
    moves.improve(order, kOpsByMoves / problem.ops() / best.orders().size(), random);
  return std::ranges::min(best.orders(), {}, [&](const PairOrder& o) { return aim.cost(o); });
}

}  // namespace penstock
