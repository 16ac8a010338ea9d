// SPDX-License-Identifier: Apache-2.0
#include "scenarios/parts.hpp"

#include "schedules/blocks.hpp"
#include "schedules/formats/torch_reader.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

/// A row and what its views and functions refer to.
struct OwnSchedule {
  std::string name;
  OpLists order;
  BuildingBlock block;
  Schedule row;
};

double no_claim(const ScheduleShape&) { return kNoClaim; }

std::shared_ptr<const Schedule> finish(const std::shared_ptr<OwnSchedule>& own) {
  own->row.name = own->name;
  own->row.ideal_bubble = no_claim;
  return {own, &own->row};
}

bool overlaps(const OpLists& order) {
  for (std::uint32_t g = 0; g < order.size(); ++g)
    if (order[g].has(Op::paired)) return true;
  return false;
}

std::shared_ptr<const Schedule> imported(const std::filesystem::path& path, const std::string& text,
                                         Diagnostics& diagnostics) {
  const ImportedSchedule file = read_torch_csv(text, path.string());
  if (file.placement.mirrored() && (file.depth % 2 != 0 || file.stages() != file.depth)) {
    throw InputError(path.string(),
                     fmt::format("stages that live on two devices need an even number of devices "
                                 "and as many stages; here are {} devices and {} stages",
                                 file.depth, file.stages()));
  }
  const auto own = std::make_shared<OwnSchedule>();
  own->name = path.filename().string();
  own->order = file.order;
  Schedule& row = own->row;
  row.paper = "the user's own";
  row.summary = "an order read from a file; flush";
  row.generate = [order = &own->order](const ScheduleShape&, OpLists& out) { out = *order; };
  row.only_depth = file.depth;
  row.only_microbatches = file.microbatches;
  row.positions = file.placement.positions();
  row.chunks = {file.chunks, file.chunks, file.chunks};
  if (file.placement.mirrored()) row.layout = Layout::mirrored;
  row.splits_backward = file.split_backward;
  row.pairs = overlaps(file.order);
  for (const std::string& warning : file.warnings) diagnostics.note(own->name + ": " + warning);
  if (file.communicates)
    diagnostics.note(own->name + ": its order of sends and receives is proven to run; " +
                     "messages here are sent as 'transfers' says");
  return finish(own);
}

std::vector<std::uint32_t> slots_of(const Section& section, const char* key) {
  std::vector<std::uint32_t> slots;
  for (const double slot : section.list(key).value_or(std::vector<double>{}))
    slots.push_back(static_cast<std::uint32_t>(slot));
  return slots;
}

BuildingBlock read_block(const Section& section) {
  BuildingBlock block;
  block.layout = section.choice("layout").value_or(0) == 0 ? Layout::snake : Layout::loop;
  const int usual = block.layout == Layout::snake ? 2 : 1;
  block.chunks = static_cast<std::uint32_t>(section.integer("chunks").value_or(usual));
  block.forward = slots_of(section, "forward");
  block.backward = slots_of(section, "backward");
  block.backward_input = slots_of(section, "backward_input");
  block.backward_weight = slots_of(section, "backward_weight");
  block.interval = static_cast<std::uint32_t>(section.integer("interval").value_or(0));
  if (!section.has("slots") || section.broken("slots")) return block;
  const Section slots(section, "slots");
  const auto width = [&](const char* key, std::uint32_t& of) {
    of = static_cast<std::uint32_t>(slots.integer(key).value_or(of));
  };
  width("forward", block.widths.forward);
  width("backward", block.widths.backward);
  width("backward_input", block.widths.backward_input);
  width("backward_weight", block.widths.backward_weight);
  return block;
}

/// Where the number stands that a problem is about.
const Value& place_of(const BlockProblem& problem, const Section& section) {
  const Value& of_key = section.at(std::string(problem.key));
  return problem.stage < of_key.items.size() ? of_key.items[problem.stage] : of_key;
}

std::shared_ptr<const Schedule> built(const Section& section, const std::string& name) {
  const std::size_t before = section.diagnostics().size();
  const auto own = std::make_shared<OwnSchedule>();
  own->name = section.text("name").value_or(name);
  own->block = read_block(section);
  if (section.diagnostics().size() > before) return nullptr;
  for (const BlockProblem& problem : problems(own->block))
    section.diagnostics().add_error(place_of(problem, section), problem.why);
  if (section.diagnostics().size() > before) return nullptr;
  Schedule& row = own->row;
  row.paper = "the user's own; Controllable Memory, NeurIPS'24";
  row.summary = "a building block, repeated, squeezed and reordered; flush";
  row.generate = [block = &own->block](const ScheduleShape& shape, OpLists& out) {
    generate_from_block(*block, shape, out);
  };
  row.block = [block = &own->block](std::uint32_t) { return *block; };
  row.only_depth = own->block.depth();
  row.chunks = {own->block.chunks, own->block.chunks, own->block.chunks};
  row.layout = own->block.layout;
  row.splits_backward = own->block.splits_backward();
  row.looks_at_costs = true;
  return finish(own);
}

}  // namespace

bool is_own_schedule(const Value& value) {
  return value.kind == Value::Kind::map ||
         (value.kind == Value::Kind::scalar &&
          (value.text.ends_with(".csv") || value.text.ends_with(".yaml") ||
           value.text.ends_with(".yml")));
}

std::shared_ptr<const Schedule> read_own_schedule(const Value& value, Library& library,
                                                  Diagnostics& diagnostics) {
  if (value.kind == Value::Kind::map)
    return built(Section(value, "block", diagnostics), "a building block");
  if (value.text.ends_with(".csv")) {
    const auto path = library.file(value, "schedule");
    if (!path) return nullptr;
    try {
      return imported(*path, library.text(*path), diagnostics);
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) diagnostics.add_error(d);
      return nullptr;
    }
  }
  const Value* found = library.resolve(value, "block", "schedules");
  if (found == nullptr) return nullptr;
  return built(Section(*found, "block", diagnostics),
               std::filesystem::path(value.text).stem().string());
}

}  // namespace penstock
