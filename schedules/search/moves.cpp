// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/moves.hpp"

#include <algorithm>
#include <tuple>

namespace penstock {
namespace {

/// An order that is changed op by op.
class Walk {
 public:
  Walk(const OrderProblem& problem, const std::vector<Pass>& word, Replay& replay)
      : length(problem.word_length()), word(word), problem_(problem), replay_(replay) {}

  bool run_word(Replay::Times& times) { return replay_.run_word(word, times); }
  std::vector<Replay::Step> critical_path(const Replay::Times& times, std::uint32_t d) const {
    return replay_.critical_path(word, times, d);
  }
  /// Takes the op at `from` to `to` on its device; those between move by one.
  void shift(std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t place) {
      return word.begin() + static_cast<std::ptrdiff_t>(place);
    };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    if (to < from) std::rotate(at(to), at(from), at(from + 1));
  }
  /// Can the device of a place run what it has up to there?
  bool allowed_up_to(std::size_t place) const {
    const std::size_t d = place / length, count = place % length + 1;
    return admissible(problem_, static_cast<std::uint32_t>(d),
                      std::span(word).subspan(d * length, count));
  }

  std::size_t length;  // of a device's word
  std::vector<Pass> word;

 private:
  const OrderProblem& problem_;
  Replay& replay_;
};

}  // namespace

void climb(const OrderProblem& problem, std::uint64_t trials, const OrderCost& enough,
           Replay& replay, Dice& dice, Order& order) {
  Walk walk(problem, order.word, replay);
  Replay::Times times;
  std::vector<Replay::Step> path;
  double mixed = kNever;
  const auto accepted = [&] {
    if (!walk.run_word(times) || !(times.cost.mixed() <= mixed * (1 + 1e-12))) return false;
    mixed = times.cost.mixed();
    path = walk.critical_path(times, times.longest);
    return true;
  };
  accepted();
  for (std::uint64_t n = 0; n < trials && enough < order.cost; ++n) {
    const std::size_t from =
        dice.below(4) == 0 ? dice.below(walk.word.size()) : path[dice.below(path.size())].place;
    const std::size_t start = from - from % walk.length, reach = 1 + dice.below(8);
    const bool later = dice.below(2) == 0;
    const std::size_t to = later ? std::min(from + reach, start + walk.length - 1)
                                 : std::max(from, start + reach) - reach;
    if (walk.word[from] == walk.word[to] && reach == 1) continue;
    walk.shift(from, to);
    if (!walk.allowed_up_to(std::max(from, to)) || !accepted()) {
      walk.shift(to, from);
    } else if (times.cost < order.cost) {
      order = {times.cost, walk.word};
    }
  }
}

void PairAim::add_known(const OrderCost& known) {
  if (std::tie(known.stage_time, known.makespan) >= std::tie(stage_time, makespan)) return;
  stage_time = known.stage_time;
  makespan = known.makespan;
}

double PairAim::cost(const OrderCost& order) const {
  constexpr double kWorse = 1000;
  return order.stage_time + order.makespan +
         kWorse * (std::max(0.0, order.stage_time - stage_time) +
                   std::max(0.0, order.makespan - makespan));
}

namespace {

/// A move of an op that follows another one: from where to where. Now and then there is none.
std::pair<std::size_t, std::size_t> any_move(const Walk& walk, std::size_t place,
                                             std::mt19937_64& random) {
  constexpr std::size_t kFurthest = 12;
  const std::size_t i = place % walk.length, start = place - i, far = 1 + random() % kFurthest;
  switch (random() % 4) {
    case 0:  // the op before goes behind this one and on
      return {place - 1, start + std::min(walk.length - 1, i - 1 + far)};
    case 1:  // this one goes before that one and on
      return {place, start + i - std::min(i, far)};
    default: return {place, walk.word[place] == walk.word[place - 1] ? place : place - 1};
  }
}

}  // namespace

void improve_by_thresholds(const OrderProblem& problem, const PairAim& aim, const OrderCost& enough,
                           std::size_t evaluations, Replay& replay, std::mt19937_64& random,
                           Order& order) {
  constexpr double kFirstThreshold = 3;  // times of an op
  constexpr std::size_t kAttempts = 8;
  Walk walk(problem, order.word, replay);
  Replay::Times now, trial;
  if (!walk.run_word(now)) return;
  // Of two orders as good, the one whose devices end earlier is nearer to a better one.
  const auto cost = [&](const Replay::Times& times) {
    constexpr double kOfEnds = 1e-4;
    return aim.cost(times.cost) + kOfEnds * times.ends / problem.devices;
  };
  double current = cost(now), best = current;
  const double mean = problem.work(0) / static_cast<double>(walk.length);
  bool moved = true;
  std::vector<Replay::Step> critical;
  std::size_t evaluated = 0;
  for (std::size_t attempt = 0; attempt < kAttempts * evaluations && evaluated < evaluations;
       ++attempt) {
    if (now.cost.stage_time <= enough.stage_time && now.cost.makespan <= enough.makespan) break;
    if (moved || attempt % 4 == 0) {
      critical = walk.critical_path(now, random() % 2 == 0 ? now.last : now.longest);
      std::erase_if(critical, [](const Replay::Step& step) { return !step.follows; });
    }
    if (critical.empty()) break;
    const auto [from, to] = any_move(walk, critical[random() % critical.size()].place, random);
    moved = false;
    if (from == to) continue;
    walk.shift(from, to);
    moved = walk.allowed_up_to(std::max(from, to));
    evaluated += moved;
    if (moved && walk.run_word(trial)) {
      const double share = static_cast<double>(random() % 1024) / 1024;
      const double left = 1 - static_cast<double>(evaluated) / static_cast<double>(evaluations);
      const double threshold = kFirstThreshold * mean * left * share * share * share;
      moved = cost(trial) <= current + threshold;
    } else {
      moved = false;
    }
    if (!moved) {
      walk.shift(to, from);
      continue;
    }
    std::swap(now, trial);
    current = cost(now);
    if (current >= best) continue;
    best = current;
    order = {now.cost, walk.word};
  }
}

}  // namespace penstock
