// SPDX-License-Identifier: Apache-2.0
#include "validate/simumax.hpp"

#include "base/error.hpp"
#include "base/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace penstock {
namespace {

/// As SimuMax names it, of its configs/models.
struct KnownModel {
  std::string_view name;
  int hidden, heads, intermediate;
};
constexpr KnownModel kKnownModels[] = {{"llama3-70b", 8192, 64, 28672},
                                       {"llama3-405b", 16384, 128, 53248}};

/// 4 of "cp" in llama3_70b_l12_tp2_cp4_pp1; `otherwise` where no part of the name is that.
std::string degree(std::string_view name, std::string_view key, const char* otherwise = "1") {
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('_'));
    name.remove_prefix(std::min(part.size() + 1, name.size()));
    const std::string_view digits = part.substr(std::min(key.size(), part.size()));
    if (part.starts_with(key) && !digits.empty() &&
        std::ranges::all_of(digits, [](unsigned char c) { return std::isdigit(c) != 0; }))
      return std::string(digits);
  }
  return otherwise;
}

using Cells = std::vector<std::pair<std::string, std::string>>;  // by column

/// Returns what rows of every model say.
Cells job_cells(const Json& row) {
  const auto name = row["case"].get<std::string>();
  return {{"id", name},
          {"source", "SimuMax"},
          {"model", row["model"].get<std::string>()},
          {"layers", row["layer_num"].dump()},
          {"seq", degree(name, "seq", "4096")},
          {"cluster_json", R"({"base": "dgx-b200"})"},
          {"dp", degree(name, "dp")},
          {"tp", degree(name, "tp")},
          {"cp", degree(name, "cp")},
          {"pp", degree(name, "pp")},
          {"microbatch", "1"},
          {"microbatches", row["mbc"].dump()},
          {"zero", "1"},
          {"sequence_parallel", "1"},
          {"iteration_s", fmt::format("{}", row["real_ms"].get<double>() / 1e3)},
          {"peak_gib", row["real_alloc_gib"].dump()}};
}

/// A mixture of experts of SimuMax's configs/models, as the model that is shipped. Its rows of a
/// few layers have one without experts (the memory that was measured says so within 0.1 %).
struct SimuMaxMixture {
  std::string_view name, model;
};
constexpr SimuMaxMixture kSimuMaxMixtures[] = {{"deepseekv2", "deepseek-v2"},
                                               {"deepseekv3", "deepseek-v3-671b"}};

Cells mixture_cells(const Json& row, const SimuMaxMixture& mixture) {
  Cells cells = job_cells(row);
  cells.emplace_back("base_model", mixture.model);
  cells.emplace_back("dense_layers", "1");
  cells.emplace_back("stack", "nemo");  // its own was fitted on dense layers, memory as well
  const auto name = row["case"].get<std::string>();
  if (name.find("_cef") != std::string::npos) cells.emplace_back("flags", "fused cross entropy");
  cells.emplace_back("ep", degree(name, "ep"));
  return cells;
}

Cells cells_of(const Json& row) {
  const auto name = row["case"].get<std::string>();
  const auto model = row["model"].get<std::string>();
  if (const auto* mixture = std::ranges::find(kSimuMaxMixtures, model, &SimuMaxMixture::name);
      mixture != std::end(kSimuMaxMixtures))
    return mixture_cells(row, *mixture);
  const auto* known = std::ranges::find(kKnownModels, model, &KnownModel::name);
  if (known == std::end(kKnownModels))
    return {{"id", name},
            {"unsupported", fmt::format("'{}' is not a model that is known here", model)}};
  Cells cells = job_cells(row);
  const Cells shape{{"family", "llama"},
                    {"hidden", std::to_string(known->hidden)},
                    {"heads", std::to_string(known->heads)},
                    {"kv_heads", "8"},
                    {"intermediate", std::to_string(known->intermediate)},
                    {"vocab", "128256"},
                    {"tied", "0"}};
  cells.insert(cells.end(), shape.begin(), shape.end());
  return cells;
}

}  // namespace

bool is_simumax(std::string_view text) {
  return text.starts_with('{') && text.find("\"real_ms\"") != std::string_view::npos;
}

CsvTable simumax_as_runs(const std::string& text, const std::string& origin) {
  CsvTable table;
  try {
    const Json result = parse_json(text, origin);
    for (const Json& row : result["rows"]) {
      CsvTable::Row cells{static_cast<int>(table.rows.size()) + 1, {}};
      for (const auto& [column, value] : cells_of(row)) {
        const std::size_t at = table.place(column);
        if (at == table.columns.size()) table.columns.push_back(column);
        if (cells.cells.size() <= at) cells.cells.resize(at + 1);
        cells.cells[at] = value;
      }
      table.rows.push_back(std::move(cells));
    }
  } catch (const JsonError& error) {
    throw InputError(origin, fmt::format("is no result of SimuMax: {}", error.what()));
  }
  if (table.rows.empty()) throw InputError(origin, "holds no row");
  for (CsvTable::Row& row : table.rows) row.cells.resize(table.columns.size());
  return table;
}

}  // namespace penstock
