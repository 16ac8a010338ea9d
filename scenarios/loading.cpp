// SPDX-License-Identifier: Apache-2.0
// Scenarios and shipped files, from their names.
#include "base/folder.hpp"
#include "base/say.hpp"
#include "base/suggest.hpp"
#include "models/kernels/kernel_times.hpp"
#include "scenarios/carry_over.hpp"
#include "scenarios/foreign.hpp"
#include "scenarios/overrides.hpp"
#include "scenarios/parts.hpp"
#include "scenarios/resolve.hpp"
#include "scenarios/stack_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace penstock {
namespace {

/// Applies the changes; where one names another schedule, the rest of the job goes with it.
void change_document(Value& document, const auto& changes, Diagnostics& diagnostics) {
  std::vector<std::string> keys;
  for (const auto& change : changes) keys.push_back(change.key);
  const bool other = std::ranges::find(keys, "schedule") != keys.end();
  std::optional<Value> before;
  if (const Value* schedule = document.find("schedule"); other && schedule != nullptr)
    before = *schedule;
  apply_overrides(document, changes, diagnostics);
  if (before) carry_over(document, &*before, keys, diagnostics);
}

std::vector<Diagnostic> wrong_values(Value document, const std::string& origin,
                                     const std::vector<Override>& overrides, Documents& documents) {
  Diagnostics diagnostics;
  if (document.kind == Value::Kind::map) apply_overrides(document, overrides, diagnostics);
  Library library(std::filesystem::path(origin).parent_path().string(), documents, diagnostics);
  check_values(document, library, diagnostics);
  try {
    diagnostics.throw_if_any();
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

/// A shipped file of its own, as a section for `list` and tests.
struct Shipped {
  Diagnostics diagnostics;
  Documents documents;
  Library files{".", documents, diagnostics};
  Value value;
  std::optional<Section> section;

  /// `origin`: what the user is told of it.
  Shipped(const std::string& name, const std::string& kind, const std::string& folder,
          const std::string& origin) {
    value.kind = Value::Kind::scalar;
    value.text = name;
    value.source = std::make_shared<Source>(Source{origin, {}});
    if (name.starts_with('{')) value = parse_document(name, origin);
    const Value* found = files.resolve(value, kind, folder);
    diagnostics.throw_if_any();
    section.emplace(*found, kind, diagnostics);
  }
};

std::filesystem::path kernels_folder() {
  return std::filesystem::path(data_folder()) / "models/devices/kernels";
}

}  // namespace

Scenario load_scenario(const std::string& path, const std::vector<Override>& overrides) {
  return ScenarioTemplate(path).resolve(overrides);
}

Scenario parse_scenario(const std::string& text, const std::string& origin,
                        const std::vector<Override>& overrides) {
  return ScenarioTemplate(text, origin).resolve(overrides);
}

struct ScenarioTemplate::Files {
  std::string origin;
  std::shared_ptr<Documents> documents;  // those that it names, and its own unless it is a text
  Value scenario;
};

ScenarioTemplate::ScenarioTemplate(const std::string& path)
    : ScenarioTemplate(path, std::make_shared<Documents>()) {}

ScenarioTemplate::ScenarioTemplate(const std::string& text, const std::string& origin)
    : ScenarioTemplate(text, origin, std::make_shared<Documents>()) {}

ScenarioTemplate::ScenarioTemplate(const std::string& text, const std::string& origin,
                                   std::shared_ptr<Documents> documents)
    : files_(std::make_shared<Files>(
          Files{origin, std::move(documents), parse_document(text, origin)})) {}

ScenarioTemplate::ScenarioTemplate(Value document, const std::string& origin)
    : files_(std::make_shared<Files>(
          Files{origin, std::make_shared<Documents>(), std::move(document)})) {}

ScenarioTemplate::ScenarioTemplate(const std::string& path, std::shared_ptr<Documents> documents) {
  Value scenario = documents->load(path);
  files_ = std::make_shared<Files>(
      Files{path == "-" ? "standard input" : path, std::move(documents), std::move(scenario)});
}

std::vector<Diagnostic> ScenarioTemplate::check(const std::vector<Override>& overrides) const {
  return wrong_values(files_->scenario, files_->origin, overrides, *files_->documents);
}

std::vector<Diagnostic> ScenarioTemplate::check_alone(const Override& change) const {
  Value nothing;
  nothing.kind = Value::Kind::map;
  nothing.source = files_->scenario.source;
  return wrong_values(std::move(nothing), files_->origin, {change}, *files_->documents);
}

template <class Changes>
Scenario ScenarioTemplate::resolve_changed(const Changes& changes) const {
  Diagnostics diagnostics;
  const auto changed = std::make_shared<Files>(*files_);
  Value& document = changed->scenario;
  if (document.kind == Value::Kind::map) change_document(document, changes, diagnostics);
  const std::filesystem::path path(changed->origin);
  const Specification spec(document, path.parent_path().string(), *changed->documents, diagnostics);
  Scenario scenario = penstock::resolve(spec);
  scenario.origin = changed->origin;
  scenario.source = ScenarioTemplate(changed);
  if (scenario.name.empty()) scenario.name = without_controls(path.stem().string());
  return scenario;
}

Scenario ScenarioTemplate::resolve(const std::vector<Override>& overrides) const {
  Scenario scenario = resolve_changed(overrides);
  for (const Override& o : overrides) scenario.overrides.push_back(o.key + "=" + o.value);
  return scenario;
}

Scenario ScenarioTemplate::with(const Settings& settings) const {
  return resolve_changed(settings);
}

const Value& ScenarioTemplate::document() const { return files_->scenario; }

std::string ScenarioTemplate::text() const { return files_ ? to_yaml(files_->scenario) : ""; }

TransformerSpec load_model(const std::string& name) {
  Shipped file(name, "model", "models", name);
  TransformerSpec model = read_transformer(*file.section);
  file.diagnostics.throw_if_any();
  return model;
}

ForeignModel foreign_model(const std::string& path) {
  Value document = load_document(path);
  ForeignModel nearest;
  Diagnostics diagnostics;
  if (document.kind == Value::Kind::map) adopt_foreign_model(document, diagnostics, nearest.notes);
  const Section section(document, "model", diagnostics);
  if (document.kind == Value::Kind::map && !section.has("seq_length"))
    diagnostics.add_error(document,
                          "it does not say max_position_embeddings, the longest sequence "
                          "that the model can take");
  nearest.model = read_transformer(section);
  diagnostics.throw_if_any();
  nearest.missing = section.text("missing").value_or("");
  return nearest;
}

Cluster load_cluster(const std::string& name) { return load_cluster(name, name); }

Cluster load_cluster(const std::string& name, const std::string& origin) {
  Shipped file(name, "cluster", "models/clusters", origin);
  Cluster cluster = read_cluster(*file.section, file.files, 1);
  file.diagnostics.throw_if_any();
  return cluster;
}

DeviceSpec load_device(const std::string& name) {
  Diagnostics diagnostics;
  Documents documents;
  Library library(".", documents, diagnostics);
  const Value document = parse_document("{devices: 1, device: " + name + "}", name);
  const Section section(document, "cluster", diagnostics);
  Cluster cluster = read_cluster(section, library, 1);
  diagnostics.throw_if_any();
  return cluster.device;
}

std::vector<std::string> kernel_files() {
  std::vector<std::string> names;
  for (const std::string& name : names_in(kernels_folder().string()))
    if (name.ends_with(".json")) names.push_back(name.substr(0, name.size() - 5));
  return names;
}

bool is_kernel_path(const std::string& name) { return name.ends_with(".json"); }

KernelTimes load_kernel_file(const std::string& name) {
  if (is_kernel_path(name)) {
    Documents own;
    return parse_kernel_times(own.text(name), name);
  }
  const std::vector<std::string> known = kernel_files();
  if (std::ranges::find(known, name) == known.end())
    throw InputError(name, fmt::format("there are no kernel times of this name in {}{}",
                                       kernels_folder().string(), did_you_mean(name, known)));
  const std::string path = (kernels_folder() / (name + ".json")).string();
  Documents documents;
  return parse_kernel_times(documents.text(path), path);
}

std::optional<KernelTimes> load_kernel_times(const DeviceSpec& device) {
  if (device.kernels.empty()) return std::nullopt;
  KernelTimes times = load_kernel_file(device.kernels);
  if (times.device == device.name) {
    const DeviceSpec shipped = load_device(device.name);
    if (shipped.peak_flops_per_s == device.peak_flops_per_s &&
        shipped.memory_bytes_per_s == device.memory_bytes_per_s)
      return times;
  }
  double peak = 0;
  for (const char* type : {"fp16", "bf16"})
    if (const auto rate = device.peak_flops_per_s.find(type); rate != device.peak_flops_per_s.end())
      peak = rate->second;
  if (peak <= 0 || device.memory_bytes_per_s <= 0) return std::nullopt;
  return assumed_times(std::move(times), peak, device.memory_bytes_per_s);
}

StackSpec load_stack(const std::string& name) {
  Shipped file(name, "stack", "models/stacks", name);
  StackSpec stack = read_stack(*file.section);
  file.diagnostics.throw_if_any();
  return stack;
}

}  // namespace penstock
