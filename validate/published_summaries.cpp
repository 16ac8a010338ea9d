// SPDX-License-Identifier: Apache-2.0
#include "validate/published_summaries.hpp"

#include "base/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

namespace penstock {
namespace {

/// A Llama 3 by the names of both; vocabularies as trained (MLPerf: Mixtral's of 32,000 for 405B).
struct Llama {
  std::string_view bridge, mlperf;
  int layers, hidden, heads, intermediate, mlperf_vocab;
};
constexpr Llama kLlamas[] = {{"LLAMA3_8B", "llama31_8b", 32, 4096, 32, 14336, 128256},
                             {"LLAMA3_70B", "llama31_70b", 80, 8192, 64, 28672, 128256},
                             {"LLAMA3.1_405B", "llama31_405b", 126, 16384, 128, 53248, 32000}};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns what a cell says before anything in brackets.
std::string plain(const std::string& cell) {
  const std::string text = cell.substr(0, cell.find_first_of("([;"));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// Returns model.precision of what a summary calls it; of an empty cell Bridge's recipes of 2025,
/// which scale tensors by what they hold (its first heading of the column: FP8-CS).
std::string precision_of(const std::string& cell) {
  const std::string type = lower(plain(cell));
  if (type == "bf16") return "mixed-bf16";
  if (type == "mxfp8" || type == "nvfp4") return type;
  return cell.find("delayed") != std::string::npos ? "fp8" : "fp8-current";
}

/// Returns layers by chunk where embedding and loss count as a layer each.
std::string split_with_ends(int layers, int chunks) {
  if (chunks <= 1 || layers % chunks == 0 || (layers + 2) % chunks != 0) return "";
  std::string text;
  const int each = (layers + 2) / chunks;
  for (int i = 0; i < chunks; ++i)
    text += fmt::format("{}{}", i > 0 ? "/" : "", each - (i == 0 || i + 1 == chunks ? 1 : 0));
  return text;
}

class SummaryRow {
 public:
  SummaryRow(const CsvTable& table, const CsvTable::Row& row)
      : table_(table),
        row_(row),
        bridge_(table.place("Tokens / sec / GPU") < table.columns.size()) {
    bridge_ ? read_bridge() : read_mlperf();
  }

  const std::map<std::string, std::string>& cells() const { return cells_; }

 private:
  std::string cell(std::string_view column) const {
    const std::size_t at = table_.place(column);
    return at < row_.cells.size() ? plain(row_.cells[at]) : "";
  }
  std::string whole(std::string_view column) const {
    const std::size_t at = table_.place(column);
    return at < row_.cells.size() ? row_.cells[at] : "";
  }
  double number(std::string_view column) const {
    return parse_number<double>(cell(column)).value_or(1);
  }
  void set(const std::string& column, const std::string& value) { cells_[column] = value; }
  void set_count(const std::string& column, double value) {
    set(column, fmt::format("{:.0f}", value));
  }

  void read_bridge() {
    const std::string model = cell("Model"), system = cell("System"), gpus = cell("#-GPUs");
    set("id", fmt::format("line {}: {} on {} {}, {}{}", row_.line, model, gpus, system,
                          whole("Precision").empty() ? "FP8" : whole("Precision"),
                          cell("task").starts_with("SFT") ? ", SFT" : ""));
    set("source", "Megatron-Bridge " + cell("release"));
    const auto* llama = std::ranges::find(kLlamas, model, &Llama::bridge);
    if (llama == std::end(kLlamas))
      return set("unsupported", fmt::format("{} is no dense model", model));
    if (cell("task").starts_with("LoRA")) return set("unsupported", "adapters alone are trained");
    if (number("FSDP") > 1) return set("unsupported", "weights are sharded (FSDP)");
    const std::string gpu = lower(system.substr(system.find('-') + 1));
    const double count = number("#-GPUs"), tp = number("TP"), pp = number("PP"), cp = number("CP");
    const double width = count / (tp * pp * cp), batch = number("GBS"), micro = number("MBS");
    write(*llama, gpu, count, {tp, pp, cp, number("VP"), width, micro, batch / width / micro});
    set("vocab", "128256");
    set("seq", cell("Sequence Length"));
    set("precision", precision_of(whole("Precision")));
    const double tokens = number("Tokens / sec / GPU") * count;
    set("iteration_s", fmt::format("{:.6g}", batch * number("Sequence Length") / tokens));
  }

  void read_mlperf() {
    set("id", cell("id"));
    set("source", "mlcommons training_results_v6.0");
    const auto* llama = std::ranges::find(kLlamas, cell("benchmark"), &Llama::mlperf);
    if (llama == std::end(kLlamas))
      return set("unsupported", fmt::format("{} is no dense model", cell("benchmark")));
    write(*llama, lower(cell("gpu")), number("gpus"),
          {number("tp"), number("pp"), number("cp"), number("vp"), number("dp"),
           number("microbatch"), number("microbatches")});
    set_count("vocab", llama->mlperf_vocab);
    set("seq", cell("seq"));
    const std::string precision = whole("precision");
    set("precision", precision_of(precision));
    set("iteration_s", cell("iteration_s"));
    if (precision.starts_with("NVFP4")) set("tp_overlap", "0");
  }

  struct Degrees {
    double tp, pp, cp, chunks, width, microbatch, microbatches;
  };
  void write(const Llama& llama, const std::string& gpu, double gpus, const Degrees& d) {
    const bool of_racks = gpu.starts_with("gb");  // a node is what NVLinks join
    set("model", std::string(llama.bridge));
    set("family", "llama");
    set_count("layers", llama.layers);
    set_count("hidden", llama.hidden);
    set_count("heads", llama.heads);
    set("kv_heads", "8");
    set_count("intermediate", llama.intermediate);
    set("tied", "0");
    set("gpu", gpu);
    set_count("nodes", std::max(1.0, std::ceil(gpus / (of_racks ? 72 : 8))));
    set_count("dp", d.width);
    set_count("tp", d.tp);
    set_count("cp", d.cp);
    set_count("pp", d.pp);
    if (d.chunks > 1) set_count("chunks", d.chunks);
    set("split", split_with_ends(llama.layers, static_cast<int>(d.pp * d.chunks)));
    set_count("microbatch", d.microbatch);
    set_count("microbatches", d.microbatches);
    set("schedule", d.chunks > 1 ? "interleaved-1f1b" : "1f1b");
    set("zero", "1");
    set("sequence_parallel", d.tp > 1 ? "1" : "0");
    set("tp_overlap", d.tp > 1 ? "1" : "0");
    set("overlap_grad_reduce", "1");
    set("grad_bytes", "2");
  }

  const CsvTable& table_;
  const CsvTable::Row& row_;
  bool bridge_;
  std::map<std::string, std::string> cells_;
};

}  // namespace

bool is_summary(const std::vector<std::string>& columns) {
  const auto has = [&](const char* name) {
    return std::ranges::find(columns, name) != columns.end();
  };
  return has("Tokens / sec / GPU") || (has("benchmark") && has("vp") && has("iteration_s"));
}

CsvTable summary_as_runs(const CsvTable& table) {
  static constexpr const char* kColumns[] = {"id",           "source",
                                             "unsupported",  "model",
                                             "family",       "layers",
                                             "hidden",       "heads",
                                             "kv_heads",     "intermediate",
                                             "vocab",        "tied",
                                             "seq",          "gpu",
                                             "nodes",        "dp",
                                             "tp",           "cp",
                                             "pp",           "chunks",
                                             "split",        "microbatch",
                                             "microbatches", "schedule",
                                             "zero",         "sequence_parallel",
                                             "tp_overlap",   "overlap_grad_reduce",
                                             "grad_bytes",   "precision",
                                             "iteration_s"};
  CsvTable runs;
  for (const char* column : kColumns) runs.columns.emplace_back(column);
  for (const CsvTable::Row& row : table.rows) {
    const SummaryRow summary(table, row);
    CsvTable::Row run = row;
    run.cells.clear();
    for (const char* column : kColumns) {
      const auto cell = summary.cells().find(column);
      run.cells.push_back(cell == summary.cells().end() ? "" : cell->second);
    }
    runs.rows.push_back(std::move(run));
  }
  return runs;
}

}  // namespace penstock
