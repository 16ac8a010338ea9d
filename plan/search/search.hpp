// SPDX-License-Identifier: Apache-2.0
// The planner of our own: partition, depth, width, tensor degree, microbatch, recomputation,
// chunks, schedule and arrangement together, under each device's memory, by branch and bound.
//
// A queue holds shapes, families and candidates (candidate.hpp), each with a lower bound on its
// cost (bound.hpp), the least first. What leaves the queue is opened: a shape into the families
// that its schedules admit, a family into its cuts, a cut into the exact engine's bound for one
// replica (judgement.hpp), and that into the answer: of `exact` where it is valid, of fluid
// elsewhere. When the least bound in the queue is no better than the best answer, everything left
// is proven worse. A family with more cuts than `most_cuts` is represented by the cut that is best
// by its bound; its other cuts remain as its bound. With those, and when a limit ends the search
// early, the answer is proven up to a gap: best / (least bound of all that was not evaluated) - 1.
//
// Plans of published planners can be given as starts: what is found is then no worse than they are.
// The best plan is improved by recomputing less and by moving layers over one boundary at a time.
// The bounds hold for plans with as many replicas in every stage and one batch per update; starts
// may be others.
#pragma once

#include "plan/search/bound.hpp"
#include "plan/search/cuts.hpp"
#include "plan/search/kept_plans.hpp"
#include "plan/search/questions.hpp"

#include <array>
#include <functional>
#include <limits>
#include <optional>

namespace penstock {

/// A plan to begin with: that of a published planner.
struct Start {
  std::string from;
  Choice choice;
};

/// What became of it.
struct StartResult {
  Judgement judgement;
  double throughput_samples_per_s = 0;
  std::string why_not;  ///< it does not fit, or cannot run
};

enum class Objective : std::uint8_t {
  throughput,  ///< least time of an update
  /// Least memory of the fullest device; of equals the fastest that was found: a candidate that can
  /// only equal the best is not looked into.
  memory,
  price,  ///< least time of an update times its GPUs
  time,   ///< least time to train: as throughput, since the batch is given
};
inline constexpr std::string_view kObjectiveNames[] = {"throughput", "memory", "price", "time"};

struct SearchOptions {
  Objective objective = Objective::throughput;
  std::size_t most_cuts = 4096;         ///< of a family, all of which are visited
  std::size_t most_evaluations = 3000;  ///< by the exact engine as a bound
  std::size_t most_confirmations = 8;   ///< by `confirm`
  /// Compute ops of all that `confirm` simulates, the first one excepted: what shares links takes
  /// longest.
  std::int64_t most_confirmed_ops = 1'500'000;
  /// Ops of an update (2 p v m) up to which schedules that search for their order are looked into:
  /// theirs takes seconds for a large pipeline. Larger ones remain as their bounds, but for one of
  /// two chunks there and back (most_trials).
  std::int64_t most_searched_ops = 2048;
  /// Of so many virtual stages and microbatches.
  bool order_takes_too_long(const Schedule& schedule, std::int64_t stages,
                            std::int64_t microbatches) const {
    return schedule.looks_at_costs && 2 * stages * microbatches > most_searched_ops;
  }
  /// Ops that are run to look into families by their order (Bounds::of_order).
  std::int64_t most_order_ops = 30'000'000;
  /// Cuts that are tried for orders which are searched for, of pipelines too large for that
  /// (there_and_back.hpp), for each time that is aimed at.
  std::size_t most_trials = 300;
  std::size_t top = 5;             ///< plans (kept_plans.hpp)
  bool all_degrees = false;        ///< of an idea, also with other degrees
  bool uniform_recompute = false;  ///< every stage recomputes alike
  std::vector<Start> starts = {};
  /// May a start that makes updates of other than the problem's samples be the answer? Else it is
  /// taken with as many microbatches as make them, or not at all.
  bool other_batches = false;
  /// Changes of the best plan (layers over a boundary between two stages, less recomputation) that
  /// are tried at most.
  std::size_t most_moves = 400;
  /// Time after which nothing more is looked into: two thirds are for candidates, the rest for
  /// `confirm`, which is asked once in any case. Answers then depend on the machine's speed.
  double most_seconds = std::numeric_limits<double>::infinity();
  /// The answer where `exact` is not valid (`fluid`); none: those remain bounds. A plan for which
  /// it throws InputError cannot run; SystemError says nothing about the plan, which remains as its
  /// bound.
  std::function<Judgement(const Scenario&)> confirm = nullptr;
  /// Asked instead of this process, with candidates that are probably next: the plans are the same,
  /// where no time limit ends the search. None: this process.
  std::optional<Others> others = {};
  /// Told of progress: evaluations made, the best cost so far (infinite: none), the least bound.
  std::function<void(std::size_t, double, double)> progress = nullptr;
};

/// What became of all shapes, families or cuts that were made.
struct Tally {
  std::size_t made = 0;
  std::size_t refused = 0;    ///< the schedule does not admit it, or it cannot run
  std::size_t too_large = 0;  ///< proven not to fit
  std::size_t worse = 0;      ///< proven no better than the best
  std::size_t opened = 0;     ///< shapes, families: looked into; cuts: evaluated
  std::size_t left = 0;       ///< a limit ended the search; they are in the gap

  bool adds_up() const { return made == refused + too_large + worse + opened + left; }
};

struct SearchResult {
  std::vector<FoundPlan> plans;  ///< alternatives (kept_plans.hpp), best first
  std::vector<FoundPlan> found;  ///< all that were simulated and fit, best first
  double lower_bound = 0;        ///< on the cost of every plan there is
  /// best / lower_bound - 1; 0: proven best; none: there is no plan, or no bound above 0.
  std::optional<double> gap;
  std::string gap_held_by;  ///< the family whose cuts could be that good; empty: none
  /// The same of plans whose order of ops does not depend on costs: of others little is proven.
  double known_orders_lower_bound = 0;
  std::optional<double> known_orders_gap;
  std::string known_orders_gap_held_by;
  Tally shapes, families, cuts;
  std::size_t represented = 0;  ///< families with more cuts than were visited
  std::size_t evaluations = 0, confirmations = 0, moves = 0;
  std::size_t unanswered = 0;      ///< of those that `confirm` was asked, by SystemError
  std::string unanswered_because;  ///< the last of them
  bool out_of_time = false;
  bool single_layers = false;  ///< were plans looked into that recompute some layers of a stage?
  bool cuts_of_searched_orders = false;  ///< could more of them be better (most_trials)?
  std::vector<StartResult> starts;       ///< as in the options
  std::string infeasible_because;        ///< where there is no plan
};

SearchResult search(const Problem& problem, const Axes& axes, const SearchOptions& options);

/// Only what the options begin with.
SearchResult judge_starts(const Problem& problem, const Axes& axes, const SearchOptions& options);

/// What an answer costs by this objective.
double cost_of(Objective objective, double time_s, double memory_bytes, int gpus);

}  // namespace penstock
