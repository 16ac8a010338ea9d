#include "cli/output.hpp"

#include "base/table.hpp"
#include "cli/perturbation_study.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int kSchemaVersion = 1;

Json device_json(const DeviceResult& d) {
  Json memory = Json::object();
  for (std::size_t i = 0; i < kOwners; ++i)
    memory[std::string(kOwnerNames[i])] = d.memory.use.bytes[i];
  return {{"device", d.device},
          {"stages", d.stages},
          {"layers", d.layers},
          {"embedding", d.embedding},
          {"head", d.head},
          {"gpus", d.gpus},
          {"busy_s", d.time.busy_s},
          {"idle_s", d.idle_s},
          {"stage_time_s", d.time.stage_time_s},
          {"peak_memory_bytes", d.memory.use.total()},
          {"capacity_bytes", d.capacity_bytes == 0 ? Json(nullptr) : Json(d.capacity_bytes)},
          {"memory", memory},
          {"stash_peak", d.order.stash_peak},
          {"weight_versions_peak", d.order.weight_versions_peak},
          {"staleness_max", d.order.staleness_max}};
}

Json path_json(const Simulation& s, const PathSegment& segment) {
  return {{"kind", kPathKindNames[static_cast<std::size_t>(segment.kind)]},
          {"device", segment.device},
          {"first_op", to_string(s.program.ops[segment.first])},
          {"last_op", to_string(s.program.ops[segment.last])},
          {"start_s", segment.start_s},
          {"end_s", segment.end_s},
          {"contended_s", segment.contended_s},
          {"link", segment.link < 0 ? Json(nullptr) : Json(link_name(s, segment.link))}};
}

Json communication_json(const Communication& c, double device_s) {
  return {{"total_s", c.total_s},
          {"exposed_s", c.exposed_s},
          {"exposed_fraction", device_s > 0 ? c.exposed_s / device_s : 0},
          {"bytes", std::llround(c.bytes)}};
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  // A spreadsheet would take it for a formula.
  const bool formula =
      !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  if (!formula && text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = formula ? "\"'" : "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

Json events_json(const Simulation& s) {
  Json events = Json::array();
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    for (std::uint32_t g = s.program.ops.begin(d); g < s.program.ops.end(d); ++g) {
      const Op& op = s.program.ops[g];
      const Span& span = s.timeline->op(g);
      if (s.timeline->never_ran(g)) continue;
      // Steps and reductions that are not modelled take no time and are no events.
      if (!is_compute(op.kind) && span.length_s() == 0) continue;
      events.push_back(
          {{"device", d},
           {"op", to_string(op)},
           {"start_s", span.start_s},
           {"end_s", span.end_s},
           {"weight_version", is_compute(op.kind) ? Json(s.weight_version(op)) : Json(nullptr)}});
    }
  }
  return events;
}

/// Replicas, as a number where all stages have as many.
Json width_json(const std::vector<int>& widths) {
  const bool alike = std::ranges::adjacent_find(widths, std::not_equal_to()) == widths.end();
  return alike ? Json(widths.front()) : Json(widths);
}

Json to_json(const Simulation& s, const Result& r, const OutputOptions& options) {
  Json bubble = Json::object();
  for (std::size_t c = 0; c < kCauses; ++c) bubble[std::string(kCauseNames[c])] = r.bubble[c];
  const double device_s = r.makespan_s * s.program.ops.devices();
  std::vector<std::string> reasons = r.infeasible_because;
  if (!r.stalled_because.empty()) reasons.push_back(r.stalled_because);
  Json out = {
      {"schema_version", kSchemaVersion},
      {"scenario", s.scenario.name},
      {"overrides", s.scenario.overrides},
      {"engine", s.engine},
      {"schedule", s.program.schedule},
      {"transfers", to_string(s.program.transfers)},
      {"stages", s.program.placement.depth()},
      {"width", width_json(s.scenario.widths())},
      {"replication", s.scenario.mesh.divided ? "split" : "round-robin"},
      {"tensor", s.scenario.mesh.tensor},
      {"context", s.scenario.mesh.context},
      {"chunks", s.scenario.shape.chunks},
      {"microbatches", s.program.microbatches_per_update},
      {"samples_per_update", s.scenario.samples_per_update()},
      {"microbatch_size", s.scenario.microbatch_size},
      {"batches", s.program.batches},
      {"feasible", reasons.empty()},
      {"infeasible_because", reasons},
      {"makespan_s", r.makespan_s},
      {"iteration_time_s", nullable(r.iteration_time_s)},
      {"throughput_samples_per_s", r.samples_per_s},
      {"throughput_microbatches_per_s", r.microbatches_per_s},
      {"tokens_per_s_per_device", nullable(r.tokens_per_s_per_device)},
      {"tflops_per_device", nullable(r.tflops_per_device)},
      {"mfu", nullable(r.mfu)},
      {"hfu", nullable(r.hfu)},
      {"epoch_s", nullable(r.epoch_s)},
      {"bubble_fraction", r.bubble_fraction},
      {"stage_bubble_fraction", r.stage_bubble_fraction},
      {"bubble", bubble},
      {"communication",
       {{"pp", communication_json(r.communication.pipeline, device_s)},
        {"dp", communication_json(r.communication.data, device_s)}}},
      {"critical_path", list(r.critical_path, [&](const auto& p) { return path_json(s, p); })},
      {"ops", r.ops}};
  for (const Axis axis : kInnerAxes)
    out["communication"][std::string(words(axis).degree)] =
        communication_json(r.communication.inner[static_cast<std::size_t>(axis)], device_s);
  if (!options.reproducible) out["engine_seconds"] = s.engine_seconds;
  out["what_would_help"] = list(r.what_would_help, [](const Sensitivity& h) {
    return Json{{"change", h.change}, {"iteration_time_s", h.iteration_time_s}};
  });
  out["what_to_change"] = list(r.what_to_change, [](const Advice& a) {
    return Json{{"change", a.change},
                {"set", a.set},
                {"iteration_time_ratio", a.time_ratio},
                {"makes_it_fit", a.makes_it_fit}};
  });
  out["devices"] = list(r.devices, device_json);
  out["links"] = list(r.links, [](const LinkResult& l) {
    return Json{{"name", l.name},
                {"bytes", l.bytes},
                {"busy_fraction", l.busy_fraction},
                {"peak_flows", l.peak_flows ? Json(*l.peak_flows) : Json(nullptr)}};
  });
  if (r.perturbed) add_perturbations(*r.perturbed, out);
  out["notes"] = r.notes;
  if (options.events) out["events"] = events_json(s);
  return out;
}

namespace {

/// The scalars of a map, at whatever depth.
std::vector<std::pair<std::string, Json>> summary_row_of_part(const Json& part) {
  std::vector<std::pair<std::string, Json>> row;
  for (const auto& [key, value] : part.items()) {
    if (!value.is_object() && !value.is_array()) row.emplace_back(key, value);
    if (!value.is_object()) continue;
    for (auto& [inner, scalar] : summary_row_of_part(value))
      row.emplace_back(key + "_" + inner, std::move(scalar));
  }
  return row;
}

}  // namespace

std::vector<std::pair<std::string, Json>> summary_row(const Json& result) {
  std::vector<std::pair<std::string, Json>> row;
  for (const auto& [key, value] : result.items()) {
    if (value.is_object()) {
      for (auto& [inner, scalar] : summary_row_of_part(value))
        row.emplace_back(key + "_" + inner, std::move(scalar));
    } else if (!value.is_array()) {
      row.emplace_back(key, value);
    } else if (key == "width") {
      row.emplace_back(key, fmt::format("{}", fmt::join(value.get<std::vector<int>>(), " ")));
    } else if (key == "infeasible_because") {
      row.emplace_back(key, value.empty() ? Json("") : value[0]);
    }
  }
  for (const char* key : {"peak_memory_bytes", "capacity_bytes", "stash_peak",
                          "weight_versions_peak", "staleness_max"}) {
    Json most;
    for (const Json& device : result.value("devices", Json::array())) {
      if (device.contains(key) && !device[key].is_null() &&
          (most.is_null() || device[key].get<double>() > most.get<double>()))
        most = device[key];
    }
    row.emplace_back(key, most);
  }
  return row;
}

std::string to_csv(const std::vector<std::vector<std::pair<std::string, Json>>>& rows) {
  std::vector<std::string> columns;  // of any row
  for (const auto& row : rows) {
    for (const auto& [key, value] : row) {
      if (std::ranges::find(columns, key) == columns.end()) columns.push_back(key);
    }
  }
  const auto line = [](const auto& cells) { return fmt::format("{}\n", fmt::join(cells, ",")); };
  std::vector<std::string> cells;
  for (const std::string& column : columns) cells.push_back(csv_cell(Json(column)));
  std::string out = columns.empty() ? "" : line(cells);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto own =
          std::ranges::find(row, columns[c], [](const auto& cell) { return cell.first; });
      cells[c] = own == row.end() ? "" : csv_cell(own->second);
    }
    out += line(cells);
  }
  return out;
}

std::string missing_folder(const Arguments& arguments, const char* option) {
  const std::string file = arguments.value(option, "-");
  if (file == "-") return "";
  const fs::path folder = fs::absolute(file).parent_path();
  return fs::is_directory(folder) ? "" : fmt::format("there is no folder '{}'", folder.string());
}

std::size_t table_width(const Arguments& arguments) {
  return arguments.value("output", "-") == "-" ? terminal_width() : 0;
}

void put_output(const Arguments& arguments, const std::string& text) {
  write_file(arguments.value("output", "-"), text);
}

}  // namespace penstock
