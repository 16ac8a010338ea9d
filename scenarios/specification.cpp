// SPDX-License-Identifier: Apache-2.0
#include "scenarios/specification.hpp"

#include "scenarios/foreign.hpp"
#include "scenarios/parts.hpp"
#include "scenarios/stack_parts.hpp"

#include <fmt/format.h>

namespace penstock {

Value usual_stack(const Value& scenario) {
  Value name;
  name.kind = Value::Kind::scalar;
  name.text = kUsualStack;
  name.source = scenario.source;
  return name;
}

namespace {

/// Costs that were given or measured have the software in them already.
StackSpec stack_of(const Section& top, const std::optional<ModelSpecification>& model,
                   Library& library) {
  const bool usual = model && model->transformer && !model->measured;
  if (!top.has("stack") && !usual) return {};
  const Value name = top.has("stack") ? top.at("stack") : usual_stack(top.self());
  const Value* found = library.resolve(name, "stack", "models/stacks");
  return found == nullptr ? StackSpec{} : read_stack(Section(*found, "stack", top.diagnostics()));
}

/// Notes that sequences are longer than the table of learned positions of a model in another tool's
/// file, which is taken to have a row for each.
void note_longer_than_positions(const TransformerSpec& model, const Section& section) {
  const std::int64_t rows = model.position_rows.value_or(model.seq_length);
  if (rows >= model.seq_length || model.learned_positions() == 0) return;
  const auto& source = section.at("position_rows").source;
  if (source == nullptr || !source->name.ends_with(".json")) return;
  section.diagnostics().note(fmt::format(
      "{}: sequences of {} are longer than its table of {} learned positions: it is "
      "taken to have a row for each, which adds {} parameters",
      source->name, model.seq_length, rows, (model.seq_length - rows) * model.hidden_size));
}

std::optional<ModelSpecification> read_model(const Section& top, Library& library) {
  if (!top.has("model")) {
    top.refuse("the scenario needs a 'model'");
    return std::nullopt;
  }
  const Value& key = top.at("model");
  const Value* found = library.resolve(key, "model", "models");
  if (found == nullptr) return std::nullopt;
  ModelSpecification model{Section(*found, "model", top.diagnostics())};
  const Section& section = model.section;
  const std::string length = note_on_length(*found);
  if (!length.empty()) top.diagnostics().note(length);
  model.by_layers = section.has("profile");
  model.by_costs = !model.by_layers && is_abstract_model(section);
  if (model.by_layers) {
    model.profile_bytes = read_parameter_bytes(section, true);
    model.profile = read_profile(section, library);
  } else if (section.has("profile_batch")) {
    section.refuse("profile_batch", "'profile_batch' needs 'profile', too");
  }
  if (model.by_costs || model.by_layers) return model;
  model.transformer = read_transformer(section);
  model.measured = read_layer_profile(section);
  note_longer_than_positions(*model.transformer, section);
  if (key.kind == Value::Kind::scalar && !section.has("name")) model.transformer->name = key.text;
  return model;
}

std::optional<Section> read_cluster_section(const Section& top, Library& library) {
  if (!top.has("cluster")) return std::nullopt;
  const Value* found = library.resolve(top.at("cluster"), "cluster", "models/clusters");
  return found == nullptr ? std::nullopt
                          : std::optional<Section>({*found, "cluster", top.diagnostics()});
}

const Schedule* read_schedule(const Section& top, Library& library,
                              std::shared_ptr<const Schedule>& own) {
  if (!top.has("schedule")) {
    top.refuse("the scenario needs a 'schedule'");
    return nullptr;
  }
  const Value& key = top.at("schedule");
  if (top.broken("schedule")) return nullptr;
  if (is_own_schedule(key)) {
    own = read_own_schedule(key, library, top.diagnostics());
    return own.get();
  }
  return top.text("schedule") ? schedule_named(key, top.diagnostics()) : nullptr;
}

/// The file that training data are read from.
std::string text_of(const Given<std::string>& data, Library& library) {
  const bool generated = data.value == "generated" || data.value == "markov";
  if (!data.value || generated) return "";
  const auto file = library.file(data.at, "text");
  return file ? std::filesystem::absolute(*file).string() : "";
}

/// Nothing can be said of what is no map.
const Value& map_or_throw(const Value& document, Diagnostics& diagnostics) {
  if (document.kind != Value::Kind::map) {
    const Section refused(document, "scenario", diagnostics);
    diagnostics.throw_if_any();
  }
  return document;
}

}  // namespace

Specification::Specification(const Value& document, const std::string& folder, Documents& documents,
                             Diagnostics& diagnostics)
    : diagnostics(diagnostics),
      section(map_or_throw(document, diagnostics), "scenario", diagnostics),
      pipeline_section(section, "pipeline"),
      library(folder, documents, diagnostics),
      model(read_model(section, library)),
      stack(stack_of(section, model, library)),
      cluster_section(read_cluster_section(section, library)),
      schedule(read_schedule(section, library, own_schedule)),
      reduction_section(pipeline_section, "reduction"),
      routing_section(section, "routing"),
      documents_section(section, "documents"),
      training_section(section, "training") {
  if (model && model->transformer && !model->section.has("bytes_per_parameter"))
    apply_to_model(stack, *model->transformer);
  training_text = text_of(training.data, library);
  if (const auto& given = this->documents.file; given.value) {
    if (const auto file = library.file(given.at, "lengths")) {
      lengths_file = file->string();
      lengths_text = library.text(*file);
    }
  }
  if (!cluster_section) return;
  Library files(folder, documents, cluster_problems);
  cluster = read_cluster(Section(*cluster_section, cluster_problems), files, 0);
  apply_to_cluster(stack, cluster);
  const DeviceSpec& device = cluster.device;
  if (stack.reserved_bytes && device.memory_bytes > 0 &&
      device.reserved_bytes >= device.memory_bytes)
    section.refuse("stack", "the stack's 'reserved' leaves nothing of the device's memory");
}

}  // namespace penstock
