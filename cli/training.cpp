#include "cli/training.hpp"

#include "base/error.hpp"
#include "cli/execution.hpp"
#include "cli/option_numbers.hpp"
#include "cli/running.hpp"
#include "hw/executor_process.hpp"
#include "hw/run_plan_file.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

namespace penstock {
namespace {

/// A scenario as it is trained: its batches are the updates.
Scenario loaded(const Arguments& arguments, const std::string& path, std::uint64_t more_seed) {
  std::vector<Override> overrides = overrides_of(arguments);
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

/// Of all updates, in their order.
std::vector<double> ends_of(const Simulation& s) {
  if (!s.latest || !s.program.placement.replicated()) return update_ends_s(s);
  std::vector<double> ends;
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g)
    if (s.program.ops[g].kind == OpKind::step) ends.push_back(s.timeline->op(g).end_s);
  std::ranges::sort(ends);
  return ends;
}

LearnedScenario described(const Scenario& s) {
  LearnedScenario learned;
  learned.name = s.name;
  learned.schedule = s.schedule->name;
  learned.stages = static_cast<int>(s.shape.depth);
  learned.replicas = s.widths().front();
  learned.samples_per_update =
      s.samples_per_update() / (s.schedule->asynchronous ? learned.replicas : 1);
  learned.optimizer = kOptimizerNames[static_cast<int>(s.optimizer.kind)];
  learned.learning_rate = s.optimizer.learning_rate;
  return learned;
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
  const Json json = Json::parse(read_file(path));
  Learning run;
  run.seed = job.seed;
  run.weights_digest = json.at("weights_digest").get<std::string>();
  run.stopped_because = json.at("stopped_because").get<std::string>();
  run.seconds = json.at("seconds").get<double>();
  into.parameters = json.at("parameters").get<std::int64_t>();
  if (!json.at("loss_floor").is_null()) into.loss_floor = json.at("loss_floor").get<double>();
  const auto number = [](const Json& x) {
    return x.is_null() ? std::numeric_limits<double>::quiet_NaN() : x.get<double>();
  };
  for (const Json& p : json.at("curve")) {
    LearningPoint point{.update = p.at("update").get<std::uint32_t>(),
                        .loss = number(p.at("loss"))};
    point.samples = point.update * into.samples_per_update;
    point.simulated_s = job.ends_s.at(point.update - 1);
    if (p.contains("evaluation_loss")) point.evaluation_loss = number(p.at("evaluation_loss"));
    run.curve.push_back(point);
  }
  into.runs.push_back(std::move(run));
}

}  // namespace

Json loss_json(double loss) { return std::isfinite(loss) ? Json(loss) : Json(nullptr); }

std::vector<LearnedScenario> train_all(const Arguments& arguments, int& status) {
  const std::uint64_t seeds = counted_option(arguments, "seeds", 1);
  const TemporaryFolder folder;
  std::vector<LearnedScenario> learned;
  std::vector<Job> jobs;
  std::vector<std::string> words;
  for (const std::string& path : arguments.positional) {
    std::vector<double> ends_s;
    std::vector<LoneUpdate> lone_updates;
    for (std::uint64_t more = 0; more < seeds; ++more) {
      const Scenario scenario = loaded(arguments, path, more);
      Simulation s = prepare(scenario);
      RunPlan plan = run_plan_of(s, compute_of(arguments), true);
      if (more == 0) {
        run_engine(s, EngineChoice::automatic);
        ends_s = ends_of(s);
        lone_updates = lone_updates_of(s);
        learned.push_back(described(s.scenario));
      }
      plan.lone_updates = lone_updates;
      words.push_back(folder.file(fmt::format("program{}.json", jobs.size())));
      write_file(words.back(), to_text(plan));
      jobs.push_back({learned.size() - 1, plan.training.seed, ends_s});
    }
  }
  const std::string curve = folder.file("curve.json");
  words.insert(words.end(), {"--train", curve});
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  words.insert(words.end(), {"--jobs", std::to_string(counted_option(arguments, "jobs", cores))});
  if (arguments.flag("checkpoint"))
    words.insert(words.end(), {"--checkpoint", arguments.value("checkpoint")});
  if (arguments.flag("resume")) words.emplace_back("--resume");
  status = run_executor(words);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    collect(suffixed(curve, i, jobs.size()), jobs[i], learned[jobs[i].scenario]);
  return learned;
}

std::vector<Band> bands(const LearnedScenario& scenario, bool evaluated) {
  std::vector<Band> out;
  const auto value = [&](const LearningPoint& p) { return evaluated ? p.evaluation_loss : p.loss; };
  std::size_t longest = 0;
  for (const Learning& run : scenario.runs) longest = std::max(longest, run.curve.size());
  for (std::size_t i = 0; i < longest; ++i) {
    Band band{.least = std::numeric_limits<double>::infinity(),
              .most = -std::numeric_limits<double>::infinity()};
    double sum = 0, count = 0;
    for (const Learning& run : scenario.runs) {
      if (i >= run.curve.size() || !value(run.curve[i])) continue;
      const double x = *value(run.curve[i]);
      if (!std::isfinite(x)) continue;
      band.update = run.curve[i].update;
      band.samples = run.curve[i].samples;
      band.simulated_s = run.curve[i].simulated_s;
      band.least = std::min(band.least, x);
      band.most = std::max(band.most, x);
      sum += x;
      ++count;
    }
    if (count == 0) continue;
    band.mean = sum / count;
    out.push_back(band);
  }
  return out;
}

Json to_json(const LearnedScenario& scenario, bool reproducible) {
  Json json;
  json["name"] = scenario.name;
  json["schedule"] = scenario.schedule;
  json["stages"] = scenario.stages;
  json["replicas"] = scenario.replicas;
  json["parameters"] = scenario.parameters;
  json["samples_per_update"] = scenario.samples_per_update;
  json["optimizer"] = scenario.optimizer;
  json["learning_rate"] = scenario.learning_rate;
  json["loss_floor"] = scenario.loss_floor ? Json(*scenario.loss_floor) : Json(nullptr);
  json["runs"] = Json::array();
  for (const Learning& run : scenario.runs) {
    Json one;
    one["seed"] = run.seed;
    one["weights_digest"] = run.weights_digest;
    one["complete"] = run.stopped_because.empty();
    one["stopped_because"] = run.stopped_because;
    if (!reproducible) one["seconds"] = run.seconds;
    one["curve"] = Json::array();
    for (const LearningPoint& p : run.curve) {
      Json point;
      point["update"] = p.update;
      point["samples"] = p.samples;
      point["simulated_s"] = p.simulated_s;
      point["loss"] = loss_json(p.loss);
      if (p.evaluation_loss) point["evaluation_loss"] = loss_json(*p.evaluation_loss);
      one["curve"].push_back(point);
    }
    json["runs"].push_back(one);
  }
  return json;
}

}  // namespace penstock
