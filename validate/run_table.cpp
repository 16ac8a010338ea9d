// SPDX-License-Identifier: Apache-2.0
#include "validate/run_table.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "validate/published_summaries.hpp"
#include "validate/simumax.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <map>

namespace penstock {
namespace {

constexpr const char* kNeededColumns[] = {"layers", "hidden", "heads",      "vocab",       "seq",
                                          "dp",     "tp",     "microbatch", "microbatches"};

constexpr const char* kOtherColumns[] = {"id",
                                         "model",
                                         "family",
                                         "base_model",
                                         "experts",
                                         "topk",
                                         "moe_intermediate",
                                         "ep",
                                         "etp",
                                         "mtp",
                                         "dense_layers",
                                         "expert_exchange",
                                         "expert_overlap",
                                         "kv_heads",
                                         "intermediate",
                                         "tied",
                                         "flash",
                                         "precision",
                                         "precision_json",
                                         "grad_bytes",
                                         "bytes_json",
                                         "gpu",
                                         "cluster_json",
                                         "nodes",
                                         "cp",
                                         "context_exchange",
                                         "pp",
                                         "zero",
                                         "tp_mode",
                                         "schedule",
                                         "sequence_parallel",
                                         "transfers",
                                         "chunks",
                                         "recompute",
                                         "recompute_modules",
                                         "split",
                                         "reduction",
                                         "overlap_grad_reduce",
                                         "overlap_param_gather",
                                         "shard",
                                         "shard_group",
                                         "tp_overlap",
                                         "stack",
                                         "stack_as_run",
                                         "source",
                                         "flags",
                                         "iteration_s",
                                         "samples_per_s",
                                         "tflops_per_gpu",
                                         "tflops_attention",
                                         "peak_gib",
                                         "peak_of",
                                         "finished",
                                         "class",
                                         "left_out",
                                         "unsupported",
                                         "scenario_json",
                                         "note"};

bool is_known(std::string_view column) {
  const auto is = [&](std::string_view name) { return name == column; };
  return std::ranges::any_of(kNeededColumns, is) || std::ranges::any_of(kOtherColumns, is);
}

constexpr double kMostOfCell = 1e9;    // no time in seconds, rate or number of bytes in GiB is more
constexpr double kLeastOfCell = 1e-9;  // nor is any less that is one

struct GpuCluster {
  std::string_view gpu, cluster, device;
};
constexpr GpuCluster kClusters[] = {
    {"h100", "dgx-h100", "H100"},          {"h200", "dgx-h200", "H200"},
    {"a100", "dgx-a100", "A100-80"},       {"a100-80", "dgx-a100", "A100-80"},
    {"a100-40", "dgx-a100-40", "A100-40"}, {"b200", "dgx-b200", "B200"},
    {"gb200", "gb200-nvl72", "GB200"},     {"b300", "dgx-b300", "B300"},
    {"gb300", "gb300-nvl72", "GB300"}};

/// Which stack (models/stacks) made the runs of a source, and whether its tensor parallelism
/// divides sequences, too, where no column says it.
struct SourceStack {
  std::string_view source, stack;
  bool sequence_parallel = false;
  bool narrow_parameters = false;  ///< its recipes of 8 bits gather weights in them
  /// What its own GPUs reach, where it measured that; empty: as others of their kind.
  std::string_view device{};
};
/// SimuMax's machine (github.com/MooreThreads/SimuMax, Apache-2.0, configs/system/
/// b200_bf16_ceperm.json), by scripts/device_efficiency.py: of 514 matrix products those above 1
/// TFLOP, mean, where others measured 66 %; attention (fused, heads of 128, 16 to 128 of them,
/// forward and backward) by half, as it counts FLOPs that a mask leaves out.
constexpr std::string_view kSimumaxB200 =
    R"({"base": "b200", "matrix_efficiency": "48.2%", "attention_efficiency": "39.8%"})";
constexpr SourceStack kSourceStacks[] = {
    {"nanotron", "nanotron", true},
    {"bigscience", "megatron-deepspeed"},
    {"vTrain", "megatron-deepspeed"},
    {"Megatron-Bridge", "nemo", true, true},
    {"SimuMax", "megatron-b200-node", false, false, kSimumaxB200},
    {"dgxc-benchmarking", "nemo", true, true},
    {"training_results_v", "nemo", true, true},
    {"pytorch/torchtitan", "torchtitan"},
    {"llm-foundry", "llm-foundry"}};

constexpr std::int64_t kNodeGpus = 8;  // of a DGX

/// GPUs of a rack that NVLinks join, and those that a job over several racks takes of each: 16 of
/// its 18 trays, which the logs of MLPerf Training 6.0 place together and by which jobs of 2,496 =
/// 39 x 64 GPUs divide. Full racks leave a last one nearly empty, whose few NICs every ring
/// crosses.
constexpr std::int64_t kRackGpus = 72, kJobOfRack = 64;

/// Returns a text as YAML; whatever is in a cell, it stays one value.
std::string yaml_scalar(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, plain) ? text : Json(text).dump();
}

/// Makes the scenario and the measured values of one row.
class RowReader {
 public:
  RowReader(const CsvTable& table, const CsvTable::Row& row, const std::string& origin,
            std::vector<Diagnostic>& wrong)
      : table_(table), row_(row), origin_(origin), wrong_(wrong) {}

  RunRow read() {
    RunRow run;
    run.line = row_.line;
    run.id = has("id") ? cell("id") : fmt::format("line {}", row_.line);
    run.row_class = cell("class");
    run.model = cell("model");
    run.note = cell("note");
    run.unsupported = !has("left_out") && has("unsupported");
    run.left_out = cell(run.unsupported ? "unsupported" : "left_out");
    if (!run.left_out.empty()) return run;
    run.pipeline_depth = static_cast<int>(number("pp").value_or(1));
    run.measured_s = measured_time();
    if (!run.measured_s) run.measured_tflops = rate("tflops_per_gpu");
    run.attention_by_half = counts_by_half();
    constexpr double kGib = 1024.0 * 1024 * 1024;
    if (const auto gib = number("peak_gib")) run.measured_bytes = *gib * kGib;
    if (const auto finished = number("finished")) run.finished = *finished != 0;
    const std::string of = cell("peak_of");
    if (of.find("stage 0") != std::string::npos) run.peak_of = PeakOf::first_stage;
    run.of_whole_gpu = of.find("nvidia-smi") != std::string::npos || of.starts_with("GPU");
    if (has("scenario_json"))
      text_ = map_in("scenario_json").dump(1) + "\n";
    else
      write_scenario(run.id);
    run.scenario = std::move(text_);
    return run;
  }

 private:
  std::string cell(std::string_view column) const {
    assert(is_known(column));
    const std::size_t at = table_.place(column);
    return at < row_.cells.size() ? row_.cells[at] : "";
  }
  bool has(std::string_view column) const { return !cell(column).empty(); }

  void refuse(std::string_view column, const std::string& why) {
    wrong_.push_back({{origin_, row_.line, 0}, fmt::format("'{}': {}", column, why), "", 1});
  }

  std::optional<double> number(std::string_view column) {
    if (!has(column)) return std::nullopt;
    const auto value = parse_number<double>(cell(column));
    if (!value || !(*value >= 0 && *value <= kMostOfCell)) {
      refuse(column,
             fmt::format("must be a number from 0 to {:g}, got '{}'", kMostOfCell, cell(column)));
      return std::nullopt;
    }
    if (*value != 0 && *value < kLeastOfCell)
      refuse(column,
             fmt::format("must be 0 or at least {:g}, got '{}'", kLeastOfCell, cell(column)));
    return value;
  }
  /// Returns the number of a column; none where it is 0.
  std::optional<double> rate(std::string_view column) {
    const auto value = number(column);
    return value && *value > 0 ? value : std::nullopt;
  }
  /// Returns whether a stated rate counts attention as a causal mask leaves it.
  bool counts_by_half() {
    const std::string counted = cell("tflops_attention");
    if (!counted.empty() && counted != "full" && counted != "half")
      refuse("tflops_attention", "must be full or half");
    return counted == "half";
  }
  Json map_in(std::string_view column) {
    const auto given = Json::parse_if(cell(column));
    if (given && given->is_object()) return *given;
    refuse(column, "must be a map");
    return Json::object();
  }
  bool yes(std::string_view column) { return number(column).value_or(0) != 0; }

  /// Returns the seconds of an iteration; of `samples_per_s` those of all its samples.
  std::optional<double> measured_time() {
    if (const auto time = number("iteration_s")) return time;
    const auto per_s = rate("samples_per_s");
    if (!per_s) return std::nullopt;
    return number("dp").value_or(1) * number("microbatch").value_or(1) *
           number("microbatches").value_or(1) / *per_s;
  }

  void write(std::string_view key, const std::string& value) {
    text_ += fmt::format("{}: {}\n", key, yaml_scalar(value));
  }
  /// Writes a key of a section, where the column says something.
  void write_column(std::string_view key, std::string_view column) {
    if (has(column)) write(fmt::format("  {}", key), cell(column));
  }

  void write_scenario(const std::string& id) {
    write("name", id);
    write_model();
    write_cluster();
    write_stack();
    write("schedule", has("schedule") ? cell("schedule") : "1f1b");
    if (has("transfers")) write("transfers", cell("transfers"));
    write_pipeline();
  }

  /// Returns the family, "llama" of "llama-1.34b" where no column says it; mixtures of experts are
  /// made of gated MLPs.
  std::string family() const {
    if (cell("family") == "moe") return "llama";
    if (has("family")) return cell("family");
    for (const char* known : {"llama", "bert"})
      if (cell("model").starts_with(known)) return known;
    return "gpt";
  }

  void write_model() {
    text_ += "model:\n";
    if (has("base_model")) {
      write_column("base", "base_model");
      write_column("num_layers", "layers");
      write_column("first_dense_layers", "dense_layers");
    } else {
      write_shape();
    }
    write_column("seq_length", "seq");
    write_column("mtp_layers", "mtp");
    if (has("flash")) write("  flash_attention", yes("flash") ? "true" : "false");
    const bool narrow = cell("precision").starts_with("fp8") || cell("precision") == "mxfp8";
    if (has("precision_json"))
      text_ += fmt::format("  precision: {}\n", map_in("precision_json").dump());
    else if (narrow && source_stack() != nullptr && source_stack()->narrow_parameters)
      text_ += fmt::format("  precision: {{base: {}, linear_weights: narrow}}\n",
                           yaml_scalar(cell("precision")));
    else
      write_column("precision", "precision");
    if (has("grad_bytes"))
      text_ += fmt::format("  bytes_per_parameter: {{gradients: {}}}\n",
                           yaml_scalar(cell("grad_bytes")));
    if (has("bytes_json"))
      text_ += fmt::format("  bytes_per_parameter: {}\n", map_in("bytes_json").dump());
  }

  void write_shape() {
    write_column("name", "model");
    write("  family", family());
    write_column("num_layers", "layers");
    write_column("hidden_size", "hidden");
    write_column("num_attention_heads", "heads");
    write_column("num_query_groups", "kv_heads");
    write_column("ffn_hidden_size", "intermediate");
    write_column("vocab_size", "vocab");
    if (has("tied")) write("  tie_embeddings", yes("tied") ? "true" : "false");
    write_column("num_experts", "experts");
    write_column("experts_per_token", "topk");
    write_column("expert_ffn_hidden_size", "moe_intermediate");
  }

  void write_cluster() {
    Json cluster = Json::object();
    const auto* known = std::ranges::find(kClusters, cell("gpu"), &GpuCluster::gpu);
    if (has("cluster_json")) {
      cluster = map_in("cluster_json");
      // A cluster may be the nearest one that was known; which GPU it was is said by itself.
      if (known != std::end(kClusters) && !cluster.contains("device"))
        cluster["device"] = known->device;
    } else {
      if (known == std::end(kClusters)) {
        refuse("gpu",
               fmt::format("no cluster is known for '{}'; give 'cluster_json'", cell("gpu")));
        return;
      }
      cluster["base"] = known->cluster;
      if (known->cluster.ends_with("nvl72")) write_racks(cluster);
    }
    const SourceStack* source = source_stack();
    const bool by_name = !cluster.contains("device") || cluster["device"].is_string();
    if (source != nullptr && !source->device.empty() && by_name)
      cluster["device"] = Json::parse(source->device);
    if (const auto nodes = number("nodes"); nodes && !cluster.contains("nodes"))
      cluster["nodes"] = static_cast<std::int64_t>(*nodes);
    text_ += fmt::format("cluster: {}\n", cluster.dump());
  }

  /// Writes the racks of a job, whose column `nodes` may count trays.
  void write_racks(Json& cluster) {
    double gpus = 1;
    for (const char* degree : {"dp", "tp", "cp", "pp"}) gpus *= number(degree).value_or(1);
    const auto count = static_cast<std::int64_t>(std::min(gpus, kMostOfCell));
    const bool part = count > kRackGpus && count % kJobOfRack == 0;
    const std::int64_t of_each = part ? kJobOfRack : kRackGpus;
    if (part) {
      cluster["devices_per_node"] = of_each;
      cluster["inter"]["nics"] = of_each;
    }
    cluster["nodes"] = std::max<std::int64_t>(1, (count + of_each - 1) / of_each);
  }

  void write_stack() {
    const std::string switches = switches_of_stack();
    if (switches.empty()) return write("stack", stack());
    text_ += fmt::format("stack: {{base: {}{}}}\n", yaml_scalar(stack()), switches);
  }

  /// Returns what the row's notes say of the software: kernels that are launched as CUDA graphs, of
  /// each layer or of the whole step, and a loss that is fused.
  std::string switches_of_stack() const {
    const auto noted = [&](std::string_view words) {
      return cell("flags").find(words) != std::string::npos;
    };
    return std::string(noted("CUDA graph") ? ", cuda_graphs: true" : "") +
           (noted("fused cross entropy") ? ", cross_entropy: fused" : "");
  }

  std::string stack() const {
    if (has("stack")) return cell("stack");
    const SourceStack* known = source_stack();
    const bool eager = cell("stack_as_run").find("eager") != std::string::npos;
    const bool apart = eager && known != nullptr && known->stack == "torchtitan";
    return known == nullptr ? "none" : std::string(known->stack) + (apart ? "-eager" : "");
  }

  const SourceStack* source_stack() const {
    const std::string source = cell("source");
    const auto* known = std::ranges::find_if(kSourceStacks, [&](const SourceStack& s) {
      return source.find(s.source) != std::string::npos;
    });
    return known == std::end(kSourceStacks) ? nullptr : known;
  }

  bool sequence_parallel() {
    if (number("tp").value_or(1) <= 1) return false;
    if (has("tp_mode")) return cell("tp_mode") == "REDUCE_SCATTER";
    if (has("sequence_parallel")) return yes("sequence_parallel");
    return source_stack() != nullptr && source_stack()->sequence_parallel;
  }

  void write_pipeline() {
    text_ += "pipeline:\n";
    if (has("pp"))
      write_column("stages", "pp");
    else
      write("  stages", "1");
    write_column("chunks", "chunks");
    write_column("width", "dp");
    write_column("tensor", "tp");
    write_column("context", "cp");
    write_column("context_exchange", "context_exchange");
    write_column("expert", "ep");
    // Recipes of today divide no expert. Megatron Core divided all as it divides other layers
    // before its release 0.10 (its CHANGELOG: "MoE Parallel Folding"), which NeMo 24 is older than.
    const bool folds = !has("experts") || cell("stack_as_run").find("NeMo 24") == std::string::npos;
    if (has("ep") || has("etp"))
      write("  expert_tensor", has("etp") ? cell("etp") : folds ? "1" : cell("tp"));
    write_column("expert_exchange", "expert_exchange");
    if (yes("expert_overlap")) write("  expert_overlap", "true");
    if (sequence_parallel()) write("  sequence_parallel", "true");
    if (sequence_parallel() && yes("tp_overlap")) write("  tensor_overlap", "true");
    write_column("microbatch_size", "microbatch");
    write_column("microbatches", "microbatches");
    write_recompute();
    if (number("dp").value_or(1) * number("cp").value_or(1) > 1) write_sharding();
    if (has("split")) write_split();
    // By its formula: rings of hundreds of replicas, flow by flow, would take hours over a table.
    if (number("dp").value_or(1) > 1)
      text_ += fmt::format("  reduction: {{algorithm: {}{}{}}}\n",
                           has("reduction") ? yaml_scalar(cell("reduction")) : "formula", overlap(),
                           gathers_late() ? ", gather: first-forward" : "");
  }

  /// Writes what replicas divide: as `shard` says, or else as the stage of ZeRO does.
  void write_sharding() {
    if (!has("shard")) {
      if (yes("zero")) write("  distributed_optimizer", "true");
      return;
    }
    write_column("shard", "shard");
    if (cell("shard") != "none") write_column("shard_group", "shard_group");
  }
  bool gathers_late() {
    const bool alone =
        has("shard") ? cell("shard") == "optimizer" || cell("shard") == "gradients" : yes("zero");
    return alone && yes("overlap_param_gather");
  }

  /// Returns the key of overlap: Megatron-LM overlaps only where it was told to; what others do
  /// their stacks say.
  std::string overlap() {
    const SourceStack* known = source_stack();
    const bool megatron = known != nullptr && known->stack != "megatron-deepspeed" &&
                          (known->stack.starts_with("megatron") || known->stack == "nemo");
    if (!has("overlap_grad_reduce") && (has("stack") || !megatron)) return "";
    return fmt::format(", overlap: {}", yes("overlap_grad_reduce") ? "backward" : "none");
  }

  /// Torchtitan's selective forms are no column of public tables but words beside them.
  void write_recompute() {
    const bool by_op = cell("flags").find("selective (by op)") != std::string::npos;
    const std::string modules = by_op ? "every_second_product" : cell("recompute_modules");
    if (modules.empty()) return write_column("recompute", "recompute");
    text_ += fmt::format("  recompute: selective\n  recompute_modules: [{}]\n", modules);
  }

  /// Writes 3/2/0 as [3, 2, 0].
  void write_split() {
    std::string list = cell("split");
    for (std::size_t at = 0; (at = list.find('/', at)) != std::string::npos; at += 2)
      list.replace(at, 1, ", ");
    if (list.find_first_not_of("0123456789, ") != std::string::npos)
      return refuse("split",
                    fmt::format("must be layers by stage such as 3/2/2, got '{}'", cell("split")));
    text_ += fmt::format("  split: [{}]\n", list);
  }

  const CsvTable& table_;
  const CsvTable::Row& row_;
  const std::string& origin_;
  std::vector<Diagnostic>& wrong_;
  std::string text_;
};

bool holds(const std::vector<std::string>& columns, std::string_view name) {
  return std::ranges::find(columns, name) != columns.end();
}

/// vTrain's columns (Bang et al., MICRO'24), and what they are here.
struct VtrainColumn {
  std::string_view theirs, ours;
};
constexpr VtrainColumn kVtrainColumns[] = {{"# GPUs", "gpus"},
                                           {"global batch", "batch"},
                                           {"micro batch", "microbatch"},
                                           {"hidden size", "hidden"},
                                           {"attention heads", "heads"},
                                           {"# layers", "layers"},
                                           {"sequence length", "seq"},
                                           {"tensor parallelism", "tp"},
                                           {"data parallelism", "dp"},
                                           {"pipeline parallelism", "pp"},
                                           {"iteration time (ms)", "iteration_ms"}};

/// What is the same in all of its rows: GPT with GPT-2's vocabulary, on DGX A100 with 800 Gbit/s.
constexpr VtrainColumn kOfVtrain[] = {
    {"50257", "vocab"},
    {"mixed-fp16", "precision"},
    {"2", "grad_bytes"},
    {"full", "recompute"},
    {R"({"base":"dgx-a100","inter":{"nics":4}})", "cluster_json"}};

/// Adds to a row of vTrain's what its columns do not say, and to `wrong` what is wrong with it.
void complete_vtrain_row(const CsvTable& table, const std::string& origin, CsvTable::Row& row,
                         std::vector<Diagnostic>& wrong) {
  constexpr double kMost = 1 << 24;
  const auto refuse = [&](const std::string& why) {
    wrong.push_back({{origin, row.line, 0}, why, "", 1});
  };
  std::map<std::string_view, std::int64_t> count;
  for (const auto& [theirs, ours] : kVtrainColumns) {
    const std::string& text = row.cells[table.place(ours)];
    const auto value = parse_number<double>(text);
    const bool whole = value && *value >= 1 && *value <= kMost && *value == std::floor(*value);
    if (ours == "iteration_ms" && (!value || *value <= 0))
      refuse(fmt::format("'{}' must be a number of milliseconds > 0, got '{}'", theirs, text));
    else if (ours != "iteration_ms" && !whole)
      refuse(fmt::format("'{}' must be an integer from 1 to {}, got '{}'", theirs, kMost, text));
    else
      count[ours] = static_cast<std::int64_t>(*value);
  }
  if (count.size() < std::size(kVtrainColumns)) return;
  const std::int64_t gpus = count["gpus"], samples = count["microbatch"] * count["dp"];
  if (count["tp"] * count["dp"] * count["pp"] != gpus)
    refuse(fmt::format("tensor x data x pipeline parallelism is {}, not the {} GPUs of the row",
                       count["tp"] * count["dp"] * count["pp"], gpus));
  if (count["batch"] % samples != 0)
    refuse(fmt::format("the global batch must be a multiple of micro batch x data parallelism, {}",
                       samples));
  const std::int64_t microbatches = count["batch"] / samples;
  const double milliseconds = *parse_number<double>(row.cells[table.place("iteration_ms")]);
  row.cells.push_back(fmt::format("line {}: {} GPUs, h {}, {} layers, b {}, t {}, d {}, p {}, m {}",
                                  row.line, gpus, count["hidden"], count["layers"],
                                  count["microbatch"], count["tp"], count["dp"], count["pp"],
                                  microbatches));
  row.cells.push_back(std::to_string(microbatches));
  row.cells.push_back(std::to_string((gpus + kNodeGpus - 1) / kNodeGpus));
  row.cells.push_back(gpus <= kNodeGpus ? "megatron-a100-node" : "megatron-a100-nodes");
  row.cells.push_back(fmt::format("{}", milliseconds / 1e3));
  for (const auto& [value, ours] : kOfVtrain) row.cells.emplace_back(value);
}

/// Returns vTrain's table with the columns of one of ours.
CsvTable vtrain_as_runs(CsvTable table, const std::string& origin) {
  std::vector<Diagnostic> wrong;
  for (const auto& [theirs, ours] : kVtrainColumns) {
    const std::size_t at = table.place(theirs);
    if (at == table.columns.size())
      wrong.push_back({{origin, 1, 1},
                       fmt::format("column '{}' is missing{}", theirs,
                                   did_you_mean(std::string(theirs), table.columns)),
                       "",
                       1});
    else
      table.columns[at] = ours;
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
  for (CsvTable::Row& row : table.rows) complete_vtrain_row(table, origin, row, wrong);
  if (!wrong.empty()) throw InputError(std::move(wrong));
  for (const char* name : {"id", "microbatches", "nodes", "stack", "iteration_s"})
    table.columns.emplace_back(name);
  for (const auto& [value, ours] : kOfVtrain) table.columns.emplace_back(ours);
  return table;
}

bool is_vtrain(const std::vector<std::string>& columns) {
  return holds(columns, "iteration time (ms)");
}

void require_columns(const CsvTable& table, const std::string& text, const std::string& origin) {
  if (holds(table.columns, "scenario_json")) return;
  if (const std::string other = why_no_runs(text); !other.empty())
    throw InputError(origin, "holds " + other);
  std::vector<Diagnostic> wrong;
  for (const char* name : kNeededColumns)
    if (!holds(table.columns, name))
      wrong.push_back({{origin, 1, 1}, fmt::format("column '{}' is missing", name), "", 1});
  if (!holds(table.columns, "gpu") && !holds(table.columns, "cluster_json"))
    wrong.push_back({{origin, 1, 1}, "column 'gpu' (or 'cluster_json') is missing", "", 1});
  if (!wrong.empty()) throw InputError(std::move(wrong));
}

}  // namespace

bool is_run_table(const std::vector<std::string>& columns) {
  constexpr std::ptrdiff_t kMisspelt = 2;  // columns at most: the reader names them
  const auto found =
      std::ranges::count_if(kNeededColumns, [&](const char* name) { return holds(columns, name); });
  return is_vtrain(columns) || is_summary(columns) || holds(columns, "scenario_json") ||
         found + kMisspelt >= std::ssize(kNeededColumns);
}

std::string unknown_columns(const std::string& text, const std::string& origin) {
  if (is_simumax(text)) return "";
  std::vector<std::string> known(std::begin(kNeededColumns), std::end(kNeededColumns));
  known.insert(known.end(), std::begin(kOtherColumns), std::end(kOtherColumns));
  const auto columns = parse_csv(text, origin).columns;
  if (is_summary(columns)) return "";
  std::vector<std::string> unknown;
  if (has_op_times(columns))
    known.insert(known.end(), std::begin(kOpTimeColumns), std::end(kOpTimeColumns));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string& column = columns[i];
    if (column.empty()) unknown.push_back(fmt::format("number {}, which has no name", i + 1));
    const bool theirs =
        is_vtrain(columns) && std::ranges::find(kVtrainColumns, column, &VtrainColumn::theirs) !=
                                  std::end(kVtrainColumns);
    if (column.empty() || theirs || holds(known, column)) continue;
    const std::string guess = nearest(column, known);
    unknown.push_back(fmt::format("'{}'", column) +
                      (guess.empty() || holds(columns, guess)
                           ? ""
                           : fmt::format(" (did you mean '{}'?)", guess)));
  }
  return fmt::format("{}", fmt::join(unknown, ", "));
}

std::vector<RunRow> parse_run_table(const std::string& text, const std::string& origin,
                                    bool op_times) {
  CsvTable table = is_simumax(text) ? simumax_as_runs(text, origin) : parse_csv(text, origin);
  if (is_vtrain(table.columns)) table = vtrain_as_runs(std::move(table), origin);
  if (is_summary(table.columns)) table = summary_as_runs(table);
  if (op_times) table = op_times_as_runs(table, origin);
  require_columns(table, text, origin);
  std::vector<RunRow> rows;
  std::vector<Diagnostic> wrong;
  for (const CsvTable::Row& row : table.rows)
    rows.push_back(RowReader(table, row, origin, wrong).read());
  if (!wrong.empty()) throw InputError(std::move(wrong));
  return rows;
}

}  // namespace penstock
