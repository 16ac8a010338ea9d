// SPDX-License-Identifier: Apache-2.0
// penstock train: what scenarios learn under the update rules of their schedules.
#include "base/exit_codes.hpp"
#include "base/json_fields.hpp"
#include "base/numbers.hpp"
#include "base/say.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/execution.hpp"
#include "cli/running.hpp"
#include "hw/executor_process.hpp"
#include "hw/run_plan_file.hpp"
#include "hw/training_curve.hpp"
#include "report/learning_section.hpp"
#include "report/report.hpp"
#include "results/learning.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

namespace penstock {
namespace {

/// The texts of --rates; one that is empty where the scenario's own is used.
std::vector<std::string> rates_of(const Arguments& arguments) {
  if (!arguments.flag("rates")) return {""};
  std::vector<std::string> rates;
  std::string rest = arguments.value("rates") + ",";
  for (std::size_t end; (end = rest.find(',')) != std::string::npos; rest.erase(0, end + 1)) {
    const std::string rate = rest.substr(0, end);
    const auto value = parse_number<double>(rate);
    if (!value || !(*value > 0 && *value <= 1000))
      throw InputError("--rates",
                       fmt::format("must be learning rates above 0 and at most 1000 with commas "
                                   "between them, as 0.001,0.003, got '{}'",
                                   rate));
    if (std::ranges::find(rates, rate) != rates.end())
      throw InputError("--rates", fmt::format("has {} twice", rate));
    rates.push_back(rate);
  }
  return rates;
}

/// A scenario as it is trained: its batches are the updates.
Scenario loaded(const Arguments& arguments, const std::string& path, const std::string& rate,
                std::uint64_t more_seed) {
  std::vector<Override> overrides = overrides_of(arguments);
  if (!rate.empty()) overrides.push_back({"training.learning_rate", rate});
  if (arguments.flag("updates"))
    overrides.push_back({"training.updates", arguments.value("updates")});
  const Scenario first = load_scenario(path, overrides);
  overrides.push_back({"batches", std::to_string(first.training.updates)});
  overrides.push_back({"training.seed", std::to_string(first.training.seed + more_seed)});
  return load_scenario(path, overrides);
}

/// One program file, and what it will be called.
struct Job {
  std::size_t scenario;
  std::uint64_t seed;
  std::vector<double> ends_s;  ///< of its updates, on its cluster
};

/// In the order in which the replicas of a simulated run make them.
std::vector<LoneUpdate> lone_updates_of(const Simulation& s) {
  if (!s.latest || !s.program.placement.replicated()) return {};
  const std::uint32_t each = s.program.batches;
  std::vector<LoneUpdate> updates(std::size_t{each} * s.program.placement.width());
  for (int d = 0; d < s.program.placement.devices(); ++d) {
    for (std::uint32_t u = 0; u < each; ++u)
      updates.at(s.latest->version(d, u + 1) - 1) = {s.program.placement.replica_of(d),
                                                     s.latest->version(d, u)};
  }
  return updates;
}

std::uint64_t counted_option(const Arguments& arguments, const char* name, unsigned otherwise) {
  if (!arguments.flag(name)) return otherwise;
  const auto value = parse_number<std::uint64_t>(arguments.value(name));
  if (!value || *value < 1 || *value > 1000)
    throw InputError(
        std::string("--") + name,
        fmt::format("must be an integer from 1 to 1000, got '{}'", arguments.value(name)));
  return *value;
}

std::string suffixed(const std::string& path, std::size_t i, std::size_t count) {
  return count == 1 ? path : fmt::format("{}.{}", path, i);
}

/// What penstock-run left, if anything.
void collect(const std::string& path, const Job& job, LearnedScenario& into) {
  if (!std::filesystem::exists(path)) return;
  const TrainingCurve curve = parse_training_curve(read_file(path), path);
  into.parameters = curve.parameters;
  into.loss_floor = curve.loss_floor;
  Learning run{job.seed, {}, curve.weights_digest, curve.stopped_because, curve.seconds};
  for (const CurvePoint& p : curve.points)
    run.curve.push_back({p.update, p.update * into.samples_per_update, job.ends_s.at(p.update - 1),
                         p.loss, p.evaluation_loss});
  into.runs.push_back(std::move(run));
}

/// All scenarios with all rates and seeds. `status`: what penstock-run ended with; runs that it did
/// not begin are missing.
std::vector<LearnedScenario> train_all(const Arguments& arguments, int& status) {
  const std::uint64_t seeds = counted_option(arguments, "seeds", 1);
  const std::vector<std::string> rates = rates_of(arguments);
  const TemporaryFolder folder;
  std::vector<LearnedScenario> learned;
  std::vector<Job> jobs;
  std::vector<std::string> words;
  for (const std::string& path : arguments.positional) {
    std::vector<double> ends_s;
    std::vector<LoneUpdate> lone_updates;
    for (const std::string& rate : rates) {
      for (std::uint64_t more = 0; more < seeds; ++more) {
        const Scenario scenario = loaded(arguments, path, rate, more);
        Simulation s = prepare(scenario);
        RunPlan plan = run_plan_of(s, compute_of(arguments), true);
        if (ends_s.empty()) {  // on its cluster all of them take as long
          run_engine(s, EngineChoice::automatic);
          ends_s = all_update_ends_s(s);
          lone_updates = lone_updates_of(s);
        }
        if (more == 0) {
          learned.push_back(learned_scenario(s.scenario));
          if (rates.size() > 1) learned.back().name += fmt::format(", rate {}", rate);
        }
        plan.lone_updates = lone_updates;
        plan.origin = scenario.origin;
        words.push_back(folder.file(fmt::format("program{}.json", jobs.size())));
        write_file(words.back(), to_text(plan));
        jobs.push_back({learned.size() - 1, plan.training.seed, ends_s});
      }
    }
  }
  const std::string curve = folder.file("curve.json");
  words.insert(words.end(), {"--train", curve});
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  words.insert(words.end(), {"--jobs", std::to_string(counted_option(arguments, "jobs", cores))});
  if (arguments.flag("checkpoint"))
    words.insert(words.end(), {"--checkpoint", arguments.value("checkpoint")});
  for (const char* option : {"resume", "force"})
    if (arguments.flag(option)) words.push_back(std::string("--") + option);
  status = run_executor(words);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    collect(suffixed(curve, i, jobs.size()), jobs[i], learned[jobs[i].scenario]);
  return learned;
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "none";
}

/// Mean, and how far seeds lie apart.
std::string band_text(const Band& band, std::size_t seeds) {
  if (seeds == 1) return loss_text(band.mean);
  return fmt::format("{} ({} to {})", loss_text(band.mean), loss_text(band.least),
                     loss_text(band.most));
}

/// About ten of them, the first and the last among them.
std::vector<Band> shown(const std::vector<Band>& all) {
  constexpr std::size_t kRows = 10;
  if (all.size() <= kRows) return all;
  std::vector<Band> some;
  for (std::size_t i = 0; i < kRows; ++i) some.push_back(all[i * (all.size() - 1) / (kRows - 1)]);
  return some;
}

std::string curve_table(const LearnedScenario& s) {
  const auto losses = bands(s, false), evaluated = bands(s, true);
  TextTable table({"update", "samples", "simulated", "loss", "held out"});
  std::vector<Band> rows = evaluated.empty() ? shown(losses) : shown(evaluated);
  for (const Band& row : rows) {
    const auto loss = std::ranges::find(losses, row.update, &Band::update);
    const auto held_out = std::ranges::find(evaluated, row.update, &Band::update);
    table.add_row({std::to_string(row.update), fmt::format("{:.0f}", row.samples),
                   format_time(row.simulated_s),
                   loss == losses.end() ? "" : band_text(*loss, s.runs.size()),
                   held_out == evaluated.end() ? "" : band_text(*held_out, s.runs.size())});
  }
  return table.render();
}

std::string heading(const LearnedScenario& s) {
  std::string text = fmt::format(
      "{}\n{}, {}{}; {} parameters, {} with learning rate {:g}, {:.0f} samples per update\n",
      s.name, s.schedule, counted(s.stages, "stage"),
      s.replicas > 1 ? fmt::format(" x {} replicas", s.replicas) : "", format_count(s.parameters),
      s.optimizer, s.learning_rate, s.samples_per_update);
  if (s.loss_floor && *s.loss_floor > 0)
    text +=
        fmt::format("no mean loss can be below {:.4f}, the entropy of the data\n", *s.loss_floor);
  return text;
}

std::string closing(const LearnedScenario& s, bool reproducible) {
  std::string text;
  for (const Learning& run : s.runs) {
    text += fmt::format("seed {}: weights {}", run.seed, run.weights_digest);
    if (!reproducible) text += fmt::format(", trained in {}", format_time(run.seconds));
    if (!run.stopped_because.empty()) text += fmt::format("; stopped: {}", run.stopped_because);
    text += "\n";
  }
  return text;
}

/// Who had the lowest last loss, and what that is worth.
struct Outcome {
  std::string who, why;
  bool any = true;
};

Outcome outcome_of(const std::vector<LearnedScenario>& all) {
  const auto [best, rivals] = learned_most(all);
  if (best == nullptr) return {"nothing", "no run came to a loss", false};
  const Band last = judged_by(*best).back();
  const std::string loss =
      fmt::format("loss {} after {} updates, {} on its cluster", loss_text(last.mean), last.update,
                  format_time(last.simulated_s));
  if (rivals.empty()) return {best->name, loss};
  if (best->runs.size() == 1)
    return {"within noise", fmt::format("{} has the lowest {}; one seed does not say how far seeds "
                                        "lie apart: --seeds 5",
                                        best->name, loss)};
  return {"within noise",
          fmt::format("{} has the lowest mean {}; its seeds and those of {} overlap", best->name,
                      loss, fmt::join(rivals, ", "))};
}

/// The last point of a scenario, and when its mean first came as low as the worst of all ends: what
/// every scenario reached, at its own time.
std::string comparison_of(const std::vector<LearnedScenario>& all) {
  std::vector<std::vector<Band>> curves;
  double reached = 0;  // by all
  for (const LearnedScenario& s : all) {
    curves.push_back(judged_by(s));
    double least = std::numeric_limits<double>::infinity();
    for (const Band& b : curves.back()) least = std::min(least, b.mean);
    reached = std::max(reached, least);
  }
  const std::string to = loss_text(reached);
  TextTable table({"scenario", "schedule", "updates", "loss", "simulated", "updates to " + to,
                   "samples to " + to, "time to " + to, "stopped"});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const LearnedScenario& s = all[i];
    const std::vector<Band>& curve = curves[i];
    const auto first =
        std::ranges::find_if(curve, [&](const Band& b) { return b.mean <= reached; });
    const bool came = first != curve.end();
    const auto stopped =
        std::ranges::count_if(s.runs, [](const Learning& r) { return !r.stopped_because.empty(); });
    table.add_row({s.name, s.schedule, curve.empty() ? "" : std::to_string(curve.back().update),
                   curve.empty() ? "none" : band_text(curve.back(), s.runs.size()),
                   curve.empty() ? "" : format_time(curve.back().simulated_s),
                   came ? std::to_string(first->update) : "never",
                   came ? fmt::format("{:.0f}", first->samples) : "never",
                   came ? format_time(first->simulated_s) : "never",
                   stopped > 0 ? fmt::format("{} of {}", stopped, s.runs.size()) : ""});
  }
  const Outcome outcome = outcome_of(all);
  return table.render() + fmt::format("learned most: {} ({})\n", outcome.who, outcome.why);
}

std::string table_of(const std::vector<LearnedScenario>& all, bool reproducible) {
  std::string text;
  for (const LearnedScenario& s : all) {
    if (!text.empty()) text += "\n";
    text += heading(s) + "\n" + curve_table(s) + "\n" + closing(s, reproducible);
  }
  return text;
}

std::string csv_of(const std::vector<LearnedScenario>& all) {
  std::vector<CsvRow> rows;
  for (const LearnedScenario& s : all) {
    for (const Learning& run : s.runs) {
      for (const LearningPoint& p : run.curve)
        rows.push_back({{"scenario", s.name},
                        {"schedule", s.schedule},
                        {"seed", run.seed},
                        {"update", p.update},
                        {"samples", p.samples},
                        {"simulated_s", p.simulated_s},
                        {"loss", to_field(p.loss)},
                        {"evaluation_loss", to_field(p.evaluation_loss)}});
    }
  }
  return to_csv(rows);
}

std::string json_of(const std::vector<LearnedScenario>& all, bool reproducible) {
  Json json;
  json["scenarios"] = Json::array();
  for (const LearnedScenario& s : all) json["scenarios"].push_back(to_json(s, reproducible));
  return json.dump(2) + "\n";
}

std::string heading_of(const std::string& quantity) {
  return quantity == "loss" ? "Loss of what is trained on" : "Loss on held-out data";
}

LearningSection section_of(const std::vector<LearnedScenario>& all, const std::string& quantity) {
  LearningSection section;
  section.text = {heading_of(quantity),
                  "Lines: means over the seeds, within bands from the least "
                  "to the most of them. Simulated time is that of the "
                  "scenario's cluster."};
  section.quantity = quantity;
  for (const LearnedScenario& s : all) {
    LearnedLine line{s.name, {}};
    for (const Band& b : bands(s, quantity != "loss"))
      line.points.push_back(
          {static_cast<double>(b.update), b.samples, b.simulated_s, b.mean, b.least, b.most});
    if (!line.points.empty()) section.lines.push_back(std::move(line));
  }
  return section;
}

Report report_of(const std::vector<LearnedScenario>& all, const Arguments& arguments) {
  Report report;
  report.title =
      fmt::format("What {} learn{}", counted(static_cast<std::int64_t>(all.size()), "scenario"),
                  all.size() == 1 ? "s" : "");
  const Outcome outcome = outcome_of(all);
  report.figures = {{"What learned most?", outcome.who, outcome.why,
                     outcome.any ? Verdict::neutral : Verdict::bad}};
  for (const char* quantity : {"held-out loss", "loss"}) {
    const LearningSection section = section_of(all, quantity);
    if (!section.lines.empty()) report.sections.push_back(section_text(section));
  }
  for (const LearnedScenario& s : all) {
    for (const Learning& run : s.runs) {
      if (!run.stopped_because.empty())
        report.notes.push_back(
            fmt::format("{}, seed {}: stopped: {}", s.name, run.seed, run.stopped_because));
    }
  }
  report.command = arguments.command_line;
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace

int run_train(const Arguments& arguments) {
  if (arguments.flag("resume") && !arguments.flag("checkpoint"))
    throw InputError("--resume", "needs the --checkpoint to go on from");
  if (arguments.flag("force") && !arguments.flag("checkpoint"))
    throw InputError("--force", "needs the --checkpoint to replace");
  if (arguments.flag("force") && arguments.flag("resume"))
    throw InputError("--resume", "continues the file that --force replaces; give one of them");
  int status = exit_ok;
  const auto learned = train_all(arguments, status);
  const bool any = std::ranges::any_of(learned, [](const auto& s) { return !s.runs.empty(); });
  if (!any) return status == exit_ok ? exit_failed : status;
  const bool reproducible = arguments.flag("reproducible");
  const std::string format = arguments.value("format", "table");
  put_result(arguments, format == "csv"             ? csv_of(learned)
                        : format == "json"          ? json_of(learned, reproducible)
                        : arguments.flag("compare") ? comparison_of(learned)
                                                    : table_of(learned, reproducible));
  if (arguments.flag("report"))
    write_report(report_of(learned, arguments), arguments.value("report"));
  return status;
}

}  // namespace penstock
