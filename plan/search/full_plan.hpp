// SPDX-License-Identifier: Apache-2.0
// Our own search as `penstock plan --search full` asks it: for a model on a cluster, beginning with
// the published planners' plans; with what the best plans of each kind of GPU alone reach, what
// leaving memory free costs, and, where it is wanted, how the published planners compare.
#pragma once

#include "plan/search/comparison.hpp"
#include "plan/search/headroom.hpp"
#include "plan/search/offers.hpp"
#include "plan/search/source.hpp"

namespace penstock {

/// What the plans cost in money and time, where it was asked.
struct Terms {
  double gpu_hour = 0, tokens = 0;
};

struct FullPlanRequest {
  PlanSource source;
  std::int64_t batch = 0;            ///< samples per update; 0: the scenario's, or a usual one
  std::int64_t microbatch_size = 0;  ///< 0: any
  int stages = 0;                    ///< 0: any
  double headroom = 0;
  std::vector<const Schedule*> schedules{};  ///< none: all
  std::vector<Recompute> recomputes{};       ///< none: all
  bool straight = false;                     ///< no stage is replicated
  bool asynchronous = false;                 ///< schedules with several weight versions, too
  bool compares = false;                     ///< with the published planners
  /// Does it leave out plans that the published planners might choose?
  bool narrows = false;
  Terms terms{};
  SearchOptions search{};
};

/// What the asker does for a search.
struct SearchCallbacks {
  /// As `search` does; also says how far it is.
  std::function<SearchResult(const Problem&, const Axes&, const SearchOptions&)> search;
  /// Calls what it is given with those who look at the problem's candidates in place of this
  /// process; none: nobody does.
  std::function<void(const ProblemRecipe&, const std::function<void(const Others&)>&)> elsewhere{};
};

/// The best plan of the GPUs of one kind alone, of a cluster that has several.
struct KindAlone {
  std::string device;
  int gpus = 0;
  std::optional<FoundPlan> plan;  ///< none: no plan fits, or none was found
  bool optimistic = false;
};

/// The scenario itself, simulated like the plans.
struct GivenJob {
  std::optional<Offer> offer{};  ///< none: it does not run
  std::string why_not{};         ///< it does not run, or does not fit

  bool runs() const { return offer && why_not.empty(); }
};

struct FullPlan {
  const Problem& problem;
  const FullPlanRequest& request;
  std::optional<GivenJob> given{};  ///< none: no scenario was given
  SearchResult result{};
  std::vector<Offer> offers{};
  std::vector<ComparedPlanner> compared{};    ///< empty: not asked
  std::vector<std::string> compared_notes{};  ///< what the published planners took for granted
  std::vector<KindAlone> alone{};             ///< by kind of GPU, where there are several
  std::optional<WithoutHeadroom> without_headroom{};  ///< none: it makes no difference

  std::string model_name() const;
  bool usual_batch() const;                ///< the batch was not given
  std::vector<std::string> notes() const;  ///< what was taken for granted
  /// What people run that this search leaves out.
  std::vector<std::string> not_searched() const;
  /// The reason; where the model's state alone is too large, how large it is. Empty: there are
  /// plans, or it is not known.
  std::string infeasible_because() const;
  /// Of the training of so many tokens; 0: it was not asked.
  double updates() const;
  /// Tokens of a sample; 0: its samples have no length.
  std::int64_t tokens_per_sample() const;
  /// Does a plan cost no more than the best, as far as the model can tell?
  bool as_good_as_best(const FoundPlan& plan) const;
  /// The number of the plan to run: of those as good as the best the simplest, which may be the job
  /// as given (0). Requires a plan.
  int recommended() const;
};

/// The scenario to plan for. Throws InputError, also for a microbatch size of which nothing was
/// measured.
Problem problem_of(const FullPlanRequest& request);

/// Throws InputError for tokens of a model whose samples have no length.
void check_terms(const Terms& terms, const Problem& problem);

/// Both must outlive the answer.
FullPlan find_full_plan(const Problem& problem, const FullPlanRequest& request,
                        const SearchCallbacks& callbacks);

/// What a plan's GPUs work for an update.
double gpu_hours(const FoundPlan& plan);

/// Tokens that a plan's GPUs train on per second, all together; 0: samples have no length.
double tokens_per_s(const FullPlan& full, const FoundPlan& plan);

}  // namespace penstock
