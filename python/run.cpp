// SPDX-License-Identifier: Apache-2.0
#include "python/run.hpp"

#include "base/folder.hpp"
#include "cli/scenario_names.hpp"
#include "cli/simulation_report.hpp"
#include "results/advice.hpp"
#include "results/fitting_split.hpp"
#include "results/perturbation_study.hpp"

#include <algorithm>

namespace penstock {
namespace {

std::vector<Documents::File> shipped_files() {
  constexpr std::size_t kMost = std::size_t{2} << 20;
  std::vector<Documents::File> files;
  for (const char* folder : {"models", "scenarios"})
    for (const std::string& path : files_below(data_folder() + "/" + folder))
      if (path.ends_with(".yaml") || path.ends_with(".json"))
        files.push_back({path, read_text(path, kMost)});
  return files;
}

}  // namespace

std::shared_ptr<ReadScenario> ReadScenario::of_file(const std::string& name) {
  std::size_t used = 0;
  Arguments arguments;
  arguments.positional = {name};
  name_scenario_files(find_command({"simulate"}, used), arguments);
  auto documents = std::make_shared<Documents>();
  ScenarioTemplate scenario(arguments.positional[0], documents);
  return std::shared_ptr<ReadScenario>(new ReadScenario(std::move(documents), std::move(scenario)));
}

std::shared_ptr<ReadScenario> ReadScenario::of_text(const std::string& text,
                                                    const std::string& origin) {
  auto documents = std::make_shared<Documents>();
  ScenarioTemplate scenario(text, origin, documents);
  return std::shared_ptr<ReadScenario>(new ReadScenario(std::move(documents), std::move(scenario)));
}

std::shared_ptr<ReadScenario> ReadScenario::of_text_alone(const std::string& text,
                                                          const std::string& origin) {
  static const std::vector<Documents::File> kShipped = shipped_files();
  auto documents = std::make_shared<Documents>(kShipped);
  ScenarioTemplate scenario(text, origin, documents);
  return std::shared_ptr<ReadScenario>(new ReadScenario(std::move(documents), std::move(scenario)));
}

Scenario ReadScenario::resolve(const std::vector<Override>& changes) const {
  return scenario_.resolve(changes);
}

Simulation ReadScenario::simulate(Scenario resolved, EngineChoice engine) {
  return penstock::simulate(std::move(resolved), engine, &programs_);
}

std::vector<std::string> ReadScenario::own_files() const {
  std::vector<std::string> paths = documents_->paths();
  const std::string shipped = data_folder() + "/";
  std::erase_if(paths, [&](const std::string& path) { return path.starts_with(shipped); });
  return paths;
}

bool is_quick(const Scenario& scenario) {
  constexpr double kMostPasses = 10'000;  // a tenth of a second with the slowest engine
  const ScheduleShape& shape = scenario.shape;
  const auto widths = shape.replicas.values();
  const double passes = double{1} * shape.stages() * shape.microbatches_per_update * shape.batches *
                        *std::ranges::max_element(widths);
  return !scenario.schedule->name.ends_with("search") && passes <= kMostPasses;
}

const Rates& Run::rates_once() {
  std::call_once(rated_, [&] { rates_ = rates(simulation_); });
  return rates_;
}

const Result& Run::outline_once() {
  std::call_once(outlined_, [&] { outline_ = outline(simulation_); });
  return outline_;
}

const Result& Run::whole_once() {
  std::call_once(completed_, [&] {
    auto perturbed = study_perturbations(simulation_.scenario, engine_);
    Result result = summarize(simulation_);
    result.perturbed = std::move(perturbed);
    add_help(simulation_, result);
    note_fitting_split(simulation_.scenario, result);
    whole_ = std::move(result);
  });
  return whole_;
}

std::optional<Json> Run::value(const Field<Summary>& field) {
  if (field.before_run) return field.value({simulation_.scenario});
  if (field.of_rates)
    return field.value({simulation_.scenario, &simulation_, nullptr, false, &rates_once()});
  const Result& result = field.number != nullptr ? outline_once() : whole_once();
  return field.value({simulation_.scenario, &simulation_, &result});
}

bool Run::is_quick(const Field<Summary>& field) const {
  const bool of_whole = !field.before_run && !field.of_rates && field.number == nullptr;
  return !of_whole && penstock::is_quick(simulation_.scenario);
}

Json Run::json() { return to_json(Summary{simulation_.scenario, &simulation_, &whole_once()}); }

std::string Run::report() {
  return report_html(simulation_report(simulation_, whole_once(), Arguments{}));
}

}  // namespace penstock
