#include "scenarios/recompute.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

void read_recompute(const Section& pipeline, bool shaped, bool given_costs, Scenario& scenario,
                    Diagnostics& diagnostics) {
  const bool decided = scenario.schedule != nullptr && scenario.schedule->checkpoints;
  const auto given = pipeline.choices("recompute");
  if (decided || !given) return;
  std::vector<Recompute> values;
  for (const int place : *given) values.push_back(static_cast<Recompute>(place));
  if (given_costs && std::ranges::find(values, Recompute::selective) != values.end()) {
    diagnostics.add(recompute_place(pipeline, Recompute::selective),
                    "'selective' needs a model by shape");
  }
  scenario.recompute = values.front();  // where a list is wrong, its first: later checks need one
  const Value& where = pipeline.at("recompute");
  if (where.kind != Value::Kind::list || !shaped) return;
  if (values.size() == scenario.shape.stages()) {
    scenario.recompute = PerStage<Recompute>(std::move(values));
    return;
  }
  diagnostics.add(where, fmt::format("'recompute' lists {} stages, the pipeline has {}",
                                     values.size(), scenario.shape.stages()));
}

const Value& recompute_place(const Section& pipeline, Recompute value) {
  const Value& where = pipeline.at("recompute");
  if (where.kind != Value::Kind::list) return where;
  const std::vector<int> given = pipeline.choices("recompute").value();
  const auto at = std::ranges::find(given, static_cast<int>(value));
  return at == given.end() ? where : where.items[static_cast<std::size_t>(at - given.begin())];
}

}  // namespace penstock
