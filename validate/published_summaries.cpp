// SPDX-License-Identifier: Apache-2.0
#include "validate/published_summaries.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <map>
#include <sstream>
#include <utility>

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

/// A mixture of experts by the names of both, as the model that is shipped.
struct Mixture {
  std::string_view bridge, mlperf, model;
  int layers;
};
constexpr Mixture kMixtures[] = {{"DeepSeekV3", "deepseekv3_671b", "deepseek-v3-671b", 61},
                                 {"Qwen3_30B_a3B", "", "qwen3-30b-a3b", 48},
                                 {"Qwen3_235B_a22B", "", "qwen3-235b-a22b", 94},
                                 {"GPT OSS 120B", "", "gpt-oss-120b", 36},
                                 {"", "gpt_oss_20b", "gpt-oss-20b", 24}};

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

/// Returns layers by chunk, as many on each until they end (Megatron-Bridge's layouts of
/// DeepSeek-V3, whose last chunk has the rest, the multi-token prediction and the loss).
std::string split_from_front(int layers, int chunks) {
  const int each = (layers + chunks - 1) / chunks;
  std::string text;
  for (int i = 0, left = layers; i < chunks; ++i) {
    const int here = std::min(each, left);
    text += fmt::format("{}{}", i > 0 ? "/" : "", here);
    left -= here;
  }
  return text;
}

/// Returns whether a table has all of these columns.
bool has_all(const std::vector<std::string>& columns,
             std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(
      names, [&](std::string_view name) { return std::ranges::count(columns, name) > 0; });
}

/// Names of Bridge's columns in a table that gathered rows of its pages.
constexpr std::pair<std::string_view, std::string_view> kGathered[] = {
    {"Tokens / sec / GPU", "tokens_per_sec_per_gpu"},
    {"Model", "model"},
    {"System", "system"},
    {"#-GPUs", "ngpus"},
    {"Precision", "precision"},
    {"GBS", "gbs"},
    {"MBS", "mbs"},
    {"Sequence Length", "sequence_length"},
    {"FSDP", "fsdp"},
    {"TP", "tp"},
    {"PP", "pp"},
    {"CP", "cp"},
    {"VP", "vp"}};

/// Tables that hold no runs, known by these columns, or no whole ones, with the reason.
struct OtherTable {
  std::initializer_list<std::string_view> columns;
  std::string_view reason;
  bool of_runs = false;  ///< a row is a run of which too much is not said
};
const OtherTable kOtherTables[] = {
    {{"gpus", "dispatch_GBps", "combine_GBps"}, "rates of DeepEP's all-to-alls, no runs"},
    {{"metric", "MPFT", "MRFT"}, "parts of one step of DeepSeek-V3, a mixture of experts, no rows"},
    {{"component", "GB per GPU"},
     "parts of the memory of DeepSeek-V3 as it was estimated, no runs"},
    {{"id", "class", "fit_s"}, "classes of another table's rows and somebody's fit, no runs"},
    {{"golden", "iter_median_s", "mem_max_alloc_bytes"},
     "Megatron-LM's functional tests, whose table says neither the vocabulary nor the flags of the "
     "optimizer, and whose tiny models' times are launches",
     true}};

constexpr std::size_t kMarkedStart = 4096;  // bytes in which a file of JSON says what it is

const OtherTable* other_table(const std::vector<std::string>& columns) {
  const auto* known = std::ranges::find_if(
      kOtherTables, [&](const OtherTable& t) { return has_all(columns, t.columns); });
  return known == std::end(kOtherTables) ? nullptr : known;
}

class SummaryRow {
 public:
  SummaryRow(const CsvTable& table, const CsvTable::Row& row) : table_(table), row_(row) {
    if (const OtherTable* other = other_table(table.columns))
      read_other(*other);
    else
      has_all(table.columns, {"benchmark"}) ? read_mlperf() : read_bridge();
  }

  const std::map<std::string, std::string>& cells() const { return cells_; }

 private:
  std::string cell(std::string_view column) const { return plain(whole(column)); }
  std::string whole(std::string_view column) const {
    std::size_t at = table_.place(column);
    if (at == table_.columns.size())
      for (const auto& [theirs, gathered] : kGathered)
        if (theirs == column) at = table_.place(gathered);
    return at < row_.cells.size() ? row_.cells[at] : "";
  }
  double number(std::string_view column) const {
    return parse_number<double>(cell(column)).value_or(1);
  }
  void set(const std::string& column, const std::string& value) { cells_[column] = value; }
  void set_count(const std::string& column, double value) {
    set(column, fmt::format("{:.0f}", value));
  }

  void read_other(const OtherTable& other) {
    const std::string name = whole("case");
    set("id", fmt::format("line {}{}{}", row_.line, name.empty() ? "" : ": ", name));
    set("unsupported", std::string(other.reason));
  }

  void read_bridge() {
    const std::string model = cell("Model"), system = cell("System"), gpus = cell("#-GPUs");
    set("id", fmt::format("line {}: {} on {} {}, {}{}", row_.line, model, gpus, system,
                          whole("Precision").empty() ? "FP8" : whole("Precision"),
                          cell("task").starts_with("SFT") ? ", SFT" : ""));
    set("source", "Megatron-Bridge " + cell("release"));
    const auto* llama = std::ranges::find(kLlamas, model, &Llama::bridge);
    const auto* mixture = std::ranges::find(kMixtures, model, &Mixture::bridge);
    if (llama == std::end(kLlamas) && mixture == std::end(kMixtures))
      return set("unsupported", fmt::format("{} is not a model that is shipped", model));
    if (cell("task").starts_with("LoRA")) return set("unsupported", "adapters alone are trained");
    const std::string gpu = lower(system.substr(system.find('-') + 1));
    const double count = number("#-GPUs"), tp = number("TP"), pp = number("PP"), cp = number("CP");
    const double width = count / (tp * pp * cp), batch = number("GBS"), micro = number("MBS");
    const Degrees degrees{tp, pp, cp, number("VP"), width, micro, batch / width / micro};
    if (mixture != std::end(kMixtures)) {
      write_mixture(*mixture, gpu, count, degrees, number("EP"));
      write_recipe(mixture->model, degrees);
    } else {
      write_llama(*llama, gpu, count, degrees);
    }
    if (number("FSDP") > 1) {
      set("shard", "weights");
      set_count("shard_group", number("FSDP"));
    }
    set("seq", cell("Sequence Length"));
    const std::string precision = precision_of(whole("Precision"));
    set("precision", precision);
    if (precision == "mxfp8" && whole_graphs_)
      set("precision_json", R"({"base": "mxfp8", "attention": "fp8", "linear_weights": "narrow"})");
    const double tokens = number("Tokens / sec / GPU") * count;
    set("iteration_s", fmt::format("{:.6g}", batch * number("Sequence Length") / tokens));
  }

  void read_mlperf() {
    set("id", cell("id"));
    set("source", "mlcommons training_results_v6.0");
    const auto* llama = std::ranges::find(kLlamas, cell("benchmark"), &Llama::mlperf);
    const auto* mixture = std::ranges::find(kMixtures, cell("benchmark"), &Mixture::mlperf);
    if (llama == std::end(kLlamas) && mixture == std::end(kMixtures))
      return set("unsupported",
                 fmt::format("{} is not a model that is shipped", cell("benchmark")));
    const Degrees degrees{number("tp"), number("pp"),         number("cp"),          number("vp"),
                          number("dp"), number("microbatch"), number("microbatches")};
    const std::string precision = whole("precision");
    if (mixture != std::end(kMixtures)) {
      write_mixture(*mixture, lower(cell("gpu")), number("gpus"), degrees, number("ep"));
      set("expert_overlap",
          whole("overlap").find("combined 1F1B") != std::string::npos ? "1" : "0");
    } else {
      write_llama(*llama, lower(cell("gpu")), number("gpus"), degrees);
      set_count("vocab", llama->mlperf_vocab);
    }
    set("seq", cell("seq"));
    set("precision", precision_of(precision));
    if (precision.find("FP8 attention") != std::string::npos)
      set("precision_json",
          fmt::format(
              R"({{"base": "{}", "attention": "fp8", "linear_weights": "narrow"{}}})",
              precision_of(precision),
              precision.find("LM head MXFP8") != std::string::npos ? R"(, "head": "mxfp8")" : ""));
    set("iteration_s", cell("iteration_s"));
    if (precision.starts_with("NVFP4")) set("tp_overlap", "0");
    set("flags", whole("overlap"));  // where they say that steps run as CUDA graphs
  }

  struct Degrees {
    double tp, pp, cp, chunks, width, microbatch, microbatches;
  };
  /// Writes what Bridge's pages leave out, as its recipes had it (scripts/performance/configs;
  /// of DeepSeek-V3 at f0e2c37 until release 26.04 and at 0426418 later, of Qwen3 at f29a269 and
  /// 01b2977, of GPT-OSS at 07eea52): whether passes of chunks run together
  /// (moe_a2a_overlap), what is recomputed, and whether the dispatcher goes once to each node
  /// (flex) or not.
  void write_recipe(std::string_view model, const Degrees& d) {
    const std::string system = whole("System");
    const bool later = whole("release").substr(0, 5) >= "26.06";
    const bool rack = system == "DGX-GB200" || system == "DGX-GB300";
    bool overlaps = false;
    if (model == "deepseek-v3-671b") {
      const bool wide = system == "DGX-B200" && d.chunks == 2;
      whole_graphs_ = later && (rack || system == "DGX-B300");
      overlaps = whole_graphs_ || wide;
      if (wide || system == "DGX-H100")
        set("recompute_modules", "mla_up_proj, mlp");
      else if (!whole_graphs_ || system != "DGX-GB300")
        set("recompute_modules", "mla_up_proj");
    } else if (model == "gpt-oss-120b") {
      whole_graphs_ = overlaps = rack && precision_of(whole("Precision")) == "mxfp8";
      if (!overlaps) set("expert_exchange", "all-to-all");
    } else if (model == "qwen3-235b-a22b") {
      overlaps = later || !rack;  // later recipes of racks are not known
      if (system == "DGX-B200") overlaps = false;
      if (!rack) set("expert_exchange", "all-to-all");
    }
    if (whole_graphs_) set("flags", "whole-iteration CUDA graph");
    set("expert_overlap", overlaps && (d.chunks > 1 || d.pp == 1) ? "1" : "0");
  }

  /// Writes a job of a mixture whose tokens go once to each node and whose passes run together.
  void write_mixture(const Mixture& mixture, const std::string& gpu, double gpus, const Degrees& d,
                     double ep) {
    write_job(gpu, gpus, d);
    set("base_model", std::string(mixture.model));
    if (mixture.model == "deepseek-v3-671b") {
      set("mtp", "1");
      set("tp_overlap", "0");  // its recipe sets tp_comm_overlap=False (recipes/deepseek)
    }
    set("stack", "nemo");
    set_count("ep", ep);
    set("expert_exchange", "once-per-node");
    set("expert_overlap", d.chunks > 1 ? "1" : "0");
    const int chunks = static_cast<int>(d.pp * std::max(1.0, d.chunks));
    const std::string ends = split_with_ends(mixture.layers, chunks);
    if (mixture.layers % chunks != 0)
      set("split", ends.empty() ? split_from_front(mixture.layers, chunks) : ends);
  }

  void write_llama(const Llama& llama, const std::string& gpu, double gpus, const Degrees& d) {
    write_job(gpu, gpus, d);
    set("model", std::string(llama.bridge));
    set("family", "llama");
    set_count("layers", llama.layers);
    set_count("hidden", llama.hidden);
    set_count("heads", llama.heads);
    set("kv_heads", "8");
    set_count("intermediate", llama.intermediate);
    set("tied", "0");
    set("vocab", "128256");
    set("split", split_with_ends(llama.layers, static_cast<int>(d.pp * d.chunks)));
  }

  void write_job(const std::string& gpu, double gpus, const Degrees& d) {
    set("gpu", gpu);
    set_count("nodes", std::max(1.0, std::ceil(gpus / 8)));  // of racks: as the degrees say
    set_count("dp", d.width);
    set_count("tp", d.tp);
    set_count("cp", d.cp);
    set_count("pp", d.pp);
    if (d.chunks > 1) set_count("chunks", d.chunks);
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
  std::map<std::string, std::string> cells_;
  bool whole_graphs_ = false;  ///< a recipe with a CUDA graph of whole iterations, fp8 attention
};

/// A row of microseconds by device, each list in one cell.
class OpTimesRow {
 public:
  OpTimesRow(const CsvTable& table, const CsvTable::Row& row, const std::string& origin,
             std::vector<Diagnostic>& wrong)
      : table_(table), row_(row), origin_(origin), wrong_(wrong) {}

  std::vector<std::string> cells() {
    const std::vector<double> f = sum_of({"f_us", "input_f_us"});
    const std::vector<double> b = sum_of({"b_us", "s_us", "input_b_us", "comm_us"});
    if (b.empty() && !f.empty()) refuse("b_us");
    return {cell("id"),
            cell("model"),
            cell("pp"),
            cell("iteration_s"),
            f.empty() ? "" : scenario(f, b),
            f.empty() ? "no times of ops" : ""};
  }

 private:
  std::string cell(std::string_view column) const {
    const std::size_t at = table_.place(column);
    return at < row_.cells.size() ? row_.cells[at] : "";
  }
  double stages() const { return parse_number<double>(cell("pp")).value_or(0); }

  /// Returns the microseconds of each device over these columns; a single number is of every
  /// device.
  std::vector<double> sum_of(std::initializer_list<const char*> columns) {
    std::vector<double> sum;
    for (const char* column : columns) {
      std::vector<double> values;
      std::istringstream words(cell(column));
      for (std::string word; words >> word;) {
        const auto value = parse_number<double>(word);
        if (!value || *value < 0 || *value > kMostMicroseconds) return refuse(column);
        values.push_back(*value);
      }
      if (values.empty() && sum.empty()) return {};
      if (values.size() == 1) values.assign(sum.size(), values.front());
      if (sum.empty()) sum.assign(values.size(), 0);
      if (static_cast<double>(sum.size()) != stages()) return refuse(column);
      if (!values.empty() && values.size() != sum.size()) return refuse(column);
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
    return sum;
  }
  std::vector<double> refuse(const char* column) {
    wrong_.push_back({{origin_, row_.line, 0},
                      fmt::format("'{}': must be a time in us for each of the {} stages of 'pp'",
                                  column, cell("pp")),
                      "",
                      1});
    return {};
  }

  std::string scenario(const std::vector<double>& f, const std::vector<double>& b) const {
    const auto list = [](const std::vector<double>& us) {
      Json out = Json::array();
      for (const double time : us) out.push_back(fmt::format("{} us", time));
      return out;
    };
    Json json;
    json["name"] = cell("id");
    json["model"] = {{"forward", list(f)}, {"backward", list(b)}};
    json["cluster"] = {{"devices", f.size()}};
    json["schedule"] = "1f1b";
    json["pipeline"] = {
        {"stages", f.size()},
        {"microbatches", parse_number<std::int64_t>(cell("microbatches")).value_or(0)}};
    return json.dump();
  }

  static constexpr double kMostMicroseconds = 1e12;
  const CsvTable& table_;
  const CsvTable::Row& row_;
  const std::string& origin_;
  std::vector<Diagnostic>& wrong_;
};

}  // namespace

bool is_summary(const std::vector<std::string>& columns) {
  const OtherTable* other = other_table(columns);
  return has_all(columns, {"Tokens / sec / GPU"}) || has_all(columns, {"tokens_per_sec_per_gpu"}) ||
         has_all(columns, {"benchmark", "vp", "iteration_s"}) ||
         (other != nullptr && other->of_runs);
}

std::string why_no_runs(const std::string& text) {
  const std::string start = text.substr(0, kMarkedStart);
  if (start.find("\"sys_name\"") != std::string::npos && start.find('{') == 0)
    return "a configuration of SimuMax: what kernels of one system reach, no runs";
  if (start.find("\"deviceProperties\"") != std::string::npos)
    return "a trace of a profiler: kernels of one process, no runs";
  const OtherTable* other = other_table(csv_cells(text.substr(0, text.find('\n'))));
  return other == nullptr || other->of_runs ? "" : std::string(other->reason);
}

CsvTable summary_as_runs(const CsvTable& table) {
  static constexpr const char* kColumns[] = {"id",
                                             "source",
                                             "unsupported",
                                             "model",
                                             "base_model",
                                             "stack",
                                             "ep",
                                             "expert_exchange",
                                             "expert_overlap",
                                             "mtp",
                                             "precision_json",
                                             "recompute_modules",
                                             "family",
                                             "layers",
                                             "hidden",
                                             "heads",
                                             "kv_heads",
                                             "intermediate",
                                             "vocab",
                                             "tied",
                                             "seq",
                                             "gpu",
                                             "nodes",
                                             "dp",
                                             "tp",
                                             "cp",
                                             "pp",
                                             "chunks",
                                             "split",
                                             "microbatch",
                                             "microbatches",
                                             "schedule",
                                             "zero",
                                             "shard",
                                             "shard_group",
                                             "flags",
                                             "sequence_parallel",
                                             "tp_overlap",
                                             "overlap_grad_reduce",
                                             "grad_bytes",
                                             "precision",
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

bool has_op_times(const std::vector<std::string>& columns) {
  return has_all(columns, {"f_us", "b_us", "pp", "microbatches", "iteration_s"});
}

CsvTable op_times_as_runs(const CsvTable& table, const std::string& origin) {
  CsvTable runs;
  for (const char* column : {"id", "model", "pp", "iteration_s", "scenario_json", "left_out"})
    runs.columns.emplace_back(column);
  if (!has_op_times(table.columns))
    throw InputError(origin, "has no op times: a table with them has the columns f_us and b_us");
  std::vector<Diagnostic> wrong;
  for (const CsvTable::Row& row : table.rows) {
    OpTimesRow times(table, row, origin, wrong);
    CsvTable::Row run = row;
    run.cells = times.cells();
    runs.rows.push_back(std::move(run));
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
  return runs;
}

}  // namespace penstock
