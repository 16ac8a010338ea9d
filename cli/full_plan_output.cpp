// SPDX-License-Identifier: Apache-2.0
// What `penstock plan --search full` says: text, CSV.
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "cli/plan_texts.hpp"
#include "plan/search/plan_json.hpp"
#include "results/attention_share.hpp"
#include "results/expected_error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ranges>

namespace penstock {
namespace {

const std::string kCannotTell =
    fmt::format("{:.0f} %, which the model cannot tell apart", 100 * kModelError);

PerStage<Recomputation> recompute_of(const Choice& choice) {
  if (choice.recompute.empty()) return Recompute::none;
  return PerStage<Recomputation>(choice.recompute);
}

/// "none", or the name of the checkpoints of schedules that have them.
std::string alike_text(const Choice& choice) {
  if (choice.family.schedule->checkpoints)
    return std::string(kCheckpointNames[static_cast<std::size_t>(choice.family.checkpoint)]);
  return recompute_text(recompute_of(choice));
}

}  // namespace

std::string recompute_column(const Choice& choice) {
  if (recompute_of(choice).alike()) return alike_text(choice);
  std::vector<std::string> parts;
  const auto stages_of = [&](const auto& is) {
    return std::ranges::count_if(choice.recompute, is);
  };
  const auto in_part = [](const Recomputation& r) { return !r.plain(); };
  for (const Recompute r : {Recompute::full, Recompute::selective, Recompute::none}) {
    if (const auto stages = stages_of([&](const Recomputation& s) { return s == r; }); stages > 0)
      parts.push_back(fmt::format("{} {}", to_string(r), stages));
    if (const auto stages = stages_of(in_part); r == Recompute::full && stages > 0)
      parts.push_back(fmt::format("in part {}", stages));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string frameworks_text(const Offer& offer) {
  const auto known = frameworks_of(offer);
  std::vector<std::string> parts;
  if (!known.empty()) parts.push_back(fmt::format("runs in: {}", fmt::join(known, ", ")));
  if (offer.scenario.transformer && !offer.no_megatron.empty())
    parts.push_back(fmt::format("not in Megatron-LM: {}", offer.no_megatron));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string layers_text(const std::vector<int>& layers) {
  const bool even = std::ranges::adjacent_find(layers, std::not_equal_to()) == layers.end();
  if (even) return std::to_string(layers.front());
  std::vector<std::string> words;
  for (const int n : layers) words.push_back(std::to_string(n));
  return compressed(words, " ");
}

std::string width_text(const Choice& choice) {
  static constexpr const char* kLetters[] = {"", "z", "g", "f"};
  const char* shared = kLetters[static_cast<std::size_t>(choice.family.shape.sharded)];
  if (choice.widths.empty()) return fmt::format("{}{}", choice.family.shape.width, shared);
  return fmt::format("{}{}", fmt::join(choice.widths, "-"), shared);
}

std::string tensor_text(const Shape& shape) {
  return fmt::format("{}{}", shape.tensor, shape.sequence_parallel ? "s" : "");
}

namespace {

std::string ranks_text(const Choice& choice) {
  if (!choice.placed.empty()) return "listed";
  return choice.family.arrangement.rank_order + ", " + choice.family.arrangement.placement;
}

/// Says what became of the job as given, where a row does not say it.
std::string given_text(const FullPlan& full) {
  if (!full.given) return "";
  std::string text;
  if (!full.given->why_not.empty())
    text = fmt::format("the job as given {}: {}\n",
                       full.given->offer ? "does not fit" : "does not run", full.given->why_not);
  if (!full.given->offer) return text;
  const auto samples = static_cast<std::int64_t>(full.given->offer->scenario.samples_per_update());
  if (samples != full.problem.batch())
    text += fmt::format("the job as given makes updates of {} samples\n", samples);
  return text;
}

/// Holds what is shown of a plan, or of the job as given.
struct PlanRow {
  std::string number;
  const Offer& offer;
  std::string best_at;
};

std::string per_gpu(const FullPlan& full, const FoundPlan& plan, bool optimistic) {
  const double tokens = tokens_per_s(full, plan);
  return tokens > 0 ? fmt::format("{:.0f}{}", tokens / plan.choice.gpus(), optimistic ? "*" : "")
                    : fmt::format("{:.4g}{}", plan.throughput_samples_per_s, optimistic ? "*" : "");
}

std::vector<PlanRow> rows_of(const FullPlan& full) {
  std::vector<PlanRow> rows;
  const int recommended = full.offers.empty() ? -1 : full.recommended();
  const auto add = [&](int number, const Offer& offer, std::string strengths, bool equal) {
    if (number == recommended)
      strengths = strengths.empty() ? "recommended" : "recommended, " + strengths;
    rows.push_back({fmt::format("{}{}", number, equal ? "=" : ""), offer, std::move(strengths)});
  };
  if (full.given && full.given->offer)
    add(0, *full.given->offer, full.given->why_not.empty() ? "as given" : "as given, does not fit",
        recommended == 0);
  for (std::size_t i = 0; i < full.offers.size(); ++i) {
    const FoundPlan& plan = full.offers[i].plan;
    const auto number = static_cast<int>(i) + 1;
    add(number, full.offers[i], fmt::format("{}", fmt::join(plan.best_at, ", ")),
        number > 1 && full.as_good_as_best(plan));
  }
  return rows;
}

std::vector<std::string> cells(const FullPlan& full, const PlanRow& row) {
  const FoundPlan& plan = row.offer.plan;
  const PlanFamily& f = plan.choice.family;
  const double mfu = plan.judgement.mfu;
  return {row.number,
          std::string(f.schedule->name),
          std::to_string(f.shape.depth),
          std::to_string(f.chunks),
          width_text(plan.choice),
          tensor_text(f.shape),
          std::to_string(f.shape.context),
          std::to_string(f.shape.expert),
          std::to_string(f.shape.microbatch_size),
          std::to_string(f.shape.microbatches),
          recompute_column(plan.choice),
          std::to_string(plan.choice.gpus()),
          format_time(plan.judgement.iteration_time_s),
          per_gpu(full, plan, row.offer.scenario.optimistic),
          mfu > 0 ? fmt::format("{:.1f} %", 100 * mfu) : "-",
          format_bytes(plan.judgement.memory_bytes),
          fmt::format("{:.4g}", price_of(full, plan)),
          row.best_at,
          plan.judgement.engine,
          ranks_text(plan.choice)};
}

/// Whose memory it is, and which bound where the model leaves something out.
std::string memory_legend(const Scenario& s) {
  if (s.left_out().empty()) return "of the fullest device";
  return s.missing_saves.empty() ? "of the fullest device, at least"
         : s.missing.empty()     ? "of the fullest device, at most"
                                 : "of the fullest device, about";
}

std::string plans_table(const FullPlan& full, std::size_t width) {
  using A = TextTable::Align;
  const std::vector<PlanRow> rows = rows_of(full);
  const auto any = [&](auto&& is) { return std::ranges::any_of(rows, is); };
  const bool tokens = full.tokens_per_sample() > 0;
  struct Column {
    std::string header;
    A alignment;
    bool shown = true;
  };
  const std::vector<Column> columns{
      {"plan", A::right},
      {"schedule", A::left},
      {"p", A::right},
      {"v", A::right},
      {"w", A::right},
      {"t", A::right},
      {"c", A::right,
       any([](const PlanRow& r) { return r.offer.plan.choice.family.shape.context > 1; })},
      {"e", A::right,
       any([](const PlanRow& r) { return r.offer.plan.choice.family.shape.expert > 1; })},
      {"b", A::right},
      {"m", A::right},
      {"recompute", A::left},
      {"GPUs", A::right},
      {"update", A::right},
      {tokens ? "tokens/s/GPU" : "samples/s", A::right},
      {"MFU", A::right, any([](const PlanRow& r) { return r.offer.plan.judgement.mfu > 0; })},
      {"memory", A::right},
      {price_header(full), A::right, full.request.terms.gpu_hour > 0},
      {"best at", A::left},
      {"engine", A::left},
      {"ranks", A::left}};
  std::vector<std::string> headers;
  std::vector<A> alignment;
  for (const Column& column : columns) {
    if (!column.shown) continue;
    headers.push_back(column.header);
    alignment.push_back(column.alignment);
  }
  TextTable table(headers, alignment);
  for (const PlanRow& row : rows) {
    const std::vector<std::string> all = cells(full, row);
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (columns[i].shown) shown.push_back(all[i]);
    table.add_row(shown);
  }
  const std::string gone = table.fit(width, {"ranks", "engine", "GPUs", "m", "update", "best at"});
  std::string text = table.render() + gone +
                     table.legend({{"p", "stages"},
                                   {"v", "chunks"},
                                   {"w", "replicas (data parallel)"},
                                   {"t", "GPUs of a stage (tensor parallel)"},
                                   {"c", "GPUs that share sequences (context parallel)"},
                                   {"e", "GPUs that divide the experts of a layer"},
                                   {"b", "samples of a microbatch"},
                                   {"m", "microbatches per update"},
                                   {"memory", memory_legend(full.problem.base())},
                                   {"MFU", "of the dense peak, attention counted in full"},
                                   {"engine", "that simulated it"},
                                   {"ranks", "their order on the GPUs"}},
                                  width);
  const auto shapes = [&](const auto& is_so) {
    return any([&](const PlanRow& r) { return is_so(r.offer.plan.choice.family.shape); });
  };
  const auto shares = [&](Sharded what) {
    return shapes([&](const Shape& shape) { return shape.sharded == what; });
  };
  if (shares(Sharded::optimizer)) text += "z: replicas share the optimizer (ZeRO-1)\n";
  if (shares(Sharded::gradients)) text += "g: replicas share optimizer and gradients (ZeRO-2)\n";
  if (shares(Sharded::weights)) text += "f: replicas share weights, too (ZeRO-3, FSDP)\n";
  if (shapes([](const Shape& shape) { return shape.sequence_parallel; }))
    text += "s: with sequence parallelism\n";
  if (any([](const PlanRow& r) { return r.offer.scenario.optimistic; }))
    text += fmt::format("*: {}\n", kOptimistic);
  if (any([](const PlanRow& r) { return r.number.ends_with('='); }))
    text += fmt::format("=: as good as plan 1 within {}\n", kCannotTell);
  for (const PlanRow& row : rows) {
    const Judgement& j = row.offer.plan.judgement;
    if (much_attention(j.mfu, j.mfu_causal))
      text += fmt::format("plan {}: MFU {:.1f} % with causal attention counted by half\n",
                          row.number.substr(0, row.number.find('=')), 100 * j.mfu_causal);
  }
  if (full.offers.empty()) return text;
  text += recommendation_text(full);
  if (const auto error = expected_error(recommended_offer(full).scenario))
    text += how_sure_text(*error);
  return text;
}

std::string tallies_table(const SearchResult& result) {
  using A = TextTable::Align;
  TextTable table({"", "made", "refused", "do not fit", "proven worse", "opened", "left"},
                  {A::left, A::right, A::right, A::right, A::right, A::right, A::right});
  const auto add = [&](const char* what, const Tally& t) {
    table.add_row({what, std::to_string(t.made), std::to_string(t.refused),
                   std::to_string(t.too_large), std::to_string(t.worse), std::to_string(t.opened),
                   std::to_string(t.left)});
  };
  add("shapes (p, w, t, b)", result.shapes);
  add("families (schedule, chunks, ranks)", result.families);
  add("cuts (layers, recomputation)", result.cuts);
  return table.render();
}

std::string failed_simulations(const SearchResult& result) {
  if (result.unanswered == 0) return "";
  return fmt::format(
      "{} simulations failed, the last one because {}; their plans stay in the gap\n",
      result.unanswered, result.unanswered_because);
}

std::string joined_layers(const Problem& problem) {
  const int of_model = problem.layers_in_model();
  if (of_model == problem.layers()) return "";
  return fmt::format(
      "{} layers were joined to {}, the lightest neighbours first; nothing is said about cuts "
      "inside of joined ones\n",
      of_model, problem.layers());
}

constexpr double kProven = 1e-8;  // a gap that is rounding

/// What keeps the gap from being closed, and what would.
std::string why_not_proven(const SearchResult& result) {
  if (result.out_of_time)
    return "the time ended before all candidates were looked into (--time-limit)\n";
  if (result.cuts.left > 0)
    return "simulations ended before all candidates were looked into (--effort), or wait for an "
           "answer on shared links\n";
  const std::string effort = result.cuts_of_searched_orders
                                 ? "tries more cuts for orders that are searched for; else"
                                 : "would look into nothing more;";
  return fmt::format(
      "a larger --effort {} what is left is a bound on cuts of layers and orders too many to "
      "visit: --stages, --schedule and --microbatch-size leave fewer\n",
      effort);
}

/// What is proven of more than all plans together.
std::string known_orders(const FullPlan& full) {
  const SearchResult& result = full.result;
  if (!result.gap || !result.known_orders_gap || *result.known_orders_gap >= *result.gap) return "";
  const std::string better = better_word(full.request.search.objective);
  constexpr const char* kWhich = "no plan of a schedule with a fixed order of ops";
  if (*result.known_orders_gap <= kProven) return fmt::format("{} is {}\n", kWhich, better);
  return fmt::format("{} can be more than {:.3g} % {}; not ruled out: {}\n", kWhich,
                     *result.known_orders_gap * 100, better, result.known_orders_gap_held_by);
}

}  // namespace

std::string better_word(Objective objective) {
  constexpr const char* kBetter[] = {"faster", "smaller", "cheaper", "faster"};
  return kBetter[static_cast<std::size_t>(objective)];
}

std::string proof(const FullPlan& full, bool statistics) {
  const SearchResult& result = full.result;
  const Problem& problem = full.problem;
  const bool other = !result.plans.front().choice.widths.empty();
  const std::string kind =
      other ? "plan of whole layers with as many replicas in every stage" : "plan";
  const std::string left =
      result.gap ? fmt::format("no {} of this search can be more than {:.3g} % {}", kind,
                               *result.gap * 100, better_word(full.request.search.objective))
                 : "no bound: some plans that were not simulated are bounded by nothing";
  const bool proven = result.gap && *result.gap <= kProven;
  std::string text = proven ? fmt::format("proven: no {} of this search is better\n", kind) : left;
  if (!proven && statistics && !result.gap_held_by.empty())
    text += "; not ruled out: " + result.gap_held_by;
  if (!proven) text += "\n";
  if (!proven && statistics) text += known_orders(full) + why_not_proven(result);
  return text + joined_layers(problem) + failed_simulations(result);
}

double price_of(const FullPlan& full, const FoundPlan& plan) {
  constexpr double kTokens = 1e9;
  const double update = gpu_hours(plan) * full.request.terms.gpu_hour;
  const auto tokens = static_cast<double>(full.tokens_per_sample() * full.problem.batch());
  return tokens > 0 ? update / tokens * kTokens : update;
}

std::string price_header(const FullPlan& full) {
  return full.tokens_per_sample() > 0 ? "cost/1e9 tokens" : "cost/update";
}

std::string recommendation_text(const FullPlan& full) {
  const int number = full.recommended();
  const std::string off = "within " + kCannotTell;
  if (number == 0) return fmt::format("recommended: the job as given: no plan is better {}\n", off);
  if (number == 1) return "recommended: plan 1\n";
  const std::string& software = full.problem.base().stack.name;
  const auto runs = [&](const Offer& offer) { return runs_in(software, offer.plan.choice); };
  return fmt::format(
      "recommended: plan {}, as good as plan 1 {}, and {}\n", number, off,
      runs(recommended_offer(full)) && !runs(full.offers[0]) ? software + " runs it" : "simpler");
}

std::string terms_text(const FullPlan& full) {
  std::string text;
  const FoundPlan& best = full.offers.front().plan;
  const Terms& terms = full.request.terms;
  const double price = gpu_hours(best) * terms.gpu_hour;
  if (terms.gpu_hour > 0) text += fmt::format("an update costs {:.4g}\n", price);
  if (terms.tokens <= 0) return text;
  constexpr double kSecondsPerHour = 3600;
  const double days = full.updates() * best.judgement.iteration_time_s / kSecondsPerHour / 24;
  text += fmt::format("{:.4g} tokens take {:.{}f} days", terms.tokens, days, days < 10 ? 1 : 0);
  if (terms.gpu_hour > 0) text += fmt::format(" and cost {:.4g}", price * full.updates());
  return text + "\n";
}

namespace {

/// Why there is no plan.
std::string nothing_found(const FullPlan& full) {
  const SearchResult& result = full.result;
  if (result.unanswered > 0) return "no plan was confirmed; " + failed_simulations(result);
  return result.infeasible_because.empty()
             ? "no plan was confirmed; try a larger --effort or --time-limit\n"
             : fmt::format("no plan: {}\n", full.infeasible_because());
}

}  // namespace

std::string no_plan(const FullPlan& full) { return nothing_found(full) + headroom_text(full); }

namespace {

/// What was written, and what could not be.
std::string files_text(const Offer& offer) {
  if (offer.files.empty()) return "";
  std::string text = fmt::format("  files: {}\n", fmt::join(offer.files, ", "));
  if (!offer.no_torch_csv.empty())
    text += fmt::format("  no table of torch: {}\n", offer.no_torch_csv);
  if (offer.scenario.transformer && !offer.no_megatron.empty())
    text +=
        fmt::format("  no files for Megatron-LM, which does not run it; {}\n",
                    offer.megatron_plan > 0 ? fmt::format("it runs plan {}", offer.megatron_plan)
                                            : "nor any other of these plans");
  return text;
}

/// How many of each stage's layers are recomputed in full, where stages differ.
std::string recomputed_text(const Choice& choice) {
  const auto selective = [](const Recomputation& r) {
    return r.granularity == Recompute::selective;
  };
  if (recompute_of(choice).alike() || std::ranges::any_of(choice.recompute, selective)) return "";
  std::vector<int> layers;
  for (std::size_t s = 0; s < choice.recompute.size(); ++s)
    layers.push_back(choice.recompute[s].recomputed(choice.layers[s]));
  return fmt::format("  of these recomputed {}\n", layers_text(layers));
}

/// How torchtitan runs a plan, where it is the software.
std::string titan_text(const Offer& best, int number) {
  std::string out =
      best.torchtitan.empty() ? fmt::format("not in torchtitan: {}\n", best.no_torchtitan) : "";
  if (!best.files.empty()) return out;
  if (!best.torchtitan.empty())
    out += fmt::format("\ntorchtitan runs plan {} with\n{}", number, best.torchtitan);
  return out + fmt::format("\nscenario of plan {} (--write FOLDER for all)\n{}", number,
                           best.scenario.text());
}

std::string offers_text(const FullPlan& full, std::size_t width, bool statistics) {
  std::string out = "\n" + plans_table(full, width) + given_text(full) + "\n";
  for (const std::string& line : alone_lines(full)) out += line + "\n";
  out += headroom_text(full);
  if (!full.alone.empty() || full.without_headroom) out += "\n";
  if (full.result.out_of_time)
    out +=
        "the time limit ended the search, so another run may find another plan (--time-limit)\n\n";
  for (std::size_t i = 0; i < full.offers.size(); ++i) {
    const Offer& offer = full.offers[i];
    out +=
        fmt::format("plan {}: layers per stage {}", i + 1, layers_text(offer.plan.choice.layers));
    if (!offer.plan.from.empty()) out += fmt::format(" (began with {}'s)", offer.plan.from);
    out += "\n" + recomputed_text(offer.plan.choice);
    for (const auto* lines : {&offer.reasons, &offer.placed})
      for (const std::string& line : *lines) out += "  " + line + "\n";
    if (const std::string text = frameworks_text(offer); !text.empty()) out += "  " + text + "\n";
    for (const std::string& change : offer.would_help) out += "  would help: " + change + "\n";
    if (!offer.plan.also.empty())
      out +=
          fmt::format("  the same order by another name: {}\n", fmt::join(offer.plan.also, ", "));
    out += files_text(offer);
  }
  // Where the job as given is recommended, its scenario is there already.
  const int number = std::max(1, full.recommended());
  const Offer& best = full.offers[static_cast<std::size_t>(number) - 1];
  out += "\n" + terms_text(full) + proof(full, statistics);
  const bool by_titan = best.scenario.stack.name.starts_with("torchtitan");
  if (by_titan) return out + titan_text(best, number);
  if (best.scenario.transformer && best.megatron.empty())
    out += "for Megatron-LM: --schedule 1f1b --schedule interleaved-1f1b --uniform-recompute\n";
  if (!best.megatron.empty() && best.files.empty())
    out += fmt::format("\nMegatron-LM runs plan {} with\n{}", number, best.megatron);
  if (best.files.empty())
    out += fmt::format("\nscenario of plan {} (--write FOLDER for all)\n{}", number,
                       best.scenario.text());
  return out;
}

std::string comparison_table(const std::vector<ComparedPlanner>& planners) {
  using A = TextTable::Align;
  TextTable table({"planner", "versions", "predicts", "samples/s", "ours is faster by", "plan"},
                  {A::left, A::left, A::right, A::right, A::right, A::left});
  const auto rate = [](double r) { return r > 0 ? fmt::format("{:.4g}", r) : std::string("-"); };
  for (const ComparedPlanner& p : planners) {
    const bool runs = p.throughput_samples_per_s > 0;
    table.add_row({p.name, p.versions ? "several" : "one", rate(p.predicted_samples_per_s),
                   rate(p.throughput_samples_per_s),
                   runs && !p.is_ours() ? fmt::format("{:.1f} %", p.ours_is_faster_by * 100) : "-",
                   runs             ? p.plan
                   : p.plan.empty() ? p.why_not
                                    : fmt::format("{}: {}", p.plan, p.why_not)});
  }
  return table.render();
}

}  // namespace

std::vector<std::string> alone_lines(const FullPlan& full) {
  std::vector<std::string> lines;
  const auto marked = [](double rate, bool optimistic) {
    return fmt::format("{:#.4g}{}", rate, optimistic ? "*" : "");
  };
  for (const KindAlone& kind : full.alone) {
    std::string line = fmt::format("the {} {} alone: ", kind.gpus, kind.device);
    if (!kind.plan) {
      lines.push_back(line + "no plan that fits was found");
      continue;
    }
    const PlanFamily& f = kind.plan->choice.family;
    const double rate = kind.plan->throughput_samples_per_s;
    const double more = full.offers.front().plan.throughput_samples_per_s / rate - 1;
    lines.push_back(
        line + fmt::format("{} samples/s ({}, {} x {}{}); plan 1 is {:.3g} % {}",
                           marked(rate, kind.optimistic), f.schedule->name,
                           counted(f.shape.depth, "stage"), counted(f.shape.width, "replica"),
                           f.shape.tensor > 1 ? fmt::format(", tensor {}", f.shape.tensor) : "",
                           100 * std::abs(more), more < 0 ? "slower" : "faster"));
  }
  return lines;
}

namespace {

/// " (H100)", " (32 A100-80 and 32 V100-16)"; "" where devices have no name.
std::string devices_text(const Cluster& cluster) {
  std::map<std::string, int> kinds;
  for (int gpu = 0; gpu < cluster.devices(); ++gpu) ++kinds[cluster.device_of(gpu).name];
  std::vector<std::string> parts;
  for (const auto& [name, count] : kinds)
    if (!name.empty()) parts.push_back(kinds.size() > 1 ? fmt::format("{} {}", count, name) : name);
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, " and "));
}

}  // namespace

std::string planner_notes(const FullPlan& full) {
  if (full.compared_notes.empty()) return "";
  return fmt::format("the published planners: {}", fmt::join(full.compared_notes, "; "));
}

std::string task_text(const FullPlan& full) {
  const Problem& problem = full.problem;
  const Scenario& base = problem.base();
  const std::int64_t tokens = full.tokens_per_sample();
  std::string text = fmt::format(
      "{} of {}{}: {}{} per update{}, objective {}", counted(problem.gpus(), "GPU"),
      base.cluster.name, devices_text(base.cluster), counted(problem.batch(), "sample"),
      tokens > 0 ? fmt::format(" of {} tokens", tokens) : "",
      tokens > 0 ? fmt::format(" ({} tokens)", format_count(tokens * problem.batch())) : "",
      kObjectiveNames[static_cast<std::size_t>(full.request.search.objective)]);
  if (base.transformer && !base.layer_profile)
    text += fmt::format(", software: {}", base.stack.name.empty() ? "none" : base.stack.name);
  if (problem.headroom() > 0)
    text += fmt::format(", {:.3g} % of memory left free (--headroom)", 100 * problem.headroom());
  return text;
}

std::string to_text(const FullPlan& full, std::size_t width, bool statistics) {
  const SearchResult& result = full.result;
  const Scenario& base = full.problem.base();
  std::string out = fmt::format(
      "{} on {}\n", base.transformer ? model_text(*base.transformer) : full.model_name(),
      task_text(full));
  for (const std::string& note : full.notes()) out += fmt::format("note: {}\n", note);
  out += full.offers.empty()
             ? no_plan(full) +
                   (full.given && full.given->offer ? "\n" + plans_table(full, width) : "") +
                   given_text(full)
             : offers_text(full, width, statistics);
  if (!full.compared.empty()) out += "\n" + comparison_table(full.compared);
  if (const std::string notes = planner_notes(full); !notes.empty()) out += "note: " + notes + "\n";
  out += fmt::format("not searched: {}\n", fmt::join(full.not_searched(), "; "));
  if (!statistics) return out;
  return out + "\n" + tallies_table(result) +
         fmt::format(
             "{} cuts simulated as a bound, {} plans confirmed with the whole model, {} moves of "
             "layers tried; {} families have more cuts than were visited\n",
             result.evaluations, result.confirmations, result.moves, result.represented);
}

std::string plans_csv(const FullPlan& full) {
  const Json result = to_json(full);
  std::vector<CsvRow> rows;
  for (const Json& plan : result["plans"]) {
    CsvRow row{{"search", result["search"]}};
    for (const auto& [key, value] : plan.items())
      if (key.starts_with("recompute"))  // lists where stages differ
        row.emplace_back(key, value.is_array() ? Json(value.dump()) : value);
      else if (!value.is_structured() && key != "scenario" && key != "megatron_arguments" &&
               key != "torchtitan_config")
        row.emplace_back(key, value);
    rows.push_back(std::move(row));
  }
  return to_csv(rows);
}

}  // namespace penstock
