#include "scenarios/replication.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

bool wants_split(const Section& pipeline) {
  return pipeline.choice("replication").value_or(0) == 1;
}

/// Every replica must have its turn equally often; only so long can a round be.
void check_round(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics) {
  constexpr std::uint64_t kMostRound = 10'000;
  std::uint64_t round = 1;
  for (const int width : scenario.mesh.width.values()) {
    round = std::lcm(round, static_cast<std::uint64_t>(width));
    if (round <= kMostRound) continue;
    diagnostics.add(pipeline.at("width"),
                    fmt::format("the least common multiple of the widths is over {}: give widths "
                                "that divide each other",
                                kMostRound));
    scenario.mesh.width = scenario.mesh.most();
    return;
  }
}

}  // namespace

void read_widths(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics) {
  const auto list = pipeline.list("width").value_or(std::vector<double>{});
  if (pipeline.at("width").kind != Value::Kind::list || list.empty()) return;
  std::vector<int> widths;
  for (const double w : list) widths.push_back(static_cast<int>(w));
  scenario.mesh.width = PerStage<int>(std::move(widths));
  const auto depth = pipeline.integer("stages").value_or(static_cast<std::int64_t>(list.size()));
  if (static_cast<std::int64_t>(list.size()) != depth && !pipeline.broken("stages")) {
    diagnostics.add(
        pipeline.at("width"),
        fmt::format("'width' lists {} stages, the pipeline has {}", list.size(), depth));
    scenario.mesh.width = scenario.mesh.most();
  }
  if (!wants_split(pipeline)) check_round(pipeline, scenario, diagnostics);
}

void divide_microbatches(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics) {
  if (!wants_split(pipeline) || pipeline.broken("width")) return;
  if (scenario.measured) {
    diagnostics.add(pipeline.at("replication"),
                    "'split' needs costs by formula or given ones; measured ones are those of "
                    "whole microbatches (leave out the model's 'measured')");
  }
  if (scenario.schedule != nullptr && scenario.schedule->asynchronous) {
    diagnostics.add(pipeline.at("replication"),
                    fmt::format("the replicas of '{}' wait for no other, so they cannot split a "
                                "microbatch; use replication: round-robin",
                                scenario.schedule->name));
  }
  if (!scenario.mesh.replicated()) return;
  scenario.mesh.divided = true;
  scenario.lowering.divided = true;
  if (pipeline.broken("microbatch_size")) return;
  for (const int width : scenario.mesh.width.values()) {
    if (scenario.microbatch_size % width == 0) continue;
    diagnostics.add(
        pipeline.at(pipeline.has("microbatch_size") ? "microbatch_size" : "replication"),
        fmt::format("a microbatch of {} cannot be split among {} replicas; make microbatch_size a "
                    "multiple of {}",
                    scenario.microbatch_size, width, width));
    return;
  }
}

}  // namespace penstock
