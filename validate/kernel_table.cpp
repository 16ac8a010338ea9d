// SPDX-License-Identifier: Apache-2.0
#include "validate/kernel_table.hpp"

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "models/kernels/kernel_times.hpp"
#include "scenarios/library.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

constexpr double kMostOfSide = 1e15;  // bytes; sides and counts are fewer
constexpr double kMicrosecond = 1e-6;

/// A row that cannot be predicted, and why.
struct NotPredicted {
  std::string reason;
};

class KernelCells {
 public:
  KernelCells(const CsvTable& table, const CsvTable::Row& row, const std::string& origin,
              std::vector<Diagnostic>& wrong)
      : table_(table), row_(row), origin_(origin), wrong_(wrong) {}

  std::string text(std::string_view column) const {
    const std::size_t at = table_.place(column);
    return at < row_.cells.size() ? row_.cells[at] : "";
  }
  std::string device() const {
    return lower_case(text(table_.place("gpu") < table_.columns.size() ? "gpu" : "device"));
  }
  /// Returns a number of at least `least`; 1, and a diagnostic, where the cell is none.
  double number(std::string_view column, double least = 1) {
    const auto value = parse_number<double>(text(column));
    if (value && *value >= least && *value <= kMostOfSide) return *value;
    wrong_.push_back({{origin_, row_.line, 0},
                      fmt::format("'{}': must be a number from {:g} to {:g}, got '{}'", column,
                                  least, kMostOfSide, text(column)),
                      "",
                      1});
    return 1;
  }
  double number_or(std::string_view column, double otherwise) {
    return text(column).empty() ? otherwise : number(column, 0);
  }
  /// Which of these words a cell is; the first, and a diagnostic, where it is none.
  std::size_t word(std::string_view column, const std::vector<std::string>& words) {
    const auto found = std::ranges::find(words, text(column));
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    wrong_.push_back(
        {{origin_, row_.line, 0},
         fmt::format("'{}': must be one of {}, got '{}'{}", column, fmt::join(words, ", "),
                     text(column), did_you_mean(text(column), words)),
         "",
         1});
    return 0;
  }

 private:
  const CsvTable& table_;
  const CsvTable::Row& row_;
  const std::string& origin_;
  std::vector<Diagnostic>& wrong_;
};

/// What a row says: its kernel in words, the group that its error counts in, the prediction.
struct KernelRow {
  std::string name, group;
  double predicted_s = 0;
};

/// Returns the types or ops that laws are of, each once.
template <class Laws, class Name>
std::string names_in_laws(const Laws& laws, const Name& name) {
  std::vector<std::string> names;
  for (const auto& law : laws)
    if (std::ranges::find(names, law.*name) == names.end()) names.push_back(law.*name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

double required(const std::optional<double>& seconds, const std::string& what,
                const std::string& has) {
  if (!seconds) throw NotPredicted{fmt::format("{} were not measured (measured: {})", what, has)};
  return *seconds;
}

KernelRow product_row(KernelCells& cells, const KernelTimes& times) {
  const std::string type = cells.text("dtype");
  const ProductShape p{cells.number("m"), cells.number("n"), cells.number("k")};
  double s =
      required(times.product_s(type, p), fmt::format("products of '{}' on {}", type, times.device),
               names_in_laws(times.products, &ProductLaw::type));
  if (type == "fp8")  // scaled by the tensor: its largest element is found, then it is cast
    s += times.stream_s("amax", 2 * p.m * p.k).value_or(0) +
         times.stream_s("cast_fp8", 3 * p.m * p.k).value_or(0);
  return {fmt::format("{} x {} x {}", p.m, p.n, p.k), type, s};
}

KernelRow experts_row(KernelCells& cells, const KernelTimes& times) {
  const std::string type = cells.text("dtype"), skew = cells.text("dist");
  ExpertsShape e{cells.number("tokens"), cells.number("hidden"),  cells.number("inter"),
                 cells.number("topk"),   cells.number("experts"), cells.number("gated", 0) != 0,
                 cells.number("tp"),     cells.number("ep")};
  e.skew = skew == "bal" ? 1 : 2;
  e.load = cells.number_or("load", 1);
  if (e.skew > 1 && e.ep > 1 && cells.text("load").empty())
    throw NotPredicted{
        "the column 'load', the rows of the GPU that has most of them over the "
        "mean, is empty where experts are not chosen evenly"};
  const double s =
      required(times.experts_s(type, e), fmt::format("experts of '{}' on {}", type, times.device),
               names_in_laws(times.experts, &ExpertsLaw::type));
  return {fmt::format("{} tokens, {} of {} experts of {} x {}, tp {} ep {} {}", e.tokens, e.topk,
                      e.experts, e.hidden, e.inter, e.tp, e.ep, skew),
          type, s};
}

KernelRow attention_row(KernelCells& cells, const KernelTimes& times) {
  const std::string type = cells.text("dtype"), kind_name = cells.text("kind");
  const auto kind = static_cast<AttentionKind>(cells.word("kind", {"causal", "full", "mla"}));
  const AttentionShape a{cells.number("batch"), cells.number("seq"), cells.number("heads"),
                         cells.number("kv_heads"), cells.number("head_dim")};
  std::string framework = cells.text("src");
  if (framework == "s") framework = "SGLang";
  if (framework == "v") framework = "vLLM";
  if (framework == "t") framework = "TensorRT-LLM";
  const double s =
      required(times.attention_s(kind, type, a, framework),
               fmt::format("{} attention of '{}' on {}", kind_name, type, times.device),
               names_in_laws(times.attention, &AttentionLaw::type));
  return {fmt::format("{} {} x {}, {} heads of {} kv {} {}", kind_name, a.batch, a.seq, a.heads,
                      a.head_dim, a.kv_heads, framework),
          fmt::format("{} {}", kind_name, type), s};
}

KernelRow collective_row(KernelCells& cells, const KernelTimes& times) {
  const std::string op = cells.text("op");
  const double ranks = cells.number("ranks"), bytes = cells.number("bytes");
  const double s = required(times.collective_s(op, ranks, bytes),
                            fmt::format("'{}' among {} GPUs {}", op, ranks, times.device),
                            names_in_laws(times.collectives, &KernelPoints::op));
  return {fmt::format("{} of {} bytes, {} GPUs", op, bytes, ranks), op, s};
}

KernelRow stream_row(KernelCells& cells, const KernelTimes& times) {
  const std::string op = cells.text("op");
  const double bytes = cells.number("bytes");
  if (std::ranges::find(times.collectives, op, &KernelPoints::op) != times.collectives.end())
    throw NotPredicted{
        fmt::format("'{}' is a collective, and there is no column 'ranks', its GPUs", op)};
  const double s = required(times.stream_s(op, bytes), fmt::format("'{}' on {}", op, times.device),
                            names_in_laws(times.streams, &KernelPoints::op));
  return {fmt::format("{} of {} bytes", op, bytes), op, s};
}

KernelRow unknown_row(KernelCells&, const KernelTimes&) {
  throw NotPredicted{"kernel times have nothing of this kernel"};
}

/// A table, by the columns that it needs beside `gpu`.
struct KernelTable {
  const char* what;
  std::vector<std::string> needed;
  KernelRow (*row)(KernelCells&, const KernelTimes&);
};

const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> kTables = {
      {"products", {"dtype", "m", "n", "k", "latency_us"}, product_row},
      {"experts",
       {"dtype", "tokens", "hidden", "inter", "topk", "experts", "gated", "tp", "ep", "dist",
        "latency_us"},
       experts_row},
      {"attention",
       {"kind", "dtype", "batch", "seq", "heads", "kv_heads", "head_dim", "latency_us"},
       attention_row},
      {"collectives", {"op", "ranks", "bytes", "latency_us"}, collective_row},
      {"memory-bound kernels", {"op", "bytes", "latency_us"}, stream_row},
      {"linear attention", {"family", "kernel", "batch", "seq", "latency_us"}, unknown_row},
      {"DeepEP's exchanges", {"ranks", "tokens", "dispatch_us", "combine_us"}, unknown_row},
      {"exchanges of experts", {"kernel", "step", "ranks", "tokens", "latency_us"}, unknown_row}};
  return kTables;
}

bool has_column(const std::vector<std::string>& columns, std::string_view name) {
  return std::ranges::find(columns, name) != columns.end();
}

bool names_devices(const std::vector<std::string>& columns) {
  return has_column(columns, "gpu") || has_column(columns, "device");
}

std::vector<std::string> missing_of(const KernelTable& table,
                                    const std::vector<std::string>& columns) {
  std::vector<std::string> missing;
  for (const std::string& name : table.needed)
    if (!has_column(columns, name)) missing.push_back(name);
  return missing;
}

/// The table whose columns are there, or the one that lacks the smallest part of them.
const KernelTable& nearest_table(const std::vector<std::string>& columns) {
  const auto lacks = [&](const KernelTable& table) {
    return static_cast<double>(missing_of(table, columns).size()) /
           static_cast<double>(table.needed.size());
  };
  return *std::ranges::min_element(kernel_tables(), {}, lacks);
}

/// Throws InputError with every column that is missing.
void require_columns(const CsvTable& csv, const KernelTable& table, const std::string& origin) {
  std::vector<Diagnostic> wrong;
  const auto add = [&](const std::string& message) {
    wrong.push_back({{origin, 1, 1}, message, "", 1});
  };
  if (!names_devices(csv.columns) && table.row != unknown_row)
    add("column 'gpu' (or 'device') is missing: the GPU of each row, such as h100" +
        did_you_mean("gpu", csv.columns));
  for (const std::string& name : missing_of(table, csv.columns))
    add(fmt::format("column '{}' of a table of {} is missing{}", name, table.what,
                    did_you_mean(name, csv.columns)));
  if (!wrong.empty()) throw InputError(std::move(wrong));
}

/// Kernel times by the names of GPUs, each read once.
class TimesByDevice {
 public:
  /// Returns those of the file of this name, or of the device. Throws NotPredicted where none are
  /// known.
  const KernelTimes& of(const std::string& gpu) {
    const auto known = times_.find(gpu);
    if (known != times_.end()) return known->second;
    const bool file = std::ranges::find(files_, gpu) != files_.end();
    return times_.emplace(gpu, file ? load_kernel_file(gpu) : of_device(gpu)).first->second;
  }
  const std::vector<std::string>& notes() const { return notes_; }

  /// Returns what the times were fitted on, with their devices.
  std::vector<std::string> sources() const {
    std::map<std::string, std::vector<std::string>> devices;
    for (const auto& [gpu, times] : times_) {
      auto& of_source = devices[times.source];
      if (std::ranges::find(of_source, times.device) == of_source.end())
        of_source.push_back(times.device);
    }
    std::vector<std::string> texts;
    for (const auto& [source, names] : devices)
      texts.push_back(fmt::format("kernel times of {} were {}", fmt::join(names, ", "), source));
    return texts;
  }

 private:
  KernelTimes of_device(const std::string& gpu) {
    const std::vector<std::string> devices = shipped_names("models/devices");
    if (std::ranges::find(devices, gpu) == devices.end())
      throw NotPredicted{
          fmt::format("'{}' is no device that is known here{}", gpu, did_you_mean(gpu, devices))};
    const DeviceSpec device = load_device(gpu);
    auto times = load_kernel_times(device);
    if (!times) throw NotPredicted{fmt::format("nothing is known of kernels on {}", device.name)};
    if (times->device != device.name)
      notes_.push_back(
          fmt::format("kernels of {} are assumed as those of {}, by the ratio of the "
                      "peaks",
                      device.name, times->device));
    return *std::move(times);
  }

  const std::vector<std::string> files_ = kernel_files();
  std::map<std::string, KernelTimes> times_;
  std::vector<std::string> notes_;
};

/// Lines as "2-5, 9 and 30 more".
std::string lines_text(const std::vector<int>& lines) {
  constexpr std::size_t kShownSpans = 8;
  std::vector<std::string> spans;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < lines.size() && spans.size() < kShownSpans;) {
    std::size_t end = i;
    while (end + 1 < lines.size() && lines[end + 1] == lines[end] + 1) ++end;
    spans.push_back(end == i ? fmt::format("{}", lines[i])
                             : fmt::format("{}-{}", lines[i], lines[end]));
    shown = i = end + 1;
  }
  const std::size_t more = lines.size() - shown;
  return fmt::format("{}{}", fmt::join(spans, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

bool is_kernel_table(const std::vector<std::string>& columns) {
  return std::ranges::any_of(kernel_tables(), [&](const KernelTable& table) {
    return missing_of(table, columns).empty() &&
           (names_devices(columns) || table.row == unknown_row);
  });
}

MeasuredReport kernels_report(const std::string& text, const std::string& origin) {
  const CsvTable csv = parse_csv(text, origin);
  const KernelTable& table = nearest_table(csv.columns);
  require_columns(csv, table, origin);
  MeasuredReport report;
  report.file = origin;
  report.format = fmt::format("measured kernels: {}", table.what);
  report.protocol = "each row as the kernel times of its device say (models/devices/kernels)";
  TimesByDevice times;
  std::vector<Diagnostic> wrong;
  std::map<std::string, std::vector<int>> left_out;  // lines by reason
  const KernelTimes none;
  for (const CsvTable::Row& row : csv.rows) {
    KernelCells cells(csv, row, origin, wrong);
    try {
      const std::string gpu = cells.device();
      const KernelRow predicted = table.row(cells, table.row == unknown_row ? none : times.of(gpu));
      MeasuredRowResult result;
      result.name =
          fmt::format("line {}: {} {} {}", row.line, gpu, predicted.group, predicted.name);
      result.row_class = fmt::format("{} {}", gpu, predicted.group);
      result.pipeline_depth = 0;
      result.measured_s = kMicrosecond * cells.number("latency_us", 1e-9);
      result.predicted_s = predicted.predicted_s;
      report.rows.push_back(std::move(result));
    } catch (const NotPredicted& why) {
      left_out[why.reason].push_back(row.line);
    }
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
  for (const auto& [reason, lines] : left_out) {
    report.notes.push_back(fmt::format("{} left out, {}: lines {}",
                                       counted(static_cast<std::int64_t>(lines.size()), "row"),
                                       reason, lines_text(lines)));
    report.left_out += lines.size();
  }
  if (report.rows.empty()) throw InputError(origin, report.notes.front());
  report.notes.insert(report.notes.end(), times.notes().begin(), times.notes().end());
  report.stacks = times.sources();
  return report;
}

}  // namespace penstock
