// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include "base/units.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace penstock {
namespace {

/// "context 2 x tensor 4": from groups to the ranks of each.
std::string ranks_of(const Mesh& mesh) {
  std::vector<std::string> ranks;
  for (const Axis axis : kInnerAxes)
    if (mesh.size(axis) > 1 || axis == kInnerAxes.front())
      ranks.insert(ranks.begin(), fmt::format("{} {}", traits(axis).name, mesh.size(axis)));
  return fmt::format("{}", fmt::join(ranks, " x "));
}

/// The GPUs of a stage, where there are several.
std::string shared_by(const Scenario& scenario) {
  const Mesh& mesh = scenario.mesh;
  const std::string experts =
      mesh.expert > 1 ? fmt::format(", experts over {} GPUs", mesh.expert) : "";
  if (mesh.replica_gpus() == 1) return experts;
  std::vector<std::string> how;
  if (mesh.replica_gpus() > mesh.size(kInnerAxes.front())) how.push_back(ranks_of(mesh));
  if (scenario.sequence_parallel)
    how.emplace_back(scenario.tensor_overlap ? "sequence parallel, exchanges beside products"
                                             : "sequence parallel");
  return fmt::format(" of {} GPUs{}{}", mesh.replica_gpus(),
                     how.empty() ? "" : fmt::format(" ({})", fmt::join(how, ", ")), experts);
}

/// "; ZeRO-3 in groups of 8, weights kept until the backward".
std::string sharding_words(const Sharding& sharding) {
  if (!sharding.sharded()) return "";
  static constexpr std::string_view kGathered[] = {
      "", ", weights gathered during the next forward", ", weights kept until the backward",
      ", weights gathered for every forward and backward"};
  const bool kept =
      sharding.what == Sharded::weights && sharding.gathering == Gathering::first_forward;
  return fmt::format("; ZeRO-{}{}{}", static_cast<int>(sharding.what),
                     sharding.hybrid() ? fmt::format(" in groups of {}", sharding.group) : "",
                     kept ? ", weights gathered once an update"
                          : kGathered[static_cast<std::size_t>(sharding.gathering)]);
}

std::string replicas(const Scenario& c) {
  const std::vector<int> widths = c.widths();
  const bool alike = std::ranges::adjacent_find(widths, std::not_equal_to()) == widths.end();
  if (alike && widths.front() == 1) return "";
  const std::string divided = c.mesh.divided ? " that split microbatches" : "";
  return alike ? fmt::format(" x {} replicas{}", widths.front(), divided)
               : fmt::format(" of {} replicas{}", fmt::join(widths, ", "), divided);
}

}  // namespace

std::string model_text(const TransformerSpec& model) {
  if (model.name != "inline model") return model.name;
  std::string parameters = fmt::format("{:.3g}", static_cast<double>(model.parameters()));
  if (const auto sign = parameters.find("e+"); sign != std::string::npos)
    parameters.erase(sign + 1, parameters[sign + 2] == '0' ? 2 : 1);
  return fmt::format("{} ({} parameters)", model.name, parameters);
}

std::string heading_text(const Simulation& s, bool reproducible) {
  const Scenario& c = s.scenario;
  std::string text = c.name;
  if (!c.overrides.empty()) text += fmt::format(" [{}]", fmt::join(c.overrides, ", "));
  text += "\n";
  const std::uint32_t steps = c.shape.accumulation_steps;
  text += fmt::format("{}, {}{}{}, {}{} per update{}, {}\n", s.program.schedule,
                      counted(c.shape.depth, "stage"), shared_by(c), replicas(c),
                      counted(c.shape.microbatches_per_update, "microbatch"),
                      c.microbatch_size > 1 ? fmt::format(" of {}", c.microbatch_size) : "",
                      steps > 1 ? fmt::format(" in {} accumulation steps", steps) : "",
                      counted(c.shape.batches, "update"));
  if (c.transformer) {
    text += fmt::format("{} on {} ({}); {} of {} tokens per update; recompute {}{}{}\n",
                        model_text(*c.transformer), c.cluster.name, device_names(c.cluster),
                        counted(static_cast<std::int64_t>(c.samples_per_update()), "sequence"),
                        c.transformer->seq_length, recompute_text(c.recompute),
                        sharding_words(c.sharding),
                        c.stack.name.empty() ? "" : fmt::format("; software: {}", c.stack.name));
  } else {
    const std::string model =
        c.profile ? counted(c.profile->layers.size(), "profiled layer") : "abstract model";
    text +=
        fmt::format("{} on {}; recompute {}\n", model, c.cluster.name, recompute_text(c.recompute));
  }
  text += fmt::format("transfers {}; engine {}", to_string(s.program.transfers), s.engine);
  if (!reproducible && !s.measured) text += fmt::format(" ({} CPU)", format_time(s.engine_seconds));
  return text + "\n\n";
}

}  // namespace penstock
