// SPDX-License-Identifier: Apache-2.0
// What `penstock.simulate` returns, as far as somebody has asked for it: a simulation costs tens of
// microseconds, all that the command says of it (what would help, the critical path) thousands.
#pragma once

#include "results/fields.hpp"
#include "scenarios/documents.hpp"

#include <mutex>

namespace penstock {

/// A scenario read once, with the programs that were made of it. Thread-safe.
class ReadScenario {
 public:
  /// A file, or the name of a shipped scenario, as the command takes it. Throws InputError.
  static std::shared_ptr<ReadScenario> of_file(const std::string& name);
  /// A text as YAML or JSON; the files it names are looked for from the working directory.
  static std::shared_ptr<ReadScenario> of_text(const std::string& text, const std::string& origin);

  /// The same, which reads no file but those that are shipped.
  static std::shared_ptr<ReadScenario> of_text_alone(const std::string& text,
                                                     const std::string& origin);

  /// With these changes. Throws InputError.
  Scenario resolve(const std::vector<Override>& changes) const;
  Simulation simulate(Scenario resolved, EngineChoice engine);
  /// Files that were read until now but for those that are shipped.
  std::vector<std::string> own_files() const;

 private:
  ReadScenario(std::shared_ptr<Documents> documents, ScenarioTemplate scenario)
      : documents_(std::move(documents)), scenario_(std::move(scenario)) {}

  std::shared_ptr<Documents> documents_;
  ScenarioTemplate scenario_;
  ProgramCache programs_;
};

/// Is it simulated so fast that Ctrl-C may wait for that?
bool is_quick(const Scenario& scenario);

/// Thread-safe: each part is computed once, by whoever asks first.
class Run {
 public:
  Run(Simulation simulation, EngineChoice engine)
      : simulation_(std::move(simulation)), engine_(engine) {}

  const Simulation& simulation() const { return simulation_; }
  /// The field of docs/metrics.md; nothing where the command's JSON leaves it out.
  std::optional<Json> value(const Field<Summary>& field);
  /// May Ctrl-C wait for it?
  bool is_quick(const Field<Summary>& field) const;
  /// All fields: `simulate --format json`.
  Json json();
  /// The page of `simulate --report`.
  std::string report();

 private:
  const Rates& rates_once();
  const Result& outline_once();
  const Result& whole_once();

  Simulation simulation_;
  EngineChoice engine_;
  std::once_flag rated_, outlined_, completed_;
  Rates rates_;
  Result outline_, whole_;
};

}  // namespace penstock
