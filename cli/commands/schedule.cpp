// SPDX-License-Identifier: Apache-2.0
// penstock schedule list | show | export
#include "base/exit_codes.hpp"
#include "base/numbers.hpp"
#include "base/progress.hpp"
#include "base/say.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"
#include "cli/drawing.hpp"
#include "cli/running.hpp"
#include "results/schedule_claims.hpp"
#include "cli/schedule_table.hpp"
#include "scenarios/unitless.hpp"
#include "schedules/blocks.hpp"
#include "schedules/formats/torch_reader.hpp"
#include "schedules/schedule_json.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace penstock {
namespace {

int columns(const Arguments& arguments) {
  const std::string given = arguments.value("width");
  if (!given.empty()) {
    const int value = parse_number<int>(given).value_or(0);
    if (value >= 40 && value <= 10000) return value;
    throw InputError("--width",
                     fmt::format("must be an integer from 40 to 10000, got '{}'", given));
  }
  const std::size_t width = results_width();
  return width == 0 ? 100 : static_cast<int>(std::clamp<std::size_t>(width, 40, 10000));
}

struct ComputeTable {
  TorchTable table;
  Placement placement;
};

/// A shipped schedule's order of one batch (of the whole run, where it does not flush).
void say_left_out(const char* what) { say("note: a table does not say {}\n", what); }

ComputeTable generated_table(const std::string& name, const std::vector<Override>& overrides) {
  const Scenario scenario = unitless_scenario(name, overrides);
  const ScheduleShape& shape = scenario.shape;
  if (scenario.schedule->whole_backward) {
    throw InputError("schedule export " + name,
                     "a table has a backward for every microbatch; this schedule has one for all "
                     "of an update");
  }
  if (!shape.replicas.alike()) {
    throw InputError("--set width",
                     "the table has a row per device of one pipeline; stages with "
                     "different numbers of replicas do not make one");
  }
  const OpLists order = scenario.schedule->order(shape);
  if (!scenario.schedule->flushes() || scenario.schedule->checkpoints)
    say_left_out(scenario.schedule->checkpoints ? "which microbatches are recomputed"
                                                : "when weights are updated");
  ScheduleShape one = shape;  // pipeline, whose devices the rows are
  one.replicas = 1;
  return {table_of(order), placement_of(*scenario.schedule, one)};
}

ComputeTable imported_table(const std::string& path, const std::vector<Override>& overrides) {
  require_file(path);
  if (!overrides.empty()) {
    throw InputError("--set " + overrides.front().key,
                     "a file's schedule is as it stands; --set goes with a schedule's name");
  }
  ImportedSchedule imported = read_torch_csv(read_file(path), path);
  return {std::move(imported.table), std::move(imported.placement)};
}

/// The formulas of the row that hold for this run, with their values.
std::string claims_text(const Simulation& simulation, const Result& result) {
  const Schedule& schedule = *simulation.scenario.schedule;
  const Claims claims = claims_of(simulation, result);
  std::string text;
  if (claims.bubble) {
    const std::string whole =
        schedule.flushes() ? fmt::format("the {}", bubble_of(schedule)) : "an update";
    text +=
        fmt::format("bubble {}: {} of {}", schedule.bubble, format_percent(*claims.bubble), whole);
    if (claims.simulated_bubble)
      text += fmt::format(", simulated {}", format_percent(*claims.simulated_bubble));
    text += '\n';
  }
  const auto is_claimed = [](const std::optional<double>& peak) { return peak.has_value(); };
  if (std::ranges::any_of(claims.peaks, is_claimed)) {
    constexpr std::size_t kShown = 16;
    text += fmt::format("stash {}:", schedule.stash);
    for (std::size_t d = 0; d < std::min(kShown, claims.peaks.size()); ++d)
      text += claims.peaks[d] ? fmt::format(" {:g}", *claims.peaks[d]) : " -";
    text += claims.peaks.size() > kShown ? " ...\n" : "\n";
  }
  return text;
}

/// The block, its bound, and what the order made of it holds.
std::string block_text(const Scenario& scenario, const Result& result, int columns) {
  std::string text = fmt::format(
      "\nbuilding block, {}",
      draw(scenario.schedule->block(scenario.shape.depth), static_cast<std::size_t>(columns)));
  text += "reordered, no device holds more than the largest of these\n";
  text += "held in the order above:";
  for (const DeviceResult& d : result.devices) text += fmt::format(" {}", d.order.stash_peak);
  return text + '\n';
}

/// Is there an op that uses weights which an update of the run has made?
bool uses_updated_weights(const Simulation& simulation) {
  const OpLists& lists = simulation.program.ops;
  for (int device = 0; device < lists.devices(); ++device) {
    for (const Op& op : lists.of_device(device)) {
      if (is_compute(op.kind) && simulation.weight_version(op) > 0) return true;
    }
  }
  return false;
}

/// Returns the run to draw: with --versions so many updates that a second version is seen, unless
/// the user says how many.
Simulation shown(const Arguments& arguments) {
  std::vector<Override> overrides = overrides_of(arguments);
  const auto simulated = [&] {
    return simulate(unitless_scenario(arguments.positional[0], overrides), EngineChoice::exact);
  };
  const bool given =
      std::ranges::any_of(overrides, [](const Override& o) { return o.key == "batches"; });
  constexpr std::uint32_t kMost = 8;
  std::uint32_t batches = 0;
  while (arguments.flag("versions") && !given && batches < kMost) {
    const Simulation tried = simulated();
    if (uses_updated_weights(tried)) break;
    batches = tried.program.batches + 1;
    overrides.push_back({"batches", std::to_string(batches)});
  }
  return simulated();
}

}  // namespace

int run_schedule_list(const Arguments& arguments) {
  const std::string format = arguments.value("format", "table");
  if (format == "table") {
    put_result(arguments, schedules_text(static_cast<std::size_t>(columns(arguments))));
    return exit_ok;
  }
  const Json rows = schedules_json();
  if (format == "json") {
    put_result(arguments, rows.dump(2) + "\n");
    return exit_ok;
  }
  std::vector<CsvRow> cells;
  for (const Json& row : rows) cells.push_back(csv_row(row));
  put_result(arguments, to_csv(cells));
  return exit_ok;
}

int run_schedule_show(const Arguments& arguments) {
  const Simulation simulation = shown(arguments);
  const Scenario& scenario = simulation.scenario;
  const Result result = summarize(simulation);
  const std::string format = arguments.value("format", "table");
  if (format != "table") {
    Json json = to_json(simulation, result, {.events = format == "json", .reproducible = true});
    add_claims(simulation, result, json);
    if (scenario.schedule->block != nullptr)
      json["building_block"] = to_json(scenario.schedule->block(scenario.shape.depth));
    put_output(arguments, format == "csv" ? to_csv({summary_row(json)}) : json.dump(2) + "\n");
    return exit_ok;
  }
  const bool colour = arguments.value("output", "-") == "-" && colour_allowed(STDOUT_FILENO);
  const int width = columns(arguments);
  std::string text = draw_schedule(simulation, result, width,
                                   {.colour = colour, .versions = arguments.flag("versions")});
  text += claims_text(simulation, result);
  if (scenario.schedule->block != nullptr) text += block_text(scenario, result, width);
  const std::size_t given = arguments.flag("width") ? static_cast<std::size_t>(width) : 0;
  put_output(arguments, wrapped(text, std::max(given, results_width())));
  return exit_ok;
}

int run_schedule_export(const Arguments& arguments) {
  const std::string& name = arguments.positional[0];
  const auto overrides = overrides_of(arguments);
  const ComputeTable compute =
      name.ends_with(".csv") ? imported_table(name, overrides) : generated_table(name, overrides);
  const bool communicates = arguments.value("to", "torch-csv") == "torch-csv-comms";
  put_output(arguments, to_csv(communicates ? with_communication(compute.table, compute.placement)
                                            : compute.table));
  return exit_ok;
}

}  // namespace penstock
