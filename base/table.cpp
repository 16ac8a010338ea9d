#include "base/table.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace penstock {

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

TextTable::TextTable(std::vector<std::string> headers, std::vector<Align> alignment)
    : rows_{std::move(headers)}, alignment_(std::move(alignment)) {
  while (alignment_.size() < rows_[0].size()) {
    alignment_.push_back(alignment_.empty() ? Align::left : Align::right);
  }
}

void TextTable::add(std::vector<std::string> row) {
  row.resize(rows_[0].size());
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
  std::string gone;
  for (const std::string& header : least) {
    const std::vector<std::size_t> widths = this->widths();
    const std::size_t line = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
    if (width == 0 || line <= width) break;
    const auto at = std::ranges::find(rows_[0], header) - rows_[0].begin();
    if (at == std::ssize(rows_[0])) continue;
    for (auto& row : rows_) row.erase(row.begin() + at);
    alignment_.erase(alignment_.begin() + at);
    gone += (gone.empty() ? "" : ", ") + header;
  }
  if (gone.empty()) return "";
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

std::string TextTable::render(int indent) const {
  const std::vector<std::size_t> widths = this->widths();
  std::string out;
  for (const auto& row : rows_) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - display_width(row[c]), ' ');
      if (c > 0) line += "  ";
      line += alignment_[c] == Align::left ? row[c] + padding : padding + row[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::size_t terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
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
