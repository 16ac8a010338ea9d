// SPDX-License-Identifier: Apache-2.0
// Our own search as `penstock plan --search full` runs it: for a model on a cluster, starting from
// the published planners' plans. It also finds the best plans of each kind of GPU alone, what
// leaving memory free costs, and, where it is asked for, how the published planners compare.
#pragma once

#include "plan/search/comparison.hpp"
#include "plan/search/headroom.hpp"
#include "plan/search/offers.hpp"
#include "plan/search/source.hpp"

namespace penstock {

/// The price of a GPU hour and the tokens to train on, where the costs of plans are asked for; 0:
/// they are not.
struct Terms {
  double gpu_hour = 0, tokens = 0;
};

struct FullPlanRequest {
  PlanSource source;
  std::int64_t batch = 0;            ///< samples per update; 0: the scenario's, or a usual one
  std::int64_t microbatch_size = 0;  ///< 0: any
  int stages = 0;                    ///< 0: any
  double headroom = 0;
  std::vector<const Schedule*> schedules{};  ///< empty: all
  std::vector<Recompute> recomputes{};       ///< empty: all
  bool straight = false;                     ///< whether no stage may be replicated
  bool asynchronous = false;                 ///< whether schedules may have several weight versions
  bool compares = false;                     ///< whether the published planners are compared
  /// Whether it leaves out plans that the published planners might choose.
  bool narrows = false;
  Terms terms{};
  SearchOptions search{};
};

/// What the caller does for a search.
struct SearchCallbacks {
  /// Searches as `search` does, and shows the progress.
  std::function<SearchResult(const Problem&, const Axes&, const SearchOptions&)> search;
  /// Calls its second argument with those who evaluate the problem's candidates in place of this
  /// process. Where it is not set, this process evaluates them.
  std::function<void(const ProblemRecipe&, const std::function<void(const Others&)>&)> elsewhere{};
};

/// The best plan on the GPUs of one kind alone, in a cluster that has several kinds.
struct KindAlone {
  std::string device;
  int gpus = 0;
  std::optional<FoundPlan> plan;  ///< none where no plan fits or was found
  bool optimistic = false;
};

/// The job as given: the scenario itself, simulated like the plans.
struct GivenJob {
  std::optional<Offer> offer{};  ///< none where it does not run
  std::string why_not{};         ///< why it does not run or fit; empty where it does

  bool runs() const { return offer && why_not.empty(); }
};

struct FullPlan {
  const Problem& problem;
  const FullPlanRequest& request;
  std::optional<GivenJob> given{};  ///< none where no scenario was given
  SearchResult result{};
  std::vector<Offer> offers{};
  std::vector<ComparedPlanner> compared{};    ///< empty where it was not asked for
  std::vector<std::string> compared_notes{};  ///< what the published planners assumed
  std::vector<KindAlone> alone{};             ///< one for each kind of GPU, where there are several
  std::optional<WithoutHeadroom> without_headroom{};  ///< none where it makes no difference

  std::string model_name() const;
  bool usual_batch() const;                ///< the batch was not given
  std::vector<std::string> notes() const;  ///< what was taken for granted
  /// Returns what people run and this search leaves out.
  std::vector<std::string> not_searched() const;
  /// Returns why there is no plan; where the model's state alone is too large, how large it is.
  /// Returns "" where there are plans or the reason is not known.
  std::string infeasible_because() const;
  /// Returns the number of updates that train on the tokens of `Terms`; 0 where these were not
  /// given.
  double updates() const;
  /// Returns the tokens of a sample; 0 where samples have no length.
  std::int64_t tokens_per_sample() const;
  /// Returns whether a plan costs no more than the best, within the model's error.
  bool as_good_as_best(const FoundPlan& plan) const;
  /// Returns the number of the plan to run: the simplest of those as good as the best, which may be
  /// the job as given (0). Requires a plan.
  int recommended() const;
};

/// Returns the problem of a request. Throws InputError, also for a microbatch size of which nothing
/// was measured.
Problem problem_of(const FullPlanRequest& request);

/// Throws InputError for tokens of a model whose samples have no length.
void check_terms(const Terms& terms, const Problem& problem);

/// Searches for plans. Problem and request must outlive the answer.
FullPlan find_full_plan(const Problem& problem, const FullPlanRequest& request,
                        const SearchCallbacks& callbacks);

/// Returns the GPU hours of an update.
double gpu_hours(const FoundPlan& plan);

/// Returns the tokens per second of all of a plan's GPUs; 0 where samples have no length.
double tokens_per_s(const FullPlan& full, const FoundPlan& plan);

}  // namespace penstock
