// penstock schedule list | show | export
#include "base/exit_codes.hpp"
#include "base/progress.hpp"
#include "base/table.hpp"
#include "cli/drawing.hpp"
#include "cli/running.hpp"
#include "schedules/exchange/torch_reader.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <map>

namespace penstock {
namespace {

Json schedule_rows() {
  Json rows = Json::array();
  for (const Schedule& s : schedules()) {
    rows.push_back({{"name", s.name},
                    {"aliases", s.aliases},
                    {"rule", s.summary},
                    {"bubble", s.bubble},
                    {"stash", s.stash},
                    {"flush", s.flushes()},
                    {"paper", s.paper}});
  }
  return rows;
}

bool is_time_key(const std::string& key) {
  static const std::vector<std::string> kKeys{"forward", "backward", "backward_input",
                                              "backward_weight", "step"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

/// A unitless schedule as a scenario: times in seconds, transfers as latency.
Scenario unitless_scenario(const std::string& schedule, const std::vector<Override>& overrides) {
  const std::string origin = "schedule show " + schedule;
  std::map<std::string, std::string> model{{"forward", "1 s"}};
  std::string transfer = "0";
  std::vector<Override> rest;
  bool backward = false;
  for (const Override& o : overrides) {
    const bool unitless = o.value.find_first_not_of("0123456789.eE+-[], ") == std::string::npos;
    std::string value = o.value;
    if (!unitless && (is_time_key(o.key) || o.key == "transfer")) {
      throw InputError("--set " + o.key + "=" + o.value,
                       "times of `schedule show` have no unit; expected a number such as 1.5");
    }
    if (unitless && (is_time_key(o.key) || o.key == "transfer")) {
      value = "";  // every number becomes seconds
      for (std::size_t i = 0; i < o.value.size(); ++i) {
        const bool in_number =
            o.value[i] != '[' && o.value[i] != ']' && o.value[i] != ',' && o.value[i] != ' ';
        const bool ends = i + 1 == o.value.size() ||
                          std::string_view("[], ").find(o.value[i + 1]) != std::string_view::npos;
        value += o.value[i];
        if (in_number && ends) value += " s";
      }
    }
    if (o.key == "transfer") {
      transfer = value;
    } else if (is_time_key(o.key)) {
      model[o.key] = value;
      backward = backward || o.key.starts_with("backward");
    } else {
      rest.push_back(o);
    }
  }
  if (!backward) model["backward"] = "2 s";
  std::string text = "model: {";
  for (const auto& [key, value] : model) text += fmt::format("{}: {}, ", key, value);
  const Schedule* known = find_schedule(schedule);
  const bool one_per_update = known != nullptr && known->update == UpdateRule::stash;
  text +=
      fmt::format("}}\ncluster: {{link: {{latency: {}}}}}\nschedule: '{}'\n", transfer, schedule);
  text += one_per_update ? "batches: 8\npipeline: {stages: 4}\n"
          : known != nullptr && known->whole_model
              ? "batches: 2\npipeline: {stages: 1, width: 4, microbatches: 2}\n"
          : known != nullptr && !known->flushes()
              ? "batches: 2\npipeline: {stages: 4, microbatches: 4}\n"
              : "pipeline: {stages: 4, microbatches: 8}\n";
  return parse_scenario(text, origin, rest);
}

int columns(const Arguments& arguments) {
  const std::string given = arguments.value("width");
  if (!given.empty()) {
    int value = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (error != std::errc() || end != given.data() + given.size() || value < 40 || value > 10000) {
      throw InputError("--width",
                       fmt::format("must be an integer from 40 to 10000, got '{}'", given));
    }
    return value;
  }
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 100;
}

struct ComputeTable {
  TorchTable table;
  Placement placement;
};

/// A shipped schedule's order of one batch (of the whole run, where it does not flush).
ComputeTable generated_table(const std::string& name, const std::vector<Override>& overrides) {
  const Scenario scenario = unitless_scenario(name, overrides);
  const ScheduleShape& shape = scenario.shape;
  if (!shape.widths.empty()) {
    throw InputError("--set width",
                     "the table has a row per device of one pipeline; stages with "
                     "different numbers of replicas do not make one");
  }
  OpLists order;
  scenario.schedule->generate(shape, order);
  return {table_of(order), layout(scenario.schedule->layout, std::vector<int>(shape.depth, 1),
                                  shape.chunks, shape.microbatches_per_update)};
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

}  // namespace

int run_schedule_list(const Arguments& arguments) {
  const Json rows = schedule_rows();
  const std::string format = arguments.value("format", "table");
  if (format == "json") {
    put_output(arguments, rows.dump(2) + "\n");
    return exit_ok;
  }
  if (format == "csv") {
    std::vector<std::vector<std::pair<std::string, Json>>> cells;
    for (const Json& row : rows) {
      auto& line = cells.emplace_back();
      for (const auto& [key, value] : row.items()) {
        line.emplace_back(
            key,
            value.is_array()
                ? Json(fmt::format("{}", fmt::join(value.get<std::vector<std::string>>(), " ")))
                : value);
      }
    }
    put_output(arguments, to_csv(cells));
    return exit_ok;
  }
  using enum TextTable::Align;
  TextTable table({"schedule", "rule", "bubble", "stash at stage s"}, {left, left, left, left});
  for (const Schedule& s : schedules()) {
    table.add(
        {std::string(s.name), std::string(s.summary), std::string(s.bubble), std::string(s.stash)});
    const std::string also =
        s.aliases.empty() ? "" : fmt::format("; also {}", fmt::join(s.aliases, ", "));
    table.add({"", fmt::format("  {}{}", s.paper, also)});
  }
  put_output(arguments, table.render());
  return exit_ok;
}

int run_schedule_show(const Arguments& arguments) {
  const Scenario scenario = unitless_scenario(arguments.positional[0], overrides_of(arguments));
  const Simulation simulation = simulate(scenario, EngineChoice::exact);
  const Result result = summarize(simulation);
  const std::string format = arguments.value("format", "table");
  if (format != "table") {
    const Json json =
        to_json(simulation, result, {.events = format == "json", .reproducible = true});
    put_output(arguments, format == "csv" ? to_csv({summary_row(json)}) : json.dump(2) + "\n");
    return exit_ok;
  }
  const bool colour = arguments.value("output", "-") == "-" && colour_allowed(STDOUT_FILENO);
  put_output(arguments, draw_schedule(simulation, result, columns(arguments), colour));
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
