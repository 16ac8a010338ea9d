#include "validate/training_runs.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace penstock {
namespace {

struct Cell {
  std::string text;
  int column = 1;  ///< of its first character
};

/// Where a column's numbers go; the iteration time, in milliseconds, has no place among the counts.
struct Column {
  const char* name;
  int TrainingRun::*count;
};
constexpr Column kColumns[] = {{"# GPUs", &TrainingRun::gpus},
                               {"global batch", &TrainingRun::global_batch},
                               {"micro batch", &TrainingRun::micro_batch},
                               {"hidden size", &TrainingRun::hidden},
                               {"attention heads", &TrainingRun::heads},
                               {"# layers", &TrainingRun::layers},
                               {"sequence length", &TrainingRun::sequence},
                               {"tensor parallelism", &TrainingRun::tensor},
                               {"data parallelism", &TrainingRun::data},
                               {"pipeline parallelism", &TrainingRun::pipeline},
                               {"iteration time (ms)", nullptr}};
constexpr std::size_t kColumnCount = std::size(kColumns);
constexpr int kLargestCount = 1 << 24;
constexpr int kMostStages = 4096;
constexpr std::int64_t kMostOps = 1 << 22;  // microbatches x stages of one row

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  const std::size_t mark = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  for (std::size_t at = mark; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

std::vector<Cell> cells_of(const std::string& line) {
  std::vector<Cell> cells;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(',', at), line.size());
    const std::size_t first = std::min(line.find_first_not_of(" \t", at), end);
    const std::size_t last = line.find_last_not_of(" \t", end == 0 ? 0 : end - 1);
    const bool empty = first == end || last == std::string::npos || last < first;
    cells.push_back(
        {empty ? "" : line.substr(first, last + 1 - first), static_cast<int>(first) + 1});
    at = end + 1;
  }
  return cells;
}

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

class Reader {
 public:
  Reader(const std::string& text, std::string origin)
      : origin_(std::move(origin)), lines_(lines_of(text)) {}

  std::vector<TrainingRun> read() {
    if (lines_.empty()) throw InputError(origin_, "is empty; its first line must name the columns");
    read_header();
    fail_if_wrong();
    std::vector<TrainingRun> runs;
    for (std::size_t i = 1; i < lines_.size(); ++i) {
      if (lines_[i].find_first_not_of(" \t,") != std::string::npos) runs.push_back(read_run(i));
    }
    fail_if_wrong();
    if (runs.empty()) throw InputError(origin_, "holds no row below its header");
    return runs;
  }

 private:
  static constexpr std::size_t kMostErrors = 20;

  void wrong(std::size_t line, const Cell& cell, std::string message) {
    ++seen_;
    if (wrong_.size() == kMostErrors) return;
    wrong_.push_back({{origin_, static_cast<int>(line) + 1, cell.column},
                      std::move(message),
                      lines_[line],
                      std::max(1, static_cast<int>(cell.text.size()))});
  }
  void fail_if_wrong() const {
    if (!wrong_.empty()) throw InputError(wrong_);
  }

  void read_header() {
    const auto header = cells_of(lines_[0]);
    std::vector<std::string> names;
    for (const Cell& cell : header) names.push_back(cell.text);
    for (std::size_t c = 0; c < kColumnCount; ++c) {
      const auto at = std::ranges::find(names, kColumns[c].name);
      place_[c] = static_cast<std::size_t>(at - names.begin());
      if (at == names.end())
        wrong(0, header[0],
              fmt::format("column '{}' is missing{}", kColumns[c].name,
                          did_you_mean(kColumns[c].name, names)));
      else if (std::ranges::count(names, *at) > 1)
        wrong(0, header[place_[c]], fmt::format("column '{}' stands twice", *at));
    }
    width_ = header.size();
  }

  TrainingRun read_run(std::size_t line) {
    const std::size_t before = seen_;
    const auto cells = cells_of(lines_[line]);
    TrainingRun run;
    run.line = static_cast<int>(line) + 1;
    if (cells.size() != width_) {
      wrong(line, cells.back(),
            fmt::format("has {} cells, the header names {} columns", cells.size(), width_));
      return run;
    }
    for (std::size_t c = 0; c < kColumnCount; ++c) read_cell(line, cells[place_[c]], c, run);
    if (seen_ == before) check(line, cells, run);
    return run;
  }

  void read_cell(std::size_t line, const Cell& cell, std::size_t column, TrainingRun& run) {
    const auto value = number_in(cell.text);
    const auto [name, count] = kColumns[column];
    if (count == nullptr) {
      if (!value || *value <= 0)
        wrong(line, cell,
              fmt::format("'{}' must be a number of milliseconds > 0, got '{}'", name, cell.text));
      else
        run.measured_s = *value / 1e3;
      return;
    }
    if (!value || *value < 1 || *value > kLargestCount || *value != std::floor(*value))
      wrong(line, cell,
            fmt::format("'{}' must be an integer from 1 to {}, got '{}'", name, kLargestCount,
                        cell.text));
    else
      run.*count = static_cast<int>(*value);
  }

  void check(std::size_t line, const std::vector<Cell>& cells, const TrainingRun& run) {
    const auto spread = std::int64_t{run.tensor} * run.data * run.pipeline;
    if (spread != run.gpus)
      wrong(line, cells[place_[0]],
            fmt::format("tensor x data x pipeline parallelism is {}, not the {} GPUs of the row",
                        spread, run.gpus));
    const auto samples = std::int64_t{run.micro_batch} * run.data;
    if (run.global_batch % samples != 0)
      wrong(line, cells[place_[1]],
            fmt::format("the global batch must be a multiple of micro batch x data parallelism, "
                        "{}; got {}",
                        samples, run.global_batch));
    const auto ops = std::int64_t{run.global_batch} / samples * run.pipeline;
    if (run.pipeline > kMostStages || ops > kMostOps)
      wrong(line, cells[place_[9]],
            fmt::format("at most {} stages and {} microbatches x stages; got {} and {}",
                        kMostStages, kMostOps, run.pipeline, ops));
    if (run.layers < run.pipeline)
      wrong(line, cells[place_[5]],
            fmt::format("{} layers cannot be spread over {} stages", run.layers, run.pipeline));
  }

  std::string origin_;
  std::vector<std::string> lines_;
  std::vector<Diagnostic> wrong_;  ///< the first ones
  std::size_t seen_ = 0;
  std::size_t place_[kColumnCount] = {};
  std::size_t width_ = 0;
};

}  // namespace

std::string TrainingRun::name() const {
  return fmt::format("line {}: {} GPUs, h {}, {} layers, b {}, t {}, d {}, p {}, m {}", line, gpus,
                     hidden, layers, micro_batch, tensor, data, pipeline, microbatches());
}

std::uint32_t TrainingRun::fingerprint() const {
  std::uint32_t hash = 2166136261;  // FNV-1a
  const std::string text =
      fmt::format("{}", fmt::join({double(gpus), double(global_batch), double(micro_batch),
                                   double(hidden), double(heads), double(layers), double(sequence),
                                   double(tensor), double(data), double(pipeline), measured_s},
                                  ","));
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return hash;
}

std::vector<TrainingRun> parse_training_runs(const std::string& text, const std::string& origin) {
  return Reader(text, origin).read();
}

}  // namespace penstock
