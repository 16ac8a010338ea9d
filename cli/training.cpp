#include "cli/training.hpp"

#include "base/error.hpp"
#include "cli/execution.hpp"
#include "base/numbers.hpp"
#include "cli/running.hpp"
#include "hw/executor_process.hpp"
#include "hw/run_plan_file.hpp"
#include "hw/training_curve.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
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

}  // namespace

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
        ends_s = all_update_ends_s(s);
        lone_updates = lone_updates_of(s);
        learned.push_back(learned_scenario(s.scenario));
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

}  // namespace penstock
