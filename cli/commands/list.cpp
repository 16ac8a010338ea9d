// SPDX-License-Identifier: Apache-2.0
// penstock list scenarios | models | devices | clusters | schedules
#include "base/exit_codes.hpp"
#include "base/suggest.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "cli/scenario_names.hpp"
#include "scenarios/document.hpp"
#include "scenarios/keys.hpp"

#include <fmt/format.h>

#include <map>

namespace penstock {
namespace {

using Rows = std::vector<CsvRow>;

/// A scenario's own name says in a line what it is.
Rows scenarios() {
  Rows rows;
  for (const std::string& name : shipped_names("scenarios")) {
    const Value document = load_document(shipped_file("scenarios", name));
    const Value* const description = document.find("name");
    rows.push_back(
        {{"name", name}, {"description", description == nullptr ? "" : description->text}});
  }
  return rows;
}

Rows models() {
  Rows rows;
  for (const std::string& name : shipped_names("models")) {
    const TransformerSpec m = load_model(name);
    rows.push_back({{"name", name},
                    {"parameters", m.parameters()},
                    {"layers", m.num_layers},
                    {"hidden_size", m.hidden_size},
                    {"heads", m.num_attention_heads},
                    {"seq_length", m.seq_length},
                    {"vocab_size", m.vocab_size},
                    {"compute", m.compute_type}});
  }
  return rows;
}

/// Null where nobody says it.
Json known(double efficiency) { return efficiency > 0 ? Json(efficiency) : Json(nullptr); }

Rows devices() {
  Rows rows;
  for (const std::string& name : shipped_names("models/devices")) {
    const DeviceSpec d = load_device(name);
    Json peak = Json::object();
    for (const auto& [type, rate] : d.peak_flops_per_s) peak[type] = rate;
    const std::string best = peak.contains("bf16") ? "bf16" : "fp16";
    rows.push_back({{"name", name},
                    {"memory_bytes", d.memory_bytes},
                    {"usable_bytes", d.capacity_bytes()},
                    {"memory_bytes_per_s", d.memory_bytes_per_s},
                    {"peak_16bit_flops_per_s", peak.value(best, 0.0)},
                    {"efficiency_at_4096", d.efficiency_at(4096)},
                    {"curve", d.efficiency_assumed ? "assumed" : "measured"},
                    {"efficiency_of_matrices", known(d.matrix_efficiency)}});
  }
  return rows;
}

Rows stacks() {
  Rows rows;
  for (const std::string& name : shipped_names("models/stacks")) {
    const StackSpec s = load_stack(name);
    rows.push_back({{"name", name},
                    {"efficiency_of_matrices", known(s.matrix_efficiency)},
                    {"forward_host_s", s.forward_host_s},
                    {"backward_host_s", s.backward_host_s},
                    {"efficiency_of_links", s.link_efficiency},
                    {"reduction", s.overlaps_reduction ? "beside the backward" : "after it"}});
  }
  return rows;
}

/// The word of a key's choice.
std::string word(const char* section, const char* key, std::size_t choice) {
  return split_choices(find_key(section, key)->choices)[choice];
}

Rows clusters() {
  Rows rows;
  for (const std::string& name : shipped_names("models/clusters")) {
    const Cluster c = load_cluster(name);
    const LinkSpec& intra = c.attachment == Attachment::pcie ? c.pcie->link : c.intra;
    rows.push_back(
        {{"name", name},
         {"device", device_names(c)},
         {"nodes", c.nodes},
         {"devices_per_node", c.devices_per_node},
         {"inside", word("link", "attachment", static_cast<std::size_t>(c.attachment))},
         {"fabric", word("fabric", "topology", static_cast<std::size_t>(c.fabric.topology))},
         {"intra_bytes_per_s", intra.bytes_per_s},
         {"intra_latency_s", intra.latency_s},
         {"inter_bytes_per_s", c.inter.bytes_per_s},
         {"inter_latency_s", c.inter.latency_s},
         {"nics_per_node", c.nics_per_node}});
  }
  return rows;
}

std::string shown(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (key.ends_with("flops_per_s"))
    return fmt::format("{:.0f} TFLOP/s", value.get<double>() / 1e12);
  if (key.ends_with("bytes_per_s"))
    return format_bandwidth(value.is_null() ? std::numeric_limits<double>::infinity()
                                            : value.get<double>());
  if (key.ends_with("_bytes")) return format_bytes(value.get<double>());
  if (key.ends_with("_s")) return format_time(value.get<double>());
  if (key.starts_with("efficiency") && value.is_null()) return "-";
  if (key.starts_with("efficiency")) return format_percent(value.get<double>());
  if (key == "parameters") return fmt::format("{:.3g} B", value.get<double>() / 1e9);
  return value.dump();
}

std::string to_text(const Rows& rows) {
  if (rows.empty()) return "";
  std::vector<std::string> header;
  for (const auto& [key, value] : rows.at(0)) {
    std::string name = key;
    for (const char* unit : {"_flops_per_s", "_bytes_per_s", "_bytes", "_s"}) {
      if (name.ends_with(unit)) name.erase(name.size() - std::string_view(unit).size());
    }
    if (name == "memory" && key == "memory_bytes_per_s") name = "memory bandwidth";
    for (char& c : name) c = c == '_' ? ' ' : c;
    header.push_back(name);
  }
  std::vector<TextTable::Align> alignment;
  for (const auto& [key, value] : rows.at(0))
    alignment.push_back(value.is_string() ? TextTable::Align::left : TextTable::Align::right);
  TextTable table(header, alignment);
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [key, value] : row) cells.push_back(shown(key, value));
    table.add_row(std::move(cells));
  }
  return table.render();
}

}  // namespace

int run_list(const Arguments& arguments) {
  const std::string& what = arguments.positional[0];
  if (what == "schedules") {
    Arguments same = arguments;
    same.positional.clear();
    return run_schedule_list(same);
  }
  const std::map<std::string_view, Rows (*)()> lists{{"scenarios", scenarios},
                                                     {"models", models},
                                                     {"devices", devices},
                                                     {"clusters", clusters},
                                                     {"stacks", stacks}};
  const auto list_of = lists.find(what);
  if (list_of == lists.end()) {
    std::vector<std::string> known{"schedules"};
    for (const auto& list : lists) known.emplace_back(list.first);
    throw InputError("penstock list",
                     fmt::format("'{}' is not one of {}{}", what, fmt::join(known, ", "),
                                 did_you_mean(what, known)));
  }
  const Rows rows = list_of->second();
  const std::string format = arguments.value("format", "table");
  if (format == "json") {
    Json list = Json::array();
    for (const auto& row : rows) {
      Json object = Json::object();
      for (const auto& [key, value] : row) object[key] = value;
      list.push_back(object);
    }
    put_result(arguments, list.dump(2) + "\n");
  } else {
    put_result(arguments, format == "csv" ? to_csv(rows) : to_text(rows));
  }
  return exit_ok;
}

}  // namespace penstock
