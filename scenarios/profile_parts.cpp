// SPDX-License-Identifier: Apache-2.0
#include "scenarios/parts.hpp"

#include "scenarios/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr std::string_view kKeys[] = {"base", "name", "profile", "profile_batch",
                                      "bytes_per_parameter"};

/// A model by shape or by costs has none of a profile's numbers.
void refuse_other_keys(const Section& model) {
  for (const Value::Entry& entry : model.self().entries) {
    const KeyRow* row = find_key("model", entry.key.text);
    if (row == nullptr || std::ranges::find(kKeys, row->key) != std::end(kKeys)) continue;
    model.diagnostics().add_error(
        entry.key, fmt::format("'{}' has no meaning for a model by profile, which takes {}",
                               entry.key.text, fmt::join(kKeys, ", ")));
  }
}

/// The batch that the profile was taken with.
std::int64_t profile_batch(const Specification& spec, const Parallelism& job) {
  return spec.model->section.integer("profile_batch").value_or(job.microbatch_size);
}

}  // namespace

std::optional<PipedreamProfile> read_profile(const Section& model, Library& library) {
  refuse_other_keys(model);
  if (model.broken("profile")) return std::nullopt;
  const auto path = library.file(model.at("profile"), "profile");
  if (!path) return std::nullopt;
  try {
    return parse_profile_file(library.text(*path), path->string());
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) model.diagnostics().add_error(d);
    return std::nullopt;
  }
}

CostedStages cost_pipedream_profile(const Specification& spec, const Parallelism& job,
                                    std::vector<int> layers) {
  const PipedreamProfile& profile = *spec.model->profile;
  PipedreamUse use;
  use.scale =
      static_cast<double>(job.microbatch_size) / static_cast<double>(profile_batch(spec, job));
  use.recompute = job.recompute.map([](const Recomputation& value) { return value.in_full(); });
  use.bytes = spec.model->profile_bytes;
  CostedStages stages{.layers = std::move(layers)};
  if (stages.layers.empty())
    stages.layers = profiled_balanced_split(profile, job.stage_widths(), use.recompute,
                                            sharing_positions(job.placement()));
  stages.costs = profiled_stage_costs(profile, stages.layers, use);
  stages.gradients = profiled_stage_gradients(profile, stages.layers);
  return stages;
}

void note_profile(const Specification& spec, const Parallelism& job) {
  const PipedreamProfile& profile = *spec.model->profile;
  const std::int64_t size = job.microbatch_size, batch = profile_batch(spec, job);
  spec.diagnostics.note(fmt::format(
      "costs of the stages from a profile of {} layers{}", profile.layers.size(),
      batch == size ? std::string(", taken to be of this microbatch size")
                    : fmt::format(" of a batch of {}, times {:.4g}", batch,
                                  static_cast<double>(size) / static_cast<double>(batch))));
  if (profile.outputs_only)
    spec.diagnostics.note(
        "the profile has no column 'stash': layers keep their output only, so activations are too "
        "small wherever a layer keeps more for its backward");
  if (profile.has_stages)
    spec.diagnostics.note("the profile's stage ids are not used; give pipeline.split");
}

}  // namespace penstock
