// SPDX-License-Identifier: Apache-2.0
// A pipeline of two chunks per device, run in the order of time: a device that is free takes, by a
// rule, one of the ops that are there, or waits for one that is on its way (what other devices have
// begun is known to it), or fills the time with a W. One pass, O(log p) per op.
//
// It never gets stuck: the lower chunk leaves room for one activation of the upper one
// (problem.hpp), and a device that has nothing else to do runs the W's it has.
#pragma once

#include "schedules/search/pair_slots.hpp"
#include "schedules/search/run.hpp"

namespace penstock {

struct PairRule {
  /// What is preferred among ops that are there.
  enum class Prefer : std::uint8_t {
    fixed,    ///< by `ranks`
    in_turn,  ///< backwards after a forward, forwards after a backward; among them by `ranks`
    slots,    ///< the op whose slot in a building block comes first
  };
  Prefer prefer = Prefer::fixed;
  std::array<Pass, 4> ranks{Pass::i_upper, Pass::i_lower, Pass::f_upper, Pass::f_lower};
  /// By device: slots of F lower, F upper, I upper, I lower of the first microbatch.
  PairSlots slots{};
  double patience = 0;  ///< waits for a better op this share of the op's time that it puts off
  double overrun = 0;   ///< a W may put off an op that is on its way by this share of its time
  std::uint32_t pending = 1000;  ///< W's that may wait while an F is there
  /// Room for activations of the upper chunk that lower F's leave: on the first device, and more
  /// on each next one; `half`: at most half of the limit.
  double reserve = 1, reserve_slope = 0;
  bool half = false;
  /// Time a device may stand idle in all; one that cannot afford a wait runs a W instead.
  double idle = kNever;
};

class PairRules {
 public:
  explicit PairRules(const OrderProblem& problem);

  /// What the order takes that a rule makes; its word is `word()` until the next run.
  OrderCost run_rule(const PairRule& rule);
  const std::vector<Pass>& word() const { return run_.word(); }

 private:
  /// What there is to do: the op that the rule takes, and when a better one (or any) will be there.
  struct Choice {
    Pass pass = Pass::w_lower;
    bool any = false;
    double better = kNever, next = kNever;
  };

  void reset(const PairRule& rule);
  void decide(std::uint32_t d, double now);
  Choice choose(std::uint32_t d, double now) const;
  std::array<Pass, 4> preference(std::uint32_t d) const;
  bool has_room(std::uint32_t d, Pass pass) const;
  bool weight_before(std::uint32_t d, double now, double next) const;
  void start(std::uint32_t d, Pass pass, double now);

  const OrderProblem& problem_;
  DeviceRun run_;
  WakeTimes wake_;
  PairRule rule_;
  std::vector<double> lower_most_;  // by device: activations of the lower chunk
  std::vector<bool> after_forward_;
};

/// A rule at random, for p devices. `room`: activations that a device may hold per device of the
/// pipeline. `idle` is a share, of what the best order so far stands idle.
PairRule any_rule(std::mt19937_64& random, std::uint32_t p, double room);
/// A rule like `rule`, with some of what another has.
PairRule similar_rule(const PairRule& rule, const PairRule& other, std::mt19937_64& random);

}  // namespace penstock
