// penstock plan --search full: our own search (plan/search/search.hpp) for a model on a cluster,
// and, with --compare, what the published planners would run there, simulated alike.
#pragma once

#include "base/error.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/planner_comparison.hpp"
#include "plan/search/headroom.hpp"
#include "report/report.hpp"

namespace penstock {

/// What the plans cost in money and time, where it was asked.
struct Terms {
  double gpu_hour = 0, tokens = 0;
  std::int64_t sequence = 0;

  double updates(std::int64_t batch) const {
    return tokens / static_cast<double>(sequence * batch);
  }
};

/// A plan, and all that a user needs to run it.
struct Offer {
  FoundPlan plan;
  Scenario scenario;
  std::vector<std::string> reasons;     ///< what limits it
  std::vector<std::string> would_help;  ///< changes outside of the search, where stages differ
  std::vector<std::string> placed;      ///< stages by kind of GPU, where there are several
  std::string megatron, no_megatron;    ///< Megatron-LM's arguments, or why there are none
  int megatron_plan = 0;                ///< where there are none: the fastest that has; 0: none
  std::string torch_csv, no_torch_csv;  ///< the table of torch, or why there is none
  std::vector<std::string> files;       ///< it was written to; the scenario first
};

/// The best plan of the GPUs of one kind alone, of a cluster that has several.
struct KindAlone {
  std::string device;
  int gpus = 0;
  std::optional<FoundPlan> plan;  ///< none: no plan fits, or none was found
  bool optimistic = false;
};

struct FullPlan {
  const Problem& problem;
  const SearchOptions& options;
  Terms terms;
  SearchResult result;
  std::vector<Offer> offers;
  std::vector<ComparedPlanner> compared;    ///< empty: not asked
  std::vector<std::string> compared_notes;  ///< what the published planners took for granted
  std::vector<KindAlone> alone;             ///< by kind of GPU, where there are several
  bool several_versions = false;            ///< schedules with several weight versions, too
  bool usual_batch = false;                 ///< the batch was not given
  std::optional<WithoutHeadroom> without_headroom = {};  ///< none: it makes no difference

  std::string model_name() const;
  std::vector<std::string> notes() const;  ///< what was taken for granted
};

/// Do the options of `penstock plan` name our own search?
bool wants_full_plan(const Arguments& arguments);

int run_full_plan(const Arguments& arguments);

/// The default: what `run_full_plan` does, or why it cannot be asked.
std::optional<InputError> full_plan_unless_refused(const Arguments& arguments);

Json to_json(const FullPlan& plan);
std::string to_text(const FullPlan& plan, std::size_t width);
std::string plans_csv(const FullPlan& plan);
Report plan_report(const FullPlan& plan, const Arguments& arguments);

}  // namespace penstock
