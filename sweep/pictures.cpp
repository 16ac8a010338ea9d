// SPDX-License-Identifier: Apache-2.0
#include "sweep/pictures.hpp"

#include "base/progress.hpp"
#include "base/table.hpp"
#include "base/terminal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace penstock {
namespace {

constexpr int kWidest = 120;
constexpr std::size_t kMostRows = 40;
// From dark blue to yellow, of the 256 colours of terminals; the first ones take white letters.
constexpr int kColours[] = {17, 18, 24, 30, 36, 71, 112, 184, 226};
constexpr std::size_t kWhiteBelow = 4;
constexpr const char* kShades[] = {" ", "░", "▒", "▓", "█"};
constexpr const char* kPlainShades[] = {" ", ".", "o", "O", "#"};

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values)
    if (!std::isnan(v)) most = std::max(most, v);
  return most;
}

/// Which of n steps a value takes between least and most.
std::size_t step(double value, double least, double most, std::size_t n) {
  if (most <= least) return n - 1;
  const double share = (value - least) / (most - least);
  return std::min(n - 1, static_cast<std::size_t>(std::max(0.0, share) * static_cast<double>(n)));
}

struct Span {
  double least = 0, most = 0;
};

Span span_of(const HeatMap& map) {
  Span span{INFINITY, -INFINITY};
  for (const auto& row : map.values) {
    for (const double v : row) {
      if (std::isnan(v)) continue;
      span.least = std::min(span.least, v);
      span.most = std::max(span.most, v);
    }
  }
  return span;
}

std::string painted(const std::string& text, double value, const Span& span, const Canvas& canvas) {
  if (!canvas.colour || std::isnan(value)) return text;
  const std::size_t at = step(value, span.least, span.most, std::size(kColours));
  return fmt::format("\x1b[{};48;5;{}m{}\x1b[0m", at < kWhiteBelow ? 97 : 30, kColours[at], text);
}

std::string sign(const HeatMap& map, std::size_t row, std::size_t column) {
  return {kEmptyCells[map.empty[row][column]].sign};
}

/// What the signs in this map mean; "" without any.
std::string legend(const HeatMap& map, std::size_t indent) {
  std::array<bool, std::size(kEmptyCells)> there{};
  for (std::size_t r = 0; r < map.values.size(); ++r) {
    for (std::size_t c = 0; c < map.values[r].size(); ++c)
      if (std::isnan(map.values[r][c])) there[map.empty[r][c]] = true;
  }
  std::vector<std::string_view> meanings;
  for (std::size_t i = 0; i < there.size(); ++i)
    if (there[i]) meanings.push_back(kEmptyCells[i].meaning);
  if (meanings.empty()) return "";
  return fmt::format("{}{}\n", std::string(indent, ' '), fmt::join(meanings, "; "));
}

std::string number_text(double value) {
  return value >= 1e6 ? fmt::format("{:.2e}", value) : fmt::format("{:.4g}", value);
}

std::size_t widest(const std::vector<std::string>& texts) {
  std::size_t most = 0;
  for (const std::string& text : texts) most = std::max(most, display_width(text));
  return most;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t have = display_width(text);
  return std::string(width > have ? width - have : 0, ' ') + text;
}

/// Cells as wide as the widest of them; 0 when they do not fit.
std::size_t number_width(const HeatMap& map, std::size_t label, const Canvas& canvas) {
  std::size_t width = widest(map.column_labels);
  for (const auto& row : map.values)
    for (const double v : row)
      if (!std::isnan(v)) width = std::max(width, number_text(v).size());
  const std::size_t all = label + map.column_labels.size() * (width + 2);
  return all <= static_cast<std::size_t>(canvas.width) ? width : 0;
}

std::string draw_numbers(const HeatMap& map, std::size_t label, std::size_t width,
                         const Canvas& canvas) {
  const Span span = span_of(map);
  std::string out = std::string(label, ' ');
  for (const std::string& name : map.column_labels) out += "  " + padded(name, width);
  out += '\n';
  for (std::size_t r = 0; r < map.values.size(); ++r) {
    out += padded(map.row_labels[r], label);
    for (std::size_t c = 0; c < map.values[r].size(); ++c) {
      const double v = map.values[r][c];
      const std::string text = std::isnan(v) ? sign(map, r, c) : number_text(v);
      out += " " + painted(" " + padded(text, width), v, span, canvas);
    }
    out += '\n';
  }
  return out + legend(map, label + 2);
}

/// With so few rows and columns that they fit, each the best of its neighbours.
HeatMap binned(const HeatMap& map, std::size_t rows, std::size_t columns) {
  HeatMap out = map;
  const std::size_t old_rows = map.values.size(), old_columns = map.column_labels.size();
  rows = std::min(rows, old_rows);
  columns = std::min(columns, old_columns);
  out.values.assign(rows, std::vector<double>(columns, std::nan("")));
  out.empty.assign(rows, std::vector<std::uint8_t>(columns, kBlankCell));
  out.row_labels.assign(rows, "");
  for (std::size_t r = old_rows; r-- > 0;) {
    const std::size_t to = r * rows / old_rows;
    out.row_labels[to] = map.row_labels[r];
    for (std::size_t c = 0; c < old_columns; ++c) {
      double& best = out.values[to][c * columns / old_columns];
      if (std::isnan(best) || map.values[r][c] > best) best = map.values[r][c];
      std::uint8_t& empty = out.empty[to][c * columns / old_columns];
      empty = std::min(empty, map.empty[r][c]);
    }
  }
  return out;
}

std::string block(double value, const Span& span, const Canvas& canvas) {
  if (canvas.colour) return painted(" ", value, span, canvas);
  const auto& shades = canvas.blocks ? kShades : kPlainShades;
  return shades[1 + step(value, span.least, span.most, 4)];
}

std::string draw_blocks(const HeatMap& map, std::size_t label, const Canvas& canvas) {
  const Span span = span_of(map);
  std::string out;
  for (std::size_t r = 0; r < map.values.size(); ++r) {
    out += padded(map.row_labels[r], label) + "  ";
    for (std::size_t c = 0; c < map.values[r].size(); ++c) {
      const double v = map.values[r][c];
      out += std::isnan(v) ? sign(map, r, c) : block(v, span, canvas);
    }
    out += '\n';
  }
  out += fmt::format("{}  {} to {}; {} {} to {} {} samples/s\n", std::string(label, ' '),
                     map.column_labels.front(), map.column_labels.back(),
                     block(span.least, span, canvas), number_text(span.least),
                     block(span.most, span, canvas), number_text(span.most));
  return out + legend(map, label + 2);
}

}  // namespace

Canvas canvas_of_terminal() {
  Canvas canvas;
  if (const std::size_t width = terminal_width(); width >= 40)
    canvas.width = static_cast<int>(std::min<std::size_t>(width, kWidest));
  canvas.width = std::min(canvas.width, kWidest);
  canvas.colour = colour_allowed(STDOUT_FILENO);
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    canvas.blocks = locale.find("UTF-8") != std::string_view::npos ||
                    locale.find("utf8") != std::string_view::npos;
    break;
  }
  return canvas;
}

std::string sparkline(const std::vector<double>& values, const Canvas& canvas) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (!canvas.blocks) return "";
  const double most = largest(values);
  std::string out;
  for (const double v : values)
    out += std::isnan(v) ? "·" : kBars[step(v, 0, most, std::size(kBars))];
  return out;
}

std::string draw(const HeatMap& map, const Canvas& canvas) {
  const std::size_t label = std::max(widest(map.row_labels), std::size_t{4});
  if (std::isinf(span_of(map).least)) return "";
  const std::size_t width = number_width(map, label, canvas);
  if (width > 0 && map.values.size() <= kMostRows) return draw_numbers(map, label, width, canvas);
  const int room = canvas.width - static_cast<int>(std::min<std::size_t>(label + 2, 60));
  const auto columns = static_cast<std::size_t>(std::max(room, 8));  // wider than a narrow terminal
  return draw_blocks(binned(map, kMostRows, columns), label, canvas);
}

}  // namespace penstock
