// SPDX-License-Identifier: Apache-2.0
#include "base/table.hpp"

#include "base/say.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {

namespace {

constexpr std::size_t kLeastOfTexts = 24;  // columns for texts that are wrapped

}  // namespace

TextTable::TextTable(std::vector<std::string> headers, std::vector<Align> alignment)
    : rows_{std::move(headers)}, alignment_(std::move(alignment)) {
  while (alignment_.size() < rows_[0].size()) {
    alignment_.push_back(alignment_.empty() ? Align::left : Align::right);
  }
}

void TextTable::add_row(std::vector<std::string> row) {
  row.resize(rows_[0].size());
  for (std::string& cell : row) {
    for (const char between : {'\n', '\t'}) std::ranges::replace(cell, between, ' ');
    cell = without_controls(cell, "");
  }
  rows_.push_back(std::move(row));
}

std::vector<std::size_t> TextTable::widths() const {
  std::vector<std::size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], display_width(row[c]));
  }
  return widths;
}

std::string TextTable::fit(std::size_t width, const std::vector<std::string>& least) {
  const TextTable whole = *this;
  std::string gone;
  const auto is_wide = [&] {
    const std::vector<std::size_t> widths = this->widths();
    return width > 0 &&
           std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1)) > width;
  };
  for (const std::string& header : least) {
    if (!is_wide()) break;
    const auto at = std::ranges::find(rows_[0], header) - rows_[0].begin();
    if (at == std::ssize(rows_[0])) continue;
    for (auto& row : rows_) row.erase(row.begin() + at);
    alignment_.erase(alignment_.begin() + at);
    gone += (gone.empty() ? "" : ", ") + header;
  }
  if (is_wide()) *this = whole;  // `render` finds room for all
  if (gone.empty() || is_wide()) return "";
  return fmt::format("(no room for {}: a wider terminal or --format json has them)\n", gone);
}

std::string TextTable::legend(
    std::initializer_list<std::pair<std::string_view, std::string_view>> entries,
    std::size_t width) const {
  constexpr std::size_t kUsual = 120;
  const std::size_t most = width == 0 ? kUsual : std::min(width, kUsual);
  std::string out, line;
  for (const auto& [column, meaning] : entries) {
    if (std::ranges::find(rows_[0], column) == rows_[0].end()) continue;
    const std::string entry = fmt::format("{}: {}", column, meaning);
    if (!line.empty() && line.size() + entry.size() + 3 > most) {
      out += line + ";\n";
      line.clear();
    }
    line += (line.empty() ? "" : "; ") + entry;
  }
  return line.empty() ? out : out + line + "\n";
}

std::vector<TextTable::Columns> TextTable::columns_side_by_side(const Columns& widths,
                                                                std::size_t room) const {
  std::vector<Columns> groups(1);
  std::size_t used = 0;
  bool closed = false;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    const std::size_t least = is_wrapped(c) ? std::min(widths[c], kLeastOfTexts) : widths[c];
    const std::size_t between = groups.back().empty() ? 0 : 2;
    if (room > 0 && groups.back().size() > 1 && (closed || used + between + least > room)) {
      groups.push_back({0});
      used = widths[0];
    }
    groups.back().push_back(c);
    used += between + widths[c];
    closed = room > 0 && used > room;
  }
  return groups;
}

std::string TextTable::lines(const std::vector<std::string>& row, const Columns& columns,
                             const Columns& widths, std::size_t room) const {
  std::string line;
  std::size_t used = 0;
  for (const std::size_t c : columns) {
    if (used > 0) line += "  ";
    used += used > 0 ? 2 : 0;
    const std::size_t left = room > used + kLeastOfTexts ? room - used : kLeastOfTexts;
    if (room > 0 && c == columns.back() && c > 0 && is_wrapped(c) && display_width(row[c]) > left) {
      const auto below = "\n" + std::string(used, ' ');
      line += fmt::format("{}", fmt::join(lines_of_words(row[c], left), below));
      break;
    }
    const std::string padding(widths[c] - display_width(row[c]), ' ');
    line += alignment_[c] == Align::left ? row[c] + padding : padding + row[c];
    used += widths[c];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string TextTable::render(int indent, std::size_t width) const {
  const Columns widths = this->widths();
  const std::string blanks(static_cast<std::size_t>(indent), ' ');
  const std::size_t room = width > blanks.size() ? width - blanks.size() : width;
  std::string out;
  for (const Columns& columns : columns_side_by_side(widths, room)) {
    if (!out.empty()) out += '\n';
    for (const auto& row : rows_) out += lines(row, columns, widths, room);
  }
  if (blanks.empty()) return out;
  std::string indented;
  for (const char c : out) {
    const bool begins = (indented.empty() || indented.back() == '\n') && c != '\n';
    if (begins) indented += blanks;
    indented += c;
  }
  return indented;
}

std::string compressed(const std::vector<std::string>& words, std::string_view between) {
  std::string out;
  for (auto at = words.begin(); at != words.end();) {
    const auto end = std::find_if(at, words.end(), [&](const auto& w) { return w != *at; });
    const bool run = end - at > 5;  // fewer are read as easily one by one
    const std::string part = run ? fmt::format("[{}]*{}", *at, end - at) : *at;
    out += (out.empty() ? "" : std::string(between)) + part;
    at = run ? end : at + 1;
  }
  return out;
}

}  // namespace penstock
