// SPDX-License-Identifier: Apache-2.0
#include "plan/search/offers.hpp"

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "results/advice.hpp"
#include "scenarios/other_formats.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "scenarios/torchtitan_config.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// The text of a form, or why there is none.
struct Form {
  std::string text, why_not;
};

Form in_form(std::string (*form)(const Scenario&), const Scenario& scenario) {
  try {
    return {form(scenario), ""};
  } catch (const InputError& error) {
    std::string why;
    for (const Diagnostic& d : error.diagnostics()) why += (why.empty() ? "" : "; ") + d.message;
    return {"", why};
  }
}

/// "stages 0-3 on A100-80: GPUs 0-31", for each kind of GPU; empty where all are of one.
std::vector<std::string> where_stages_lie(const Scenario& scenario) {
  if (scenario.cluster.groups.size() < 2) return {};
  const Placement placement = scenario.placement();
  struct Run {
    std::string device;
    std::vector<int> positions, gpus;
  };
  std::vector<Run> runs;
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(placement.depth()); ++s) {
    std::map<std::string, std::vector<int>> by_kind;
    for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(placement.widths()[s]); ++r)
      for (const int gpu : scenario.gpus_of(placement.device_at(r, s)))
        by_kind[scenario.cluster.device_of(gpu).name].push_back(gpu);
    std::string device;
    std::vector<int> gpus;
    for (const auto& [name, of_kind] : by_kind) {
      device += (device.empty() ? "" : " and ") + name;
      gpus.insert(gpus.end(), of_kind.begin(), of_kind.end());
    }
    if (runs.empty() || runs.back().device != device) runs.push_back({device, {}, {}});
    runs.back().positions.push_back(static_cast<int>(s));
    runs.back().gpus.insert(runs.back().gpus.end(), gpus.begin(), gpus.end());
  }
  std::vector<std::string> lines;
  for (Run& run : runs) {
    std::ranges::sort(run.gpus);
    lines.push_back(fmt::format("{} {} on {}: GPUs {}",
                                run.positions.size() > 1 ? "stages" : "stage",
                                ranges_text(run.positions), run.device, ranges_text(run.gpus)));
  }
  return lines;
}

/// Is it among what was to be looked at?
bool is_within(const Axes& axes, const Scenario& s) {
  const auto has = [](const auto& list, const auto& value) {
    return std::ranges::find(list, value) != list.end();
  };
  return has(axes.schedules, s.schedule) && has(axes.tensors, s.mesh.size(Axis::tensor)) &&
         has(axes.contexts, s.mesh.replica_sharers()) && s.mesh.size(Axis::ulysses) == 1 &&
         has(axes.depths, static_cast<int>(s.shape.depth)) &&
         has(axes.chunks, static_cast<int>(s.shape.chunks)) &&
         (s.mesh.size(Axis::tensor) == 1 || has(axes.sequence_parallel, s.sequence_parallel)) &&
         has(axes.microbatch_sizes, s.microbatch_size) &&
         std::ranges::all_of(s.mesh.width.values(), [&](int w) { return has(axes.widths, w); }) &&
         std::ranges::all_of(s.recompute.values(), [&](const Recomputation& r) {
           return axes.single_layers || has(axes.recomputes, r);
         });
}

/// Where most of the bubble is imbalance: what `penstock simulate` would advise, of what was asked
/// for. Orders that take long to find are not found for that.
std::vector<std::string> help_for(const Scenario& scenario, const Judgement& judgement,
                                  const Axes& axes, const SearchOptions& options) {
  if (judgement.main_cause != "imbalance") return {};
  std::vector<std::string> lines;
  const Simulation today = simulate(scenario, EngineChoice::automatic);
  // Changes that keep the schedule: no other with such orders is advised.
  bool left_out = false;
  const ChangesStudy study = study_changes(today, summarize(today), [&](const Scenario& other) {
    if (!is_within(axes, other)) return false;
    const bool takes_long = options.order_takes_too_long(*other.schedule, other.shape.stages(),
                                                         other.shape.microbatches_per_update);
    left_out = left_out || takes_long;
    return !takes_long;
  });
  for (const Advice& advice : study.found)
    lines.push_back(
        fmt::format("{}: update time {:+.1f} %", advice.change, 100 * (advice.time_ratio - 1)));
  if (!study.incomplete_because.empty())
    lines.push_back(fmt::format("not complete: {}", study.incomplete_because));
  if (left_out)
    lines.push_back(fmt::format("not tried: other values with {}, whose orders take long to find",
                                scenario.schedule->name));
  return lines;
}

Offer offer_of(const Problem& problem, const FoundPlan& plan, const Reasons& reasons) {
  Offer offer;
  offer.plan = plan;
  offer.scenario = problem.resolve(plan.choice);
  const auto known = reasons.find(offer.scenario.text());
  if (known != reasons.end()) {
    offer.reasons = known->second;
  } else {
    const Judgement known =
        judge(offer.scenario, EngineChoice::exact, &offer.reasons, problem.programs());
    offer.plan.judgement.main_cause = known.main_cause;
    offer.plan.judgement.mfu = known.mfu;
    offer.plan.judgement.mfu_causal = known.mfu_causal;
  }
  offer.placed = where_stages_lie(offer.scenario);
  const Form megatron = in_form(megatron_arguments, offer.scenario);
  offer.megatron = megatron.text;
  offer.no_megatron = megatron.why_not;
  const Form titan = in_form(torchtitan_config, offer.scenario);
  offer.torchtitan = titan.text;
  offer.no_torchtitan = titan.why_not;
  const Form table = in_form(torch_csv, offer.scenario);
  offer.torch_csv = table.text;
  offer.no_torch_csv = table.why_not;
  return offer;
}

/// Of each that Megatron-LM does not run, the fastest that it does.
void name_those_for_megatron(std::vector<Offer>& offers) {
  const auto runs = [](const Offer& offer) { return !offer.megatron.empty(); };
  const auto fastest = std::ranges::min_element(offers, {}, [&](const Offer& offer) {
    return std::pair(!runs(offer), offer.plan.judgement.iteration_time_s);
  });
  if (fastest == offers.end() || !runs(*fastest)) return;
  for (Offer& offer : offers)
    if (!runs(offer)) offer.megatron_plan = static_cast<int>(fastest - offers.begin()) + 1;
}

}  // namespace

std::vector<Offer> offers_of(const Problem& problem, const std::vector<FoundPlan>& plans,
                             const Reasons& reasons, const Axes& axes,
                             const SearchOptions& options) {
  std::vector<Offer> offers;
  for (const FoundPlan& plan : plans) offers.push_back(offer_of(problem, plan, reasons));
  name_those_for_megatron(offers);
  if (!offers.empty())
    offers[0].would_help = help_for(offers[0].scenario, offers[0].plan.judgement, axes, options);
  return offers;
}

std::vector<std::string> frameworks_of(const Offer& offer) {
  const Schedule& schedule = *offer.plan.choice.family.schedule;
  std::vector<std::string> found;
  if (!offer.megatron.empty()) found.emplace_back("Megatron-LM");
  if (!offer.torchtitan.empty()) found.emplace_back("torchtitan");
  const auto is_class = [](std::string_view alias) { return alias.starts_with("Schedule"); };
  const auto at = std::ranges::find_if(schedule.aliases, is_class);
  if (at != schedule.aliases.end())
    found.push_back(fmt::format("PyTorch ({})", *at));
  else if (!offer.torch_csv.empty() && offer.plan.choice.family.shape.depth > 1)
    found.emplace_back("PyTorch (from its table, --write)");
  return found;
}

}  // namespace penstock
