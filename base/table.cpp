#include "base/table.hpp"

#include <algorithm>

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

std::string TextTable::render(int indent) const {
  std::vector<std::size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], display_width(row[c]));
  }
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

}  // namespace penstock
