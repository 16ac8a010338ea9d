#include "models/layer_table.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
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

std::vector<Cell> cells_of(const std::string& line) {
  std::vector<Cell> cells;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(line.find(',', at), line.size());
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
      const std::size_t first = text_.find_first_not_of(" \t\r");
      if (first == std::string::npos || text_[first] == '#') continue;
      if (columns_.empty()) {
        read_header(cells_of(text_));
      } else {
        read_layer(cells_of(text_));
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
      const std::string& name = cell.text;
      columns_.push_back(name);
      if (std::ranges::find(known_columns(), name) == known_columns().end())
        wrong(cell,
              fmt::format("unknown column '{}'; columns are {}{}", quoted(name),
                          fmt::join(known_columns(), ", "), did_you_mean(name, known_columns())));
      if (!seen.insert(name).second)
        wrong(cell, fmt::format("the column '{}' is given twice", quoted(name)));
    }
    if (!has("layer")) wrong("the column 'layer' is missing");
    if (has("time") == (has("forward") && has("backward")) || has("forward") != has("backward"))
      wrong("needs 'forward' and 'backward', or 'time' for both together");
    fail_if_wrong();
  }

  void read_layer(const std::vector<Cell>& cells) {
    if (cells.size() != columns_.size())
      return wrong(fmt::format("has {} values for {} columns", cells.size(), columns_.size()));
    if (profile_.layers.size() == kMostLayers)
      throw InputError(origin_, fmt::format("has more than {} layers", kMostLayers));
    ProfiledLayer layer;
    layer.line = line_;
    for (std::size_t i = 0; i < cells.size(); ++i) read_cell(columns_[i], cells[i], layer);
    layer.last_reader = static_cast<int>(profile_.layers.size()) + 1;
    layer.readers = {layer.last_reader};
    profile_.layers.push_back(std::move(layer));
  }

  void read_cell(const std::string& column, const Cell& cell, ProfiledLayer& layer) {
    const std::string& text = cell.text;
    if (column == "layer") {
      layer.id = layer.description = quoted(text);
      if (text.empty()) wrong(cell, "a layer needs a name");
      return;
    }
    const bool time = column == "forward" || column == "backward" || column == "time";
    std::string why;
    const auto value = parse_quantity(text, time ? Dimension::time : Dimension::bytes, why);
    if (!value || !(*value >= 0 && *value <= (time ? kMostSeconds : kMostBytes))) {
      return wrong(cell,
                   fmt::format("'{}' must be {}, got '{}'", column,
                               describe(time ? Dimension::time : Dimension::bytes), quoted(text)));
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
  int line_ = 0;
  std::vector<std::string> columns_;
  std::vector<Diagnostic> wrong_;
  PipedreamProfile profile_;
};

}  // namespace

PipedreamProfile parse_layer_table(const std::string& text, const std::string& origin) {
  return TableReader(origin).read(text);
}

}  // namespace penstock
