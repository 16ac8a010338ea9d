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

/// The evaluation of a start.
struct StartResult {
  Judgement judgement;
  double throughput_samples_per_s = 0;
  std::string why_not;  ///< why it does not fit or cannot run
};

enum class Objective : std::uint8_t {
  throughput,  ///< the least time of an update
  /// The least memory of the fullest device; of equals the fastest that was found, as a candidate
  /// that can only equal the best is not looked into.
  memory,
  price,  ///< the least product of the time of an update and the GPUs
  time,   ///< the least time to train, which is that of throughput, as the batch is given
};
inline constexpr std::string_view kObjectiveNames[] = {"throughput", "memory", "price", "time"};

struct SearchOptions {
  Objective objective = Objective::throughput;
  std::size_t most_cuts = 4096;         ///< the most cuts of a family of which all are visited
  std::size_t most_evaluations = 3000;  ///< the most evaluations by the exact engine as a bound
  std::size_t most_confirmations = 8;   ///< the most calls of `confirm`
  /// The most compute ops that `confirm` simulates in all, after the first plan; plans that share
  /// links take longest.
  std::int64_t most_confirmed_ops = 1'500'000;
  /// The most ops of an update (2 p v m) of schedules that search for their order, which takes
  /// seconds for a large pipeline. Larger ones remain as their bounds, except for one of two chunks
  /// there and back (most_trials).
  std::int64_t most_searched_ops = 2048;
  /// Returns whether the order for so many virtual stages and microbatches takes too long to find.
  bool order_takes_too_long(const Schedule& schedule, std::int64_t stages,
                            std::int64_t microbatches) const {
    return schedule.looks_at_costs && 2 * stages * microbatches > most_searched_ops;
  }
  /// The most ops that are run to look into families by their order (Bounds::of_order).
  std::int64_t most_order_ops = 30'000'000;
  /// The most cuts that are tried, for each time that is aimed at, where the pipeline is too large
  /// to search for its order (there_and_back.hpp).
  std::size_t most_trials = 300;
  std::size_t top = 5;             ///< how many plans are offered (kept_plans.hpp)
  bool all_degrees = false;        ///< whether plans of one idea with different degrees are offered
  bool uniform_recompute = false;  ///< whether every stage recomputes alike
  std::vector<Start> starts = {};
  /// Whether a start whose updates have other samples than the problem's may be the answer.
  /// Otherwise it is taken with as many microbatches as make such updates, or not at all.
  bool other_batches = false;
  /// The most changes of the best plan that are tried (layers moved over a boundary between stages,
  /// less recomputation).
  std::size_t most_moves = 400;
  /// The time after which nothing more is looked into. Two thirds of it are for candidates, the
  /// rest for `confirm`, which is called once in any case. With a limit, answers depend on the
  /// machine's speed.
  double most_seconds = std::numeric_limits<double>::infinity();
  /// Returns the answer where `exact` is not valid (by `fluid`). Where it is not set, such plans
  /// remain bounds. A plan for which it throws InputError cannot run; SystemError says nothing
  /// about the plan, which remains a bound.
  std::function<Judgement(const Scenario&)> confirm = nullptr;
  /// Other processes that evaluate candidates in place of this one, along with candidates that are
  /// probably next. The plans are the same unless a time limit ends the search.
  std::optional<Others> others = {};
  /// Is told the evaluations made, the best cost so far (infinite: none) and the least bound.
  std::function<void(std::size_t, double, double)> progress = nullptr;
};

/// Counts of all shapes, families or cuts that were made, by what happened to them.
struct Tally {
  std::size_t made = 0;
  std::size_t refused = 0;    ///< those that the schedule does not admit or that cannot run
  std::size_t too_large = 0;  ///< those proven not to fit
  std::size_t worse = 0;      ///< those proven no better than the best
  std::size_t opened = 0;  ///< shapes and families that were looked into, cuts that were evaluated
  std::size_t left = 0;    ///< those left when a limit ended the search, which are in the gap

  bool adds_up() const { return made == refused + too_large + worse + opened + left; }
};

struct SearchResult {
  std::vector<FoundPlan> plans;  ///< alternatives (kept_plans.hpp), best first
  std::vector<FoundPlan> found;  ///< all plans that were simulated and fit, best first
  double lower_bound = 0;        ///< a lower bound on the cost of every plan
  /// best / lower_bound - 1. It is 0 where the best is proven, and none without a plan or a bound
  /// above 0.
  std::optional<double> gap;
  std::string gap_held_by;  ///< the family whose cuts could be as good as the bound; empty: none
  /// The same for plans whose order of ops does not depend on costs; for others little is proven.
  double known_orders_lower_bound = 0;
  std::optional<double> known_orders_gap;
  std::string known_orders_gap_held_by;
  Tally shapes, families, cuts;
  std::size_t represented = 0;  ///< the number of families with more cuts than were visited
  std::size_t evaluations = 0, confirmations = 0, moves = 0;
  std::size_t unanswered = 0;      ///< how many calls of `confirm` ended with SystemError
  std::string unanswered_because;  ///< the message of the last of these
  bool out_of_time = false;
  /// whether plans were looked into that recompute some layers of a stage
  bool single_layers = false;
  /// whether more trials (most_trials) could find a better cut
  bool cuts_of_searched_orders = false;
  std::vector<StartResult> starts;  ///< in the order of the options
  std::string infeasible_because;   ///< why there is no plan
};

/// Searches for the best plans.
SearchResult search(const Problem& problem, const Axes& axes, const SearchOptions& options);

/// Evaluates only the starts of the options.
SearchResult judge_starts(const Problem& problem, const Axes& axes, const SearchOptions& options);

/// Returns the cost of an answer by this objective.
double cost_of(Objective objective, double time_s, double memory_bytes, int gpus);

}  // namespace penstock
