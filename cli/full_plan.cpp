#include "cli/full_plan.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/progress.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/megatron_arguments.hpp"
#include "cli/output.hpp"
#include "cli/running.hpp"
#include "plan/search/search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsPerHour = 3600;

double number(const Arguments& arguments, const char* option, double otherwise) {
  if (!arguments.flag(option)) return otherwise;
  const std::string text = arguments.value(option);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value > 0 && std::isfinite(value)) return value;
  throw InputError(std::string("--") + option,
                   fmt::format("must be a number of more than 0, got '{}'", text));
}

std::int64_t count(const Arguments& arguments, const char* option, std::int64_t otherwise) {
  const double value = number(arguments, option, static_cast<double>(otherwise));
  if (value == std::floor(value) && value <= 1e9) return static_cast<std::int64_t>(value);
  throw InputError(std::string("--") + option,
                   fmt::format("must be a whole number from 1 to 1000000000, got '{}'",
                               arguments.value(option)));
}

bool is_file(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

/// The path of a file, or the name of what is shipped.
std::string file_or_name(const std::string& name) {
  return fs::exists(name) ? fs::absolute(name).string() : name;
}

/// The scenario to plan for: that of a file, or a model on a cluster.
Problem problem_of(const Arguments& arguments) {
  const std::string& name = arguments.positional[0];
  const std::int64_t batch = arguments.flag("batch") ? count(arguments, "batch", 0) : 0;
  if (is_file(name)) {
    require_file(name);
    return Problem(load_scenario(name, overrides_of(arguments)).text, name, batch);
  }
  for (const char* needed : {"cluster", "batch"}) {
    if (!arguments.flag(needed))
      throw InputError("penstock plan " + name, fmt::format("needs --{} with a model", needed));
  }
  return Problem(fmt::format("model: {}\ncluster: {}\n", file_or_name(name),
                             file_or_name(arguments.value("cluster"))),
                 "penstock plan " + name, batch);
}

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
  std::vector<std::string> reasons;
  std::string megatron;  ///< empty: Megatron-LM does not run it
  std::string file;      ///< it was written to; empty: none
};

using Reasons = std::map<std::string, std::vector<std::string>>;

/// In a process of its own: simgrid runs once per process.
Judgement in_process(const Scenario& scenario, Reasons& reasons) {
  const Json answer = Json::parse(in_child(scenario.origin, "simulated", [&] {
    std::vector<std::string> why;
    const Judgement v = judge(scenario, EngineChoice::automatic, &why);
    return Json{{"fits", v.fits},
                {"iteration_time_s", v.iteration_time_s},
                {"memory_bytes", v.memory_bytes},
                {"capacity_bytes", v.capacity_bytes},
                {"engine", v.engine},
                {"why", v.why},
                {"reasons", why}}
        .dump();
  }));
  reasons[scenario.text] = answer["reasons"].get<std::vector<std::string>>();
  return {answer["fits"].get<bool>(),           answer["iteration_time_s"].get<double>(),
          answer["memory_bytes"].get<double>(), answer["capacity_bytes"].get<double>(),
          answer["engine"].get<std::string>(),  answer["why"].get<std::string>()};
}

Offer offer_of(const Problem& problem, const FoundPlan& plan, const Reasons& reasons) {
  Offer offer{plan, problem.resolve(plan.candidate), {}, {}, {}};
  const auto known = reasons.find(offer.scenario.text);
  if (known != reasons.end()) {
    offer.reasons = known->second;
  } else {
    judge(offer.scenario, EngineChoice::exact, &offer.reasons);
  }
  try {
    offer.megatron = megatron_arguments(offer.scenario);
  } catch (const InputError&) {
    offer.megatron.clear();  // it runs few of the schedules
  }
  return offer;
}

Json to_json(const Offer& offer, const Problem& problem, const Terms& terms) {
  const FoundPlan& plan = offer.plan;
  const PlanFamily& family = plan.candidate.family;
  Json stages = Json::array();
  int first = 0;
  for (const int n : plan.candidate.layers) {
    stages.push_back(
        {{"first_layer", first}, {"last_layer", first + n - 1}, {"replicas", family.shape.width}});
    first += n;
  }
  const double time_s = plan.judgement.iteration_time_s;
  const double updates = terms.tokens > 0 ? terms.updates(problem.batch()) : 0;
  const double hours = time_s / kSecondsPerHour * family.shape.gpus();
  const auto asked = [](bool given, double value) { return given ? Json(value) : Json(); };
  return {{"iteration_time_s", time_s},
          {"time_per_stage_s", time_s / static_cast<double>(family.shape.microbatches)},
          {"throughput_samples_per_s", plan.throughput_samples_per_s},
          {"depth", family.shape.depth},
          {"width", family.shape.width},
          {"tensor", family.shape.tensor},
          {"chunks", family.chunks},
          {"gpus", family.shape.gpus()},
          {"microbatch_size", family.shape.microbatch_size},
          {"microbatches", family.shape.microbatches},
          {"recompute", kRecomputeNames[static_cast<std::size_t>(family.shape.recompute)]},
          {"schedule", family.schedule->name},
          {"placement", family.arrangement.placement},
          {"rank_order", family.arrangement.rank_order},
          {"peak_memory_bytes", plan.judgement.memory_bytes},
          {"engine", plan.judgement.engine},
          {"price_per_update", asked(terms.gpu_hour > 0, hours * terms.gpu_hour)},
          {"training_s", asked(updates > 0, time_s * updates)},
          {"training_price",
           asked(updates > 0 && terms.gpu_hour > 0, hours * terms.gpu_hour * updates)},
          {"limited_by", offer.reasons},
          {"megatron_arguments", offer.megatron.empty() ? Json() : Json(offer.megatron)},
          {"scenario", offer.scenario.text},
          {"stages", stages}};
}

Json to_json(const Tally& tally) {
  return {{"made", tally.made},   {"refused", tally.refused}, {"too_large", tally.too_large},
          {"worse", tally.worse}, {"opened", tally.opened},   {"left", tally.left}};
}

Json to_json(const Problem& problem, const SearchResult& result, const std::vector<Offer>& offers,
             const SearchOptions& options, const Terms& terms) {
  Json plans = Json::array();
  for (const Offer& offer : offers) plans.push_back(to_json(offer, problem, terms));
  const bool found = !result.plans.empty();
  return {{"schema_version", 1},
          {"model", problem.base().transformer ? problem.base().transformer->name : ""},
          {"search", "full"},
          {"objective", kObjectiveNames[static_cast<std::size_t>(options.objective)]},
          {"devices", problem.gpus()},
          {"batch", problem.batch()},
          {"lower_bound", std::isfinite(result.lower_bound) ? Json(result.lower_bound) : Json()},
          {"gap", found ? Json(result.gap) : Json()},
          {"gap_held_by", result.gap_held_by},
          {"evaluations", result.evaluations},
          {"confirmations", result.confirmations},
          {"shapes", to_json(result.shapes)},
          {"families", to_json(result.families)},
          {"cuts", to_json(result.cuts)},
          {"families_with_cuts_left", result.represented},
          {"infeasible_because", result.infeasible_because},
          {"plans", plans}};
}

/// "6 6 6 5", or "16 x 6".
std::string layers_text(const std::vector<int>& layers) {
  const bool even = std::ranges::adjacent_find(layers, std::not_equal_to()) == layers.end();
  if (even) return fmt::format("{} x {}", layers.size(), layers.front());
  return fmt::format("{}", fmt::join(layers, " "));
}

std::string plans_table(const std::vector<Offer>& offers) {
  using A = TextTable::Align;
  TextTable table({"plan", "schedule", "p", "v", "w", "t", "b", "m", "recompute", "GPUs", "update",
                   "samples/s", "memory", "engine", "ranks"},
                  {A::right, A::left, A::right, A::right, A::right, A::right, A::right, A::right,
                   A::left, A::right, A::right, A::right, A::right, A::left, A::left});
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const FoundPlan& plan = offers[i].plan;
    const PlanFamily& f = plan.candidate.family;
    table.add({std::to_string(i + 1), std::string(f.schedule->name), std::to_string(f.shape.depth),
               std::to_string(f.chunks), std::to_string(f.shape.width),
               std::to_string(f.shape.tensor), std::to_string(f.shape.microbatch_size),
               std::to_string(f.shape.microbatches),
               std::string(kRecomputeNames[static_cast<std::size_t>(f.shape.recompute)]),
               std::to_string(f.shape.gpus()), format_time(plan.judgement.iteration_time_s),
               fmt::format("{:.4g}", plan.throughput_samples_per_s),
               format_bytes(plan.judgement.memory_bytes), plan.judgement.engine,
               f.arrangement.rank_order + ", " + f.arrangement.placement});
  }
  return table.render();
}

std::string tallies_table(const SearchResult& result) {
  using A = TextTable::Align;
  TextTable table({"", "made", "refused", "do not fit", "proven worse", "opened", "left"},
                  {A::left, A::right, A::right, A::right, A::right, A::right, A::right});
  const auto add = [&](const char* what, const Tally& t) {
    table.add({what, std::to_string(t.made), std::to_string(t.refused), std::to_string(t.too_large),
               std::to_string(t.worse), std::to_string(t.opened), std::to_string(t.left)});
  };
  add("shapes (p, w, t, b, recompute)", result.shapes);
  add("families (schedule, chunks, ranks)", result.families);
  add("cuts (layers per stage)", result.cuts);
  return table.render();
}

std::string proof(const SearchResult& result) {
  if (result.gap <= 1e-8) return "proven best: nothing that was not simulated can be better\n";
  std::string text =
      fmt::format("bound gap {:.2f} %: no plan can be better than that", result.gap * 100);
  if (!result.gap_held_by.empty()) text += fmt::format("; not ruled out: {}", result.gap_held_by);
  return text + "\n";
}

std::string terms_text(const Offer& offer, const Problem& problem, const Terms& terms) {
  std::string text;
  const Shape& shape = offer.plan.candidate.family.shape;
  const double time_s = offer.plan.judgement.iteration_time_s;
  const double price = time_s / kSecondsPerHour * shape.gpus() * terms.gpu_hour;
  if (terms.gpu_hour > 0) text += fmt::format("an update costs {:.4g}\n", price);
  if (terms.tokens <= 0) return text;
  const double updates = terms.updates(problem.batch());
  text += fmt::format("{:.4g} tokens take {:.3g} days", terms.tokens,
                      updates * time_s / kSecondsPerHour / 24);
  if (terms.gpu_hour > 0) text += fmt::format(" and cost {:.4g}", price * updates);
  return text + "\n";
}

std::string to_text(const Problem& problem, const SearchResult& result,
                    const std::vector<Offer>& offers, const SearchOptions& options,
                    const Terms& terms) {
  std::string out = fmt::format(
      "{} on {} GPUs of {}: {} samples per update, objective {}\n",
      problem.base().transformer ? problem.base().transformer->name : problem.base().name,
      problem.gpus(), problem.base().cluster.name, problem.batch(),
      kObjectiveNames[static_cast<std::size_t>(options.objective)]);
  if (offers.empty()) {
    out += result.infeasible_because.empty()
               ? "no plan was confirmed; try a larger --effort\n"
               : fmt::format("no plan: {}\n", result.infeasible_because);
  } else {
    out += "\n" + plans_table(offers) + "\n";
    for (std::size_t i = 0; i < offers.size(); ++i) {
      const Offer& offer = offers[i];
      out += fmt::format("plan {}: layers {}\n", i + 1, layers_text(offer.plan.candidate.layers));
      for (const std::string& reason : offer.reasons) out += "  " + reason + "\n";
      if (!offer.file.empty())
        out += fmt::format("  penstock simulate {0}; penstock export {0} --to torch-csv\n",
                           offer.file);
    }
    const Offer& best = offers.front();
    out += "\n" + terms_text(best, problem, terms) + proof(result);
    if (!best.megatron.empty()) out += "\nMegatron-LM\n" + best.megatron;
    if (best.file.empty())
      out += "\nscenario of plan 1 (--write FOLDER for all)\n" + best.scenario.text;
  }
  return out + "\n" + tallies_table(result) +
         fmt::format(
             "{} cuts simulated as a bound, {} plans confirmed in a process; {} families "
             "have more cuts than were visited\n",
             result.evaluations, result.confirmations, result.represented);
}

std::string to_csv(const Json& result) {
  std::vector<std::vector<std::pair<std::string, Json>>> rows;
  for (const Json& plan : result["plans"]) {
    std::vector<std::pair<std::string, Json>> row{{"search", result["search"]}};
    for (const auto& [key, value] : plan.items())
      if (!value.is_structured() && key != "scenario" && key != "megatron_arguments")
        row.emplace_back(key, value);
    rows.push_back(std::move(row));
  }
  return penstock::to_csv(rows);
}

void write_offers(const std::string& folder, std::vector<Offer>& offers) {
  std::error_code error;
  fs::create_directories(folder, error);
  for (std::size_t i = 0; i < offers.size(); ++i) {
    offers[i].file = (fs::path(folder) / fmt::format("plan-{}.yaml", i + 1)).string();
    std::ofstream file(offers[i].file);
    file << offers[i].scenario.text;
    if (!file.flush()) throw SystemError("cannot write '" + offers[i].file + "'");
  }
}

Terms terms_of(const Arguments& arguments, const Problem& problem) {
  Terms terms{number(arguments, "price", 0), number(arguments, "tokens", 0), 0};
  if (problem.base().transformer) terms.sequence = problem.base().transformer->seq_length;
  if (terms.tokens > 0 && terms.sequence == 0)
    throw InputError("--tokens", "needs a model by shape, whose samples have a length");
  return terms;
}

SearchOptions options_of(const Arguments& arguments) {
  SearchOptions options;
  const std::string objective = arguments.value("objective", "throughput");
  options.objective = static_cast<Objective>(std::ranges::find(kObjectiveNames, objective) -
                                             std::begin(kObjectiveNames));
  options.most_evaluations = static_cast<std::size_t>(count(arguments, "effort", 3000));
  options.top = static_cast<std::size_t>(count(arguments, "top", 5));
  return options;
}

}  // namespace

bool wants_full_plan(const Arguments& arguments) {
  const bool graph =
      arguments.positional[0].ends_with(".txt") || arguments.positional[0].ends_with(".csv");
  return arguments.value("search", graph ? "pipedream" : "full") == "full";
}

int run_full_plan(const Arguments& arguments) {
  const Problem problem = problem_of(arguments);
  const Terms terms = terms_of(arguments, problem);
  SearchOptions options = options_of(arguments);
  Reasons reasons;
  options.confirm = [&](const Scenario& scenario) { return in_process(scenario, reasons); };
  Progress progress("planning", static_cast<std::int64_t>(options.most_evaluations));
  options.progress = [&](std::size_t done, double, double) {
    progress.update(static_cast<std::int64_t>(done));
  };
  const SearchResult result =
      search(problem, problem.axes(arguments.flag("asynchronous")), options);
  std::vector<Offer> offers;
  for (const FoundPlan& plan : result.plans) offers.push_back(offer_of(problem, plan, reasons));
  if (arguments.flag("write")) write_offers(arguments.value("write"), offers);
  const std::string format = arguments.value("format", "table");
  const Json json = to_json(problem, result, offers, options, terms);
  put_output(arguments, format == "json"  ? json.dump(2) + "\n"
                        : format == "csv" ? to_csv(json)
                                          : to_text(problem, result, offers, options, terms));
  return exit_ok;
}

}  // namespace penstock
