// What `penstock plan --search full` says: text, CSV.
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "cli/plan_texts.hpp"
#include "plan/search/plan_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>

namespace penstock {
namespace {

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
  const char* shared = choice.family.shape.distributed_optimizer ? "z" : "";
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

/// Whose memory it is, and which bound where the model leaves something out.
std::string memory_legend(const Scenario& s) {
  if (s.left_out().empty()) return "of the fullest device";
  return s.missing_saves.empty() ? "of the fullest device, at least"
         : s.missing.empty()     ? "of the fullest device, at most"
                                 : "of the fullest device, about";
}

std::string plans_table(const std::vector<Offer>& offers, std::size_t width) {
  using A = TextTable::Align;
  TextTable table({"plan", "schedule", "p", "v", "w", "t", "b", "m", "recompute", "GPUs", "update",
                   "samples/s", "memory", "best at", "engine", "ranks"},
                  {A::right, A::left, A::right, A::right, A::right, A::right, A::right, A::right,
                   A::left, A::right, A::right, A::right, A::right, A::left, A::left, A::left});
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const FoundPlan& plan = offers[i].plan;
    const PlanFamily& f = plan.choice.family;
    table.add_row({std::to_string(i + 1), std::string(f.schedule->name),
                   std::to_string(f.shape.depth), std::to_string(f.chunks), width_text(plan.choice),
                   tensor_text(f.shape), std::to_string(f.shape.microbatch_size),
                   std::to_string(f.shape.microbatches), recompute_column(plan.choice),
                   std::to_string(plan.choice.gpus()), format_time(plan.judgement.iteration_time_s),
                   fmt::format("{:.4g}{}", plan.throughput_samples_per_s,
                               offers[i].scenario.optimistic ? "*" : ""),
                   format_bytes(plan.judgement.memory_bytes),
                   fmt::format("{}", fmt::join(plan.best_at, ", ")), plan.judgement.engine,
                   ranks_text(plan.choice)});
  }
  const std::string gone = table.fit(width, {"ranks", "engine", "GPUs", "update", "m", "best at"});
  std::string text = table.render() + gone +
                     table.legend({{"p", "stages"},
                                   {"v", "chunks"},
                                   {"w", "replicas (data parallel)"},
                                   {"t", "GPUs of a stage (tensor parallel)"},
                                   {"b", "samples of a microbatch"},
                                   {"m", "microbatches per update"},
                                   {"memory", memory_legend(offers.front().scenario)},
                                   {"engine", "that simulated it"},
                                   {"ranks", "their order on the GPUs"}},
                                  width);
  const auto any = [&](bool Shape::*shared) {
    return std::ranges::any_of(offers,
                               [&](const Offer& o) { return o.plan.choice.family.shape.*shared; });
  };
  if (any(&Shape::distributed_optimizer)) text += "z: replicas share the optimizer (ZeRO-1)\n";
  if (any(&Shape::sequence_parallel)) text += "s: with sequence parallelism\n";
  if (std::ranges::any_of(offers, [](const Offer& o) { return o.scenario.optimistic; }))
    text += fmt::format("*: {}\n", kOptimistic);
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

std::string proof(const FullPlan& full) {
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
  if (!proven)
    text += (result.gap_held_by.empty() ? "" : "; not ruled out: " + result.gap_held_by) + "\n";
  if (!proven) text += known_orders(full) + why_not_proven(result);
  return text + joined_layers(problem) + failed_simulations(result);
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

std::string offers_text(const FullPlan& full, std::size_t width) {
  std::string out = "\n" + plans_table(full.offers, width) + "\n";
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
  const Offer& best = full.offers.front();
  out += "\n" + terms_text(full) + proof(full);
  if (best.scenario.transformer && best.megatron.empty())
    out += "for Megatron-LM: --schedule 1f1b --schedule interleaved-1f1b --uniform-recompute\n";
  if (!best.megatron.empty() && best.files.empty())
    out += "\nMegatron-LM runs plan 1 with\n" + best.megatron;
  if (best.files.empty())
    out += "\nscenario of plan 1 (--write FOLDER for all)\n" + best.scenario.text;
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

std::string planner_notes(const FullPlan& full) {
  if (full.compared_notes.empty()) return "";
  return fmt::format("the published planners: {}", fmt::join(full.compared_notes, "; "));
}

std::string task_text(const FullPlan& full) {
  const Problem& problem = full.problem;
  const auto& transformer = problem.base().transformer;
  std::string text =
      fmt::format("{} GPUs of {}: {} samples{} per update, objective {}", problem.gpus(),
                  problem.base().cluster.name, problem.batch(),
                  transformer ? fmt::format(" of {} tokens", transformer->seq_length) : "",
                  kObjectiveNames[static_cast<std::size_t>(full.request.search.objective)]);
  if (problem.headroom() > 0)
    text += fmt::format(", {:.3g} % of memory left free (--headroom)", 100 * problem.headroom());
  return text;
}

std::string to_text(const FullPlan& full, std::size_t width) {
  const SearchResult& result = full.result;
  std::string out = fmt::format("{} on {}\n", full.model_name(), task_text(full));
  for (const std::string& note : full.notes()) out += fmt::format("note: {}\n", note);
  out += full.offers.empty() ? no_plan(full) : offers_text(full, width);
  if (!full.compared.empty()) out += "\n" + comparison_table(full.compared);
  if (const std::string notes = planner_notes(full); !notes.empty()) out += "note: " + notes + "\n";
  out += fmt::format("not searched: {}\n", fmt::join(full.not_searched(), "; "));
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
      else if (!value.is_structured() && key != "scenario" && key != "megatron_arguments")
        row.emplace_back(key, value);
    rows.push_back(std::move(row));
  }
  return to_csv(rows);
}

}  // namespace penstock
