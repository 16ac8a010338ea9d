// SPDX-License-Identifier: Apache-2.0
// The report of `penstock plan --search full`: answers, plans, all that was simulated, timelines.
#include "base/units.hpp"
#include "cli/plan_texts.hpp"
#include "cli/running.hpp"
#include "cli/simulation_report.hpp"
#include "plan/search/plan_json.hpp"
#include "report/memory_section.hpp"
#include "report/sweep_section.hpp"
#include "report/timeline_section.hpp"
#include "results/attention_share.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ranges>

namespace penstock {
namespace {

constexpr std::size_t kShown =
    8;  ///< plans that are simulated again: a page of more is slow to open

/// Holds what the simulation of an offered plan adds to it.
struct ShownPlan {
  std::string timeline;
  MemoryLine memory;  ///< of the device that has the least to spare
};

std::string one_line(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// "1234 tokens/s/GPU", or samples/s where they have no length.
std::string best_rate_text(const FullPlan& full, const FoundPlan& plan) {
  const double tokens = tokens_per_s(full, plan);
  return tokens > 0 ? fmt::format("{:.0f} tokens/s/GPU", tokens / plan.choice.gpus())
                    : rate_text(plan.throughput_samples_per_s) + " samples/s";
}

std::string mfu_text(const Judgement& j) {
  if (j.mfu <= 0) return "";
  return fmt::format(
      ", MFU {}{}", format_percent(j.mfu),
      much_attention(j.mfu, j.mfu_causal)
          ? fmt::format(" ({} with causal attention counted by half)", format_percent(j.mfu_causal))
          : "");
}

std::vector<KeyFigure> figures(const FullPlan& full) {
  if (full.offers.empty()) return {{"Is there a plan?", "no", no_plan(full), Verdict::bad}};
  const Offer& best = recommended_offer(full);
  const PlanFamily& family = best.plan.choice.family;
  std::vector<KeyFigure> figures{
      {"What to run?",
       fmt::format("{}, {} x {}", family.schedule->name, counted(family.shape.depth, "stage"),
                   counted(family.shape.width, "replica")),
       fmt::format("{}; {}", family.describe(), one_line(recommendation_text(full))),
       Verdict::good},
      {"How fast?",
       fmt::format("{}{}", best_rate_text(full, best.plan), best.scenario.optimistic ? "*" : ""),
       fmt::format("{} per update{}, by the {} engine{}",
                   format_time(best.plan.judgement.iteration_time_s), mfu_text(best.plan.judgement),
                   best.plan.judgement.engine,
                   best.scenario.optimistic ? fmt::format("; *: {}", kOptimistic) : "")},
      {"Is there a better one?",
       full.result.gap ? fmt::format("than plan 1: {:.2f} % at most", *full.result.gap * 100)
                       : "not known",
       proof(full)},
      {"Why not faster?", best.reasons.empty() ? "" : best.reasons.front(),
       fmt::format("{}", fmt::join(best.reasons | std::views::drop(1), "; "))},
      {"How much memory?", format_bytes(best.plan.judgement.memory_bytes),
       "on the device that holds the most"}};
  if (const auto sure = sure_figure(best.scenario)) figures.insert(figures.begin() + 2, *sure);
  if (full.without_headroom)
    figures.push_back({"What does headroom cost?",
                       fmt::format("{:.1f} % at least", 100 * full.without_headroom->saved),
                       headroom_text(full)});
  const std::string terms = terms_text(full);
  if (!terms.empty())
    figures.push_back({"What does it take?", terms.substr(0, terms.find('\n')),
                       terms.substr(terms.find('\n') + 1)});
  return figures;
}

std::string plans_section(const FullPlan& full) {
  const std::vector<Offer>& offers = full.offers;
  TableSection table{{"Plans"},
                     {{"plan"},
                      {"schedule"},
                      {"stages"},
                      {"chunks"},
                      {"replicas"},
                      {"tensor"},
                      {"microbatch"},
                      {"microbatches"},
                      {"recompute"},
                      {"update", "s"},
                      {"throughput", "samples/s"},
                      {"rate of a GPU", "tokens/s"},
                      {"MFU", "fraction"},
                      {"memory", "bytes"},
                      {"best at"},
                      {"engine"}},
                     {}};
  const auto optimistic = [](const Offer& o) { return o.scenario.optimistic; };
  if (std::ranges::any_of(offers, optimistic)) {
    table.text.note = fmt::format("*: {}", kOptimistic);
    table.columns.push_back({"*"});
  }
  const auto known = [](double value) { return value > 0 ? Cell(value) : Cell(); };
  const auto add = [&](int number, const Offer& offer, const std::string& best_at) {
    const FoundPlan& plan = offer.plan;
    const PlanFamily& f = plan.choice.family;
    table.rows.push_back(
        {static_cast<double>(number), std::string(f.schedule->name),
         static_cast<double>(f.shape.depth), static_cast<double>(f.chunks), width_text(plan.choice),
         tensor_text(f.shape), static_cast<double>(f.shape.microbatch_size),
         static_cast<double>(f.shape.microbatches), recompute_column(plan.choice),
         plan.judgement.iteration_time_s, plan.throughput_samples_per_s,
         known(tokens_per_s(full, plan) / plan.choice.gpus()), known(plan.judgement.mfu),
         plan.judgement.memory_bytes, best_at, plan.judgement.engine});
    if (table.columns.back().name == "*")
      table.rows.back().emplace_back(optimistic(offer) ? "*" : "");
  };
  if (full.given && full.given->offer)
    add(0, *full.given->offer, full.given->runs() ? "as given" : "as given, does not fit");
  for (std::size_t i = 0; i < offers.size(); ++i)
    add(static_cast<int>(i) + 1, offers[i],
        fmt::format("{}", fmt::join(offers[i].plan.best_at, ", ")));
  return section_text(table);
}

std::string limits_section(const std::vector<Offer>& offers) {
  TableSection table{{"What limits each"},
                     {{"plan"}, {"layers per stage"}, {"limited by"}, {"where it runs"}},
                     {}};
  for (const Offer& offer : offers)
    table.rows.push_back(
        {static_cast<double>(table.rows.size() + 1), layers_text(offer.plan.choice.layers),
         fmt::format("{}", fmt::join(offer.reasons, "; ")), frameworks_text(offer)});
  return section_text(table);
}

/// Speed against memory of every plan that was simulated and fits.
std::string found_section(const FullPlan& full) {
  SweepSection section{
      {"Speed against memory",
       "All plans that were simulated and fit, one of each family. Simpler ones may be worth more "
       "than their place here: the table above says which. Optimistic ones have microbatches "
       "smaller than the device's efficiency curve was measured with."},
      {{{"schedule"}, SweepRole::axis},
       {{"stages"}, SweepRole::axis},
       {{"chunks"}, SweepRole::axis},
       {{"replicas"}, SweepRole::axis},
       {{"tensor"}, SweepRole::axis},
       {{"microbatch"}, SweepRole::axis},
       {{"recompute"}, SweepRole::axis},
       {{"throughput", "samples/s"}, SweepRole::measure, Better::higher},
       {{"memory", "bytes"}, SweepRole::measure, Better::lower},
       {{"update", "s"}, SweepRole::measure, Better::lower},
       {{"optimistic"}, SweepRole::other}},
      {},
      "throughput",
      "memory",
      "throughput"};
  section.heat_map = false;
  for (const FoundPlan& plan : full.result.found) {
    const PlanFamily& f = plan.choice.family;
    section.points.add_point({{std::string(f.schedule->name), static_cast<double>(f.shape.depth),
                               static_cast<double>(f.chunks), width_text(plan.choice),
                               tensor_text(f.shape), static_cast<double>(f.shape.microbatch_size),
                               recompute_column(plan.choice), plan.throughput_samples_per_s,
                               plan.judgement.memory_bytes, plan.judgement.iteration_time_s,
                               full.problem.resolve(plan.choice).optimistic ? "yes" : "no"}});
  }
  return section_text(section);
}

/// Of the first replica: the others do the same.
ShownPlan shown_plan(const Offer& offer, std::size_t number) {
  const PlanFamily& f = offer.plan.choice.family;
  SectionText text{fmt::format("Timeline of plan {}: {}, {} x {}", number + 1, f.schedule->name,
                               counted(f.shape.depth, "stage"), counted(f.shape.width, "replica"))};
  text.sub = number > 0;
  if (number == 0) text.note = "Of the first replica of each; all open on as much time.";
  const Simulation s = simulate(offer.scenario, EngineChoice::automatic);
  ShownPlan shown{timeline_section(s, text, 1), {}};
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    if (s.program.placement.replica_of(d) > 0) continue;
    MemoryLine line = memory_line(s.memory(), d, s.scenario.capacity_bytes(d));
    const std::int64_t spare = line.capacity_bytes - line.peak.use.total();
    if (spare >= least) continue;
    least = spare;
    line.samples.clear();
    line.name = fmt::format("plan {}", number + 1);
    shown.memory = std::move(line);
  }
  return shown;
}

std::string owners_section(const std::vector<ShownPlan>& shown) {
  MemorySection section{{"Memory of each plan", "Of the device that has the least to spare."}, {}};
  section.over_time = false;
  for (const ShownPlan& plan : shown) section.lines.push_back(plan.memory);
  return section_text(section);
}

/// The command, and the arguments of Megatron-LM where it runs a plan.
std::string run_section(const FullPlan& full, const std::string& command) {
  const auto runs =
      std::ranges::find_if(full.offers, [](const Offer& o) { return !o.megatron.empty(); });
  std::string text = fmt::format("# all files of all plans\n{} --write FOLDER\n", command);
  if (runs != full.offers.end())
    text += fmt::format("\n# Megatron-LM runs plan {} with\n{}", runs - full.offers.begin() + 1,
                        runs->megatron);
  else if (full.offers[0].scenario.transformer)
    text += fmt::format("\n# Megatron-LM runs none of them: {}\n", full.offers[0].no_megatron);
  Json json = section_json("text", {"How to run it"});
  json["text"] = text;
  return to_text(json);
}

std::string comparison_section(const FullPlan& full) {
  TableSection table{{"Planners, simulated alike", planner_notes(full)},
                     {{"planner"},
                      {"throughput", "samples/s"},
                      {"as it predicts", "samples/s"},
                      {"ours is faster by", "fraction"},
                      {"plan"},
                      {"why there is none"}},
                     {}};
  const auto known = [](double value, bool is) { return is ? Cell(value) : Cell(); };
  for (const ComparedPlanner& p : full.compared) {
    const bool runs = p.throughput_samples_per_s > 0;
    table.rows.push_back({p.name, known(p.throughput_samples_per_s, runs),
                          known(p.predicted_samples_per_s, p.predicted_samples_per_s > 0),
                          known(p.ours_is_faster_by, runs && !p.is_ours()), p.plan, p.why_not});
  }
  return section_text(table);
}

}  // namespace

Report plan_report(const FullPlan& full, const Arguments& arguments) {
  Report report;
  report.title = fmt::format("Plan of {}", full.model_name());
  report.summary = task_text(full);
  std::vector<ShownPlan> shown;
  for (std::size_t i = 0; i < full.offers.size() && i < kShown; ++i)
    shown.push_back(shown_plan(full.offers[i], i));
  report.figures = figures(full);
  if (!full.offers.empty()) {
    report.sections.push_back(plans_section(full));
    report.sections.push_back(limits_section(full.offers));
    report.sections.push_back(owners_section(shown));
    report.sections.push_back(run_section(full, arguments.command_line));
    if (full.result.found.size() > 1) report.sections.push_back(found_section(full));
    std::vector<std::string> timelines;
    for (ShownPlan& plan : shown) timelines.push_back(std::move(plan.timeline));
    for (std::string& section : on_one_scale(timelines))
      report.sections.push_back(std::move(section));
    report.scenario = full.offers.front().scenario.text();
  }
  if (!full.compared.empty()) report.sections.push_back(comparison_section(full));
  if (!full.offers.empty()) report.notes = full.offers.front().placed;
  for (const auto& lines : {alone_lines(full), full.notes()})
    report.notes.insert(report.notes.end(), lines.begin(), lines.end());
  report.notes.push_back(fmt::format("not searched: {}", fmt::join(full.not_searched(), "; ")));
  report.command = arguments.command_line;
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace penstock
