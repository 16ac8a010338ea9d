// What `penstock plan --search full` says: text, JSON, CSV.
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "cli/plan_report.hpp"
#include "cli/plan_texts.hpp"
#include "cli/planning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <ranges>

namespace penstock {
namespace {

constexpr double kSecondsPerHour = 3600;

int layers_of_model(const Problem& problem) {
  const std::vector<int> each(static_cast<std::size_t>(problem.layers()), 1);
  const std::vector<int> of_model = problem.in_model(each);
  return std::accumulate(of_model.begin(), of_model.end(), 0);
}

Json stages_of(const Choice& choice) {
  Json stages = Json::array();
  int first = 0;
  for (std::size_t s = 0; s < choice.layers.size(); ++s) {
    const int n = choice.layers[s];
    stages.push_back(
        {{"first_layer", first},
         {"last_layer", first + n - 1},
         {"replicas", choice.widths.empty() ? choice.family.shape.width : choice.widths[s]}});
    first += n;
  }
  return stages;
}

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

/// As in a scenario: a value, or a list with one per stage.
template <class T>
Json per_stage_json(const PerStage<T>& values) {
  const Json each = values.values();
  return values.alike() ? each[0] : each;
}

Json recompute_json(const Choice& choice) {
  if (choice.family.schedule->checkpoints) return alike_text(choice);
  return per_stage_json(recompute_keys(choice).recompute.map(
      [](Recompute r) { return std::string(kRecomputeNames[static_cast<std::size_t>(r)]); }));
}

Json recompute_layers_json(const Choice& choice) {
  const RecomputeKeys keys = recompute_keys(choice);
  return keys.layers ? per_stage_json(*keys.layers) : Json();
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

namespace {

/// Those that have its schedule: Megatron-LM by its flags, PyTorch's pipelining by a class of its
/// own or from a table.
std::vector<std::string> frameworks_of(const Offer& offer) {
  const Schedule& schedule = *offer.plan.choice.family.schedule;
  std::vector<std::string> found;
  if (!offer.megatron.empty()) found.emplace_back("Megatron-LM");
  const auto is_class = [](std::string_view alias) { return alias.starts_with("Schedule"); };
  const auto at = std::ranges::find_if(schedule.aliases, is_class);
  if (at != schedule.aliases.end())
    found.push_back(fmt::format("PyTorch ({})", *at));
  else if (!offer.torch_csv.empty() && offer.plan.choice.family.shape.depth > 1)
    found.emplace_back("PyTorch (from its table, --write)");
  return found;
}

}  // namespace

std::string frameworks_text(const Offer& offer) {
  const auto known = frameworks_of(offer);
  std::vector<std::string> parts;
  if (!known.empty()) parts.push_back(fmt::format("runs in: {}", fmt::join(known, ", ")));
  if (offer.scenario.transformer && !offer.no_megatron.empty())
    parts.push_back(fmt::format("not in Megatron-LM: {}", offer.no_megatron));
  return fmt::format("{}", fmt::join(parts, "; "));
}

namespace {

Json to_json(const Offer& offer, const Problem& problem, const Terms& terms) {
  const FoundPlan& plan = offer.plan;
  const PlanFamily& family = plan.choice.family;
  const double time_s = plan.judgement.iteration_time_s;
  const double updates = terms.tokens > 0 ? terms.updates(problem.batch()) : 0;
  const double hours = time_s / kSecondsPerHour * plan.choice.gpus();
  const auto asked = [](bool given, double value) { return given ? Json(value) : Json(); };
  return {{"iteration_time_s", time_s},
          {"time_per_stage_s", time_s / static_cast<double>(family.shape.microbatches)},
          {"throughput_samples_per_s", plan.throughput_samples_per_s},
          {"depth", family.shape.depth},
          {"width", family.shape.width},
          {"tensor", family.shape.tensor},
          {"sequence_parallel", family.shape.sequence_parallel},
          {"distributed_optimizer", family.shape.distributed_optimizer},
          {"chunks", family.chunks},
          {"gpus", plan.choice.gpus()},
          {"microbatch_size", family.shape.microbatch_size},
          {"microbatches", family.shape.microbatches},
          {"recompute", recompute_json(plan.choice)},
          {"recompute_method", recompute_keys(plan.choice).layers ? Json("block") : Json()},
          {"recompute_layers", recompute_layers_json(plan.choice)},
          {"schedule", family.schedule->name},
          {"placement", family.arrangement.placement},
          {"rank_order", family.arrangement.rank_order},
          {"peak_memory_bytes", plan.judgement.memory_bytes},
          {"optimistic", offer.scenario.optimistic},
          {"missing", offer.scenario.missing.empty() ? Json() : Json(offer.scenario.missing)},
          {"engine", plan.judgement.engine},
          {"price_per_update", asked(terms.gpu_hour > 0, hours * terms.gpu_hour)},
          {"training_s", asked(updates > 0, time_s * updates)},
          {"training_price",
           asked(updates > 0 && terms.gpu_hour > 0, hours * terms.gpu_hour * updates)},
          {"limited_by", offer.reasons},
          {"would_help", offer.would_help},
          {"runs_in", frameworks_of(offer)},
          {"not_in_megatron", offer.no_megatron.empty() ? Json() : Json(offer.no_megatron)},
          {"megatron_arguments", offer.megatron.empty() ? Json() : Json(offer.megatron)},
          {"megatron_plan", offer.megatron_plan > 0 ? Json(offer.megatron_plan) : Json()},
          {"scenario", offer.scenario.text},
          {"files", offer.files},
          {"best_at", plan.best_at},
          {"placed", offer.placed},
          {"began_with", plan.from},
          {"also_called", plan.also},
          {"stages", stages_of(plan.choice)}};
}

Json to_json(const Tally& tally) {
  return {{"made", tally.made},   {"refused", tally.refused}, {"too_large", tally.too_large},
          {"worse", tally.worse}, {"opened", tally.opened},   {"left", tally.left}};
}

}  // namespace

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

std::string plans_table(const std::vector<Offer>& offers, std::size_t width) {
  using A = TextTable::Align;
  TextTable table({"plan", "schedule", "p", "v", "w", "t", "b", "m", "recompute", "GPUs", "update",
                   "samples/s", "memory", "best at", "engine", "ranks"},
                  {A::right, A::left, A::right, A::right, A::right, A::right, A::right, A::right,
                   A::left, A::right, A::right, A::right, A::right, A::left, A::left, A::left});
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const FoundPlan& plan = offers[i].plan;
    const PlanFamily& f = plan.choice.family;
    table.add({std::to_string(i + 1), std::string(f.schedule->name), std::to_string(f.shape.depth),
               std::to_string(f.chunks), width_text(plan.choice), tensor_text(f.shape),
               std::to_string(f.shape.microbatch_size), std::to_string(f.shape.microbatches),
               recompute_column(plan.choice), std::to_string(plan.choice.gpus()),
               format_time(plan.judgement.iteration_time_s),
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
                                   {"memory", offers.front().scenario.missing.empty()
                                                  ? "of the fullest device"
                                                  : "of the fullest device, at least"},
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
    table.add({what, std::to_string(t.made), std::to_string(t.refused), std::to_string(t.too_large),
               std::to_string(t.worse), std::to_string(t.opened), std::to_string(t.left)});
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
  const int of_model = layers_of_model(problem);
  if (of_model == problem.layers()) return "";
  return fmt::format(
      "{} layers were joined to {}, the lightest neighbours first; nothing is said about cuts "
      "inside of joined ones\n",
      of_model, problem.layers());
}

}  // namespace

std::vector<std::string> not_searched(const FullPlan& full) {
  const Problem& problem = full.problem;
  std::vector<std::string> out;
  if (!full.several_versions)
    out.emplace_back("schedules with several weight versions (--asynchronous)");
  const auto fixed = [&](const std::optional<bool>& said, const char* what) {
    if (said) out.push_back(fmt::format("plans {} {}", *said ? "without" : "with", what));
  };
  fixed(problem.sequence_parallel(), "sequence parallelism");
  fixed(problem.distributed_optimizer(), "a distributed optimizer (ZeRO-1)");
  for (const std::string& axis : problem.other_axes())
    out.push_back(fmt::format("the scenario's {} (plans without)", axis));
  if (!problem.accumulation_steps().empty())
    out.push_back(fmt::format("the scenario's {} accumulation steps (plans without)",
                              problem.accumulation_steps()));
  if (problem.base().measured) out.emplace_back("tensor degrees, which were not measured");
  if (!problem.selective_frees())
    out.emplace_back("selective recomputation, which frees nothing with flash attention");
  if (!full.result.single_layers) out.emplace_back("recomputation of single layers");
  const auto short_stages = [](const Offer& offer) {
    const std::vector<int>& layers = offer.plan.choice.layers;
    return layers.size() > 1 && std::ranges::min(layers) == 1;
  };
  if (std::ranges::any_of(full.offers, short_stages))
    out.emplace_back("stages without layers (of the embedding or the LM head alone)");
  for (const char* always : {"sharded gradients or weights (ZeRO-2, ZeRO-3)",
                             "context and expert parallelism", "offloading"})
    out.emplace_back(always);
  return out;
}

namespace {

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
  const std::string better = better_word(full.options.objective);
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
                               *result.gap * 100, better_word(full.options.objective))
                 : "no bound: some plans that were not simulated are bounded by nothing";
  const bool proven = result.gap && *result.gap <= kProven;
  std::string text = proven ? fmt::format("proven: no {} of this search is better\n", kind) : left;
  if (!proven)
    text += (result.gap_held_by.empty() ? "" : "; not ruled out: " + result.gap_held_by) + "\n";
  if (!proven) text += known_orders(full) + why_not_proven(result);
  return text + joined_layers(problem) + failed_simulations(result);
}

std::string terms_text(const Offer& offer, const Problem& problem, const Terms& terms) {
  std::string text;
  const double time_s = offer.plan.judgement.iteration_time_s;
  const double price = time_s / kSecondsPerHour * offer.plan.choice.gpus() * terms.gpu_hour;
  if (terms.gpu_hour > 0) text += fmt::format("an update costs {:.4g}\n", price);
  if (terms.tokens <= 0) return text;
  const double updates = terms.updates(problem.batch());
  const double days = updates * time_s / kSecondsPerHour / 24;
  text += fmt::format("{:.4g} tokens take {:.{}f} days", terms.tokens, days, days < 10 ? 1 : 0);
  if (terms.gpu_hour > 0) text += fmt::format(" and cost {:.4g}", price * updates);
  return text + "\n";
}

namespace {

/// The reason; where the model's state alone is too large, how large it is.
std::string infeasible_because(const FullPlan& full) {
  const std::string& why = full.result.infeasible_because;
  const Scenario& base = full.problem.base();
  double there_bytes = 0;
  for (int gpu = 0; gpu < base.cluster.devices(); ++gpu)
    there_bytes += static_cast<double>(base.cluster.device_of(gpu).capacity_bytes());
  const double state_bytes = task_of(base).model->state_bytes();
  if (why.empty() || there_bytes == 0 || state_bytes <= there_bytes) return why;
  return fmt::format("{}: weights, gradients and optimizer state are {}, all {} GPUs have {}", why,
                     format_bytes(state_bytes), full.problem.gpus(), format_bytes(there_bytes));
}

/// Why there is no plan.
std::string nothing_found(const FullPlan& full) {
  const SearchResult& result = full.result;
  if (result.unanswered > 0) return "no plan was confirmed; " + failed_simulations(result);
  return result.infeasible_because.empty()
             ? "no plan was confirmed; try a larger --effort or --time-limit\n"
             : fmt::format("no plan: {}\n", infeasible_because(full));
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
  out += "\n" + terms_text(best, full.problem, full.terms) + proof(full);
  if (best.scenario.transformer && best.megatron.empty())
    out += "for Megatron-LM: --schedule 1f1b --schedule interleaved-1f1b --uniform-recompute\n";
  if (!best.megatron.empty() && best.files.empty())
    out += "\nMegatron-LM runs plan 1 with\n" + best.megatron;
  if (best.files.empty())
    out += "\nscenario of plan 1 (--write FOLDER for all)\n" + best.scenario.text;
  return out;
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

std::string FullPlan::model_name() const {
  const Scenario& base = problem.base();
  return base.transformer ? base.transformer->name : base.name;
}

std::vector<std::string> FullPlan::notes() const {
  std::vector<std::string> lines = problem.base().file_notes;
  if (usual_batch)
    lines.push_back(fmt::format(
        "no batch is given: {} samples per update, {} for each GPU; a larger one fills pipelines "
        "better (--batch)",
        problem.batch(), problem.batch() / problem.gpus()));
  return lines;
}

namespace {

Json alone_json(const FullPlan& full) {
  Json kinds = Json::array();
  for (const KindAlone& kind : full.alone)
    kinds.push_back({{"device", kind.device},
                     {"gpus", kind.gpus},
                     {"throughput_samples_per_s",
                      kind.plan ? Json(kind.plan->throughput_samples_per_s) : Json()},
                     {"optimistic", kind.optimistic}});
  return kinds;
}

}  // namespace

Json to_json(const FullPlan& full) {
  const SearchResult& result = full.result;
  Json plans = Json::array();
  for (const Offer& offer : full.offers) plans.push_back(to_json(offer, full.problem, full.terms));
  Json compared = Json::array();
  for (const ComparedPlanner& planner : full.compared) compared.push_back(to_json(planner));
  return {{"schema_version", 1},
          {"model", full.model_name()},
          {"search", "full"},
          {"objective", kObjectiveNames[static_cast<std::size_t>(full.options.objective)]},
          {"devices", full.problem.gpus()},
          {"batch", full.problem.batch()},
          {"headroom", full.problem.headroom()},
          {"without_headroom", headroom_json(full)},
          {"layers", layers_of_model(full.problem)},
          {"searched_layers", full.problem.layers()},
          {"lower_bound", std::isfinite(result.lower_bound) ? Json(result.lower_bound) : Json()},
          {"gap", result.gap ? Json(*result.gap) : Json()},
          {"gap_held_by", result.gap_held_by},
          {"known_orders_gap", result.known_orders_gap ? Json(*result.known_orders_gap) : Json()},
          {"known_orders_gap_held_by", result.known_orders_gap_held_by},
          {"out_of_time", result.out_of_time},
          {"evaluations", result.evaluations},
          {"confirmations", result.confirmations},
          {"failed_simulations", result.unanswered},
          {"moves", result.moves},
          {"shapes", to_json(result.shapes)},
          {"families", to_json(result.families)},
          {"cuts", to_json(result.cuts)},
          {"families_with_cuts_left", result.represented},
          {"infeasible_because", infeasible_because(full)},
          {"not_searched", not_searched(full)},
          {"alone", alone_json(full)},
          {"notes", full.notes()},
          {"planners", compared},
          {"planner_notes", full.compared_notes},
          {"plans", plans}};
}

std::string task_text(const FullPlan& full) {
  const Problem& problem = full.problem;
  const auto& transformer = problem.base().transformer;
  std::string text =
      fmt::format("{} GPUs of {}: {} samples{} per update, objective {}", problem.gpus(),
                  problem.base().cluster.name, problem.batch(),
                  transformer ? fmt::format(" of {} tokens", transformer->seq_length) : "",
                  kObjectiveNames[static_cast<std::size_t>(full.options.objective)]);
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
  out += fmt::format("not searched: {}\n", fmt::join(not_searched(full), "; "));
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
