#include "scenarios/profile_parts.hpp"

#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr std::string_view kKeys[] = {"base", "name", "profile", "profile_batch",
                                      "bytes_per_parameter"};

/// A model by shape or by costs has none of a profile's numbers.
void refuse_other_keys(const Section& model, Diagnostics& diagnostics) {
  for (const Value::Entry& entry : model.self().entries) {
    const KeyRow* row = find_key("model", entry.key.text);
    if (row == nullptr || std::ranges::find(kKeys, row->key) != std::end(kKeys)) continue;
    diagnostics.add(entry.key,
                    fmt::format("'{}' has no meaning for a model by profile, which takes {}",
                                entry.key.text, fmt::join(kKeys, ", ")));
  }
}

}  // namespace

bool is_profiled_model(const Section& model) { return model.has("profile"); }

std::optional<PipedreamProfile> read_profile(const Section& model, Library& library,
                                             Diagnostics& diagnostics) {
  refuse_other_keys(model, diagnostics);
  read_parameter_bytes(model, true, diagnostics);  // what is wrong is said now
  if (model.broken("profile")) return std::nullopt;
  const auto path = library.file(model.at("profile"), "profile");
  if (!path) return std::nullopt;
  try {
    return parse_profile_file(library.text(*path), path->string());
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) diagnostics.add(d);
    return std::nullopt;
  }
}

void cost_profiled(const Section& model, Scenario& scenario, Diagnostics& diagnostics) {
  const PipedreamProfile& profile = *scenario.profile;
  const auto size = scenario.microbatch_size;
  const auto batch = model.integer("profile_batch").value_or(size);
  ProfileUse use;
  use.scale = static_cast<double>(size) / static_cast<double>(batch);
  use.recompute = scenario.recompute.map([](Recompute value) { return value == Recompute::full; });
  use.bytes = read_parameter_bytes(model, true, diagnostics);
  if (scenario.layers.empty())
    scenario.layers = profiled_balanced_split(profile, scenario.stage_widths(), use.recompute,
                                              sharing_positions(scenario.placement()));
  scenario.costs = profiled_stage_costs(profile, scenario.layers, use);
  scenario.notes.push_back(fmt::format(
      "costs of the stages from a profile of {} layers{}", profile.layers.size(),
      batch == size ? std::string(", taken to be of this microbatch size")
                    : fmt::format(" of a batch of {}, times {:.4g}", batch, use.scale)));
  if (profile.has_stages)
    scenario.notes.emplace_back("the profile's stage ids are not used; give pipeline.split");
}

}  // namespace penstock
