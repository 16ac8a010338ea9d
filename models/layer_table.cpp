// SPDX-License-Identifier: Apache-2.0
#include "models/layer_table.hpp"

#include "base/error.hpp"
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <sstream>

namespace penstock {
namespace {

constexpr std::size_t kMostErrors = 50;
constexpr std::size_t kMostLayers = 5'000;
constexpr std::size_t kLongestQuoted = 60;
constexpr double kMostSeconds = 1e6, kMostBytes = 1e15;

const std::vector<std::string>& known_columns() {
  static const std::vector<std::string> kColumns = {"layer",      "forward", "backward",  "time",
                                                    "activation", "stash",   "parameters"};
  return kColumns;
}

/// What else a column may be called, in lower case.
struct ColumnAlias {
  std::string_view alias, column;
};
constexpr ColumnAlias kAliases[] = {
    {"name", "layer"},           {"module", "layer"},       {"op", "layer"},
    {"fwd", "forward"},          {"fw", "forward"},         {"f", "forward"},
    {"bwd", "backward"},         {"bw", "backward"},        {"b", "backward"},
    {"latency", "time"},         {"duration", "time"},      {"activations", "activation"},
    {"act", "activation"},       {"output", "activation"},  {"outputs", "activation"},
    {"out", "activation"},       {"act_out", "activation"}, {"saved", "stash"},
    {"stored", "stash"},         {"kept", "stash"},         {"saved_activations", "stash"},
    {"parameter", "parameters"}, {"params", "parameters"},  {"param", "parameters"},
    {"weights", "parameters"},   {"weight", "parameters"}};

/// Words that say nothing of which column it is, behind or before another word.
constexpr std::string_view kPadding[] = {"time", "size", "count",  "num",   "n",    "total",
                                         "avg",  "mean", "median", "layer", "pass", "memory"};

constexpr double kParameterBytes = 4;  // of a number of parameters: fp32

bool is_time(std::string_view column) {
  return column == "forward" || column == "backward" || column == "time";
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// "ms" is a unit of times, "MB" one of bytes.
bool is_unit(const std::string& text, Dimension dimension) {
  std::string why;
  return !text.empty() && parse_quantity("1 " + text, dimension, why) &&
         !parse_quantity("1", dimension, why);
}

/// A column's name with the unit that its header gives: "forward [ms]", "fwd (ms)", "fwd_ms".
struct ColumnName {
  std::string column, unit;
};

/// The column that is called so, or may be: "Forward time", "fwd", "num_params".
std::string column_called(const std::string& name) {
  std::vector<std::string> words;
  std::istringstream text(lower_case(name));
  for (std::string word; std::getline(text, word, '_');) {
    std::istringstream parts(word);
    for (std::string part; parts >> part;) words.push_back(part);
  }
  const auto is_padding = [](const std::string& word) {
    return std::ranges::find(kPadding, word) != std::end(kPadding);
  };
  if (!std::ranges::all_of(words, is_padding)) std::erase_if(words, is_padding);
  const std::string plain = fmt::format("{}", fmt::join(words, "_"));
  if (plain == "total_time") return "time";
  const auto* alias = std::ranges::find(kAliases, plain, &ColumnAlias::alias);
  return alias == std::end(kAliases) ? plain : std::string(alias->column);
}

ColumnName named_column(const std::string& header) {
  const std::size_t bracket = header.find_first_of("[(");
  std::size_t end = bracket == std::string::npos ? header.find_last_of("_ ") : bracket;
  std::string name = header.substr(0, end), unit;
  if (end != std::string::npos) unit = header.substr(end + 1);
  if (bracket != std::string::npos && !unit.empty()) unit.pop_back();  // the bracket that closes
  while (name.ends_with(' ') || name.ends_with('_')) name.pop_back();
  const std::string column = column_called(name);
  if (column == "parameters" && lower_case(unit) == "m") return {column, "M"};
  // Bytes or billions?
  if (column == "parameters" && lower_case(unit) == "b") return {lower_case(header), ""};
  for (const char* bytes : {"B", "KB", "MB", "GB", "KiB", "MiB", "GiB"})
    if (lower_case(unit) == lower_case(bytes)) unit = bytes;
  if (unit == "bytes") unit = "B";
  if (is_unit(unit, is_time(column) ? Dimension::time : Dimension::bytes)) return {column, unit};
  // A column may be called by its unit alone.
  if (is_unit(header, Dimension::time)) return {"time", header};
  if (is_unit(header, Dimension::bytes)) return {"activation", header};
  return {column_called(header), ""};
}

/// A value of a line, and where it begins.
struct Cell {
  std::string text;
  std::size_t begin = 0;
};

Cell trimmed(const Cell& cell) {
  const std::size_t first = cell.text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return {"", cell.begin};
  const std::size_t last = cell.text.find_last_not_of(" \t\r");
  return {cell.text.substr(first, last + 1 - first), cell.begin + first};
}

std::vector<Cell> cells_of(const std::string& line, char separator) {
  std::vector<Cell> cells;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(line.find(separator, at), line.size());
    cells.push_back(trimmed({line.substr(at, end - at), at}));
    if (end == line.size()) return cells;
    at = end + 1;
  }
}

/// What a terminal may be shown.
std::string terminal_text(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string quoted(const std::string& text) {
  return terminal_text(text.substr(0, kLongestQuoted)) +
         (text.size() > kLongestQuoted ? "..." : "");
}

class TableReader {
 public:
  explicit TableReader(std::string origin) : origin_(std::move(origin)) {}

  PipedreamProfile read(const std::string& text) {
    std::istringstream lines(text);
    lines.exceptions(std::ios::badbit);  // no memory is not the end of the text
    while (std::getline(lines, text_)) {
      ++line_;
      if (line_ == 1 && text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);  // of a spreadsheet
      const std::size_t first = text_.find_first_not_of(" \t\r");
      if (first == std::string::npos || text_[first] == '#') continue;
      if (columns_.empty()) {
        for (const char other : {';', '\t'})
          if (text_.find(',') == text_.npos && text_.find(other) != text_.npos) separator_ = other;
        read_header(cells_of(text_, separator_));
      } else {
        read_layer(cells_of(text_, separator_));
      }
    }
    if (columns_.empty()) throw InputError(origin_, "has no line with the names of its columns");
    fail_if_wrong();
    if (profile_.layers.empty()) throw InputError(origin_, "holds no layer");
    profile_.layers.back().readers.clear();
    profile_.layers.back().last_reader = -1;
    return std::move(profile_);
  }

 private:
  void wrong(const Cell& cell, const std::string& message) {
    if (wrong_.size() == kMostErrors) return;
    const auto column = static_cast<int>(cell.begin) + 1;
    const auto length = std::max(1, static_cast<int>(cell.text.size()));
    wrong_.push_back({{origin_, line_, column}, message, terminal_text(text_), length});
  }
  void wrong(const std::string& message) { wrong({text_, 0}, message); }
  void fail_if_wrong() const {
    if (!wrong_.empty()) throw InputError(wrong_);
  }
  bool has(const std::string& column) const {
    return std::ranges::find(columns_, column) != columns_.end();
  }

  void read_header(const std::vector<Cell>& names) {
    std::set<std::string> seen;
    for (const Cell& cell : names) {
      const auto [name, unit] = named_column(cell.text);
      columns_.push_back(name);
      units_.push_back(unit);
      if (std::ranges::find(known_columns(), name) == known_columns().end())
        wrong(cell,
              fmt::format("unknown column '{}'; columns are {}, with their unit as in 'forward "
                          "[ms]' or in every cell{}",
                          quoted(cell.text), fmt::join(known_columns(), ", "),
                          did_you_mean(name, known_columns())));
      if (!seen.insert(name).second)
        wrong(cell, fmt::format("the column '{}' is given twice", quoted(name)));
    }
    profile_.outputs_only = has("activation") && !has("stash");
    if (!has("layer")) wrong("the column 'layer' is missing");
    if (has("time") == (has("forward") && has("backward")) || has("forward") != has("backward"))
      wrong("needs 'forward' and 'backward', or 'time' for both together");
  }

  void read_layer(const std::vector<Cell>& cells) {
    if (cells.size() != columns_.size())
      return wrong(fmt::format("has {} values for {} columns", cells.size(), columns_.size()));
    if (profile_.layers.size() == kMostLayers)
      throw InputError(origin_, fmt::format("has more than {} layers", kMostLayers));
    ProfiledLayer layer;
    layer.line = line_;
    for (std::size_t i = 0; i < cells.size(); ++i) read_cell(i, cells[i], layer);
    layer.last_reader = static_cast<int>(profile_.layers.size()) + 1;
    layer.readers = {layer.last_reader};
    profile_.layers.push_back(std::move(layer));
  }

  /// With the column's unit where the cell has none; a bare number of parameters counts them.
  std::optional<double> quantity(std::size_t column, const std::string& text) const {
    const Dimension dimension = is_time(columns_[column]) ? Dimension::time : Dimension::bytes;
    std::string why;
    const bool millions = columns_[column] == "parameters" && text.ends_with("M");
    const auto number = parse_number<double>(text.substr(0, text.size() - (millions ? 1 : 0)));
    if (!number) return parse_quantity(text, dimension, why);
    if (millions || units_[column] == "M") return *number * 1e6 * kParameterBytes;
    if (!units_[column].empty()) return parse_quantity(text + " " + units_[column], dimension, why);
    if (columns_[column] == "parameters") return *number * kParameterBytes;
    return parse_quantity(text, dimension, why);
  }

  void read_cell(std::size_t at, const Cell& cell, ProfiledLayer& layer) {
    const std::string &text = cell.text, &column = columns_[at];
    if (column == "layer") {
      layer.id = layer.description = quoted(text);
      if (text.empty()) wrong(cell, "a layer needs a name");
      return;
    }
    if (std::ranges::find(known_columns(), column) == known_columns().end()) return;
    const bool time = is_time(column);
    const auto value = quantity(at, text);
    if (!value || !(*value >= 0 && *value <= (time ? kMostSeconds : kMostBytes))) {
      return wrong(
          cell, fmt::format("'{}' must be {}, got '{}'{}", column,
                            describe(time ? Dimension::time : Dimension::bytes), quoted(text),
                            parse_number<double>(text) && units_[at].empty()
                                ? fmt::format("; or name the unit of all in the first line, such "
                                              "as '{} [{}]'",
                                              column, time ? "ms" : "MB")
                                : ""));
    }
    if (column == "forward") layer.forward_s = *value;
    if (column == "backward") layer.backward_s = *value;
    if (column == "time") {
      layer.forward_s = *value / 3;
      layer.backward_s = *value - layer.forward_s;
    }
    if (column == "activation") layer.activation_bytes = *value;
    if (column == "stash") layer.stash_bytes = *value;
    if (column == "parameters") layer.parameter_bytes = *value;
  }

  std::string origin_, text_;
  char separator_ = ',';
  int line_ = 0;
  std::vector<std::string> columns_, units_;  // a unit: of cells that have none
  std::vector<Diagnostic> wrong_;
  PipedreamProfile profile_;
};

}  // namespace

PipedreamProfile parse_layer_table(const std::string& text, const std::string& origin) {
  return TableReader(origin).read(text);
}

}  // namespace penstock
