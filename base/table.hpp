// Text tables for the terminal: no borders, numbers right-aligned, columns as wide as needed.
#pragma once

#include <string>
#include <vector>

namespace penstock {

class TextTable {
 public:
  enum class Align { left, right };
  /// One column per header; alignment defaults to right except for the first column.
  explicit TextTable(std::vector<std::string> headers, std::vector<Align> alignment = {});
  void add(std::vector<std::string> row);
  /// Lines ending in '\n', each indented by `indent` spaces, without trailing blanks.
  std::string render(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<Align> alignment_;
};

/// Columns a UTF-8 string takes in a terminal (one per code point).
std::size_t display_width(const std::string& text);

}  // namespace penstock
