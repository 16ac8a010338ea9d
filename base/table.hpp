// Text tables for the terminal: no borders, numbers right-aligned, columns as wide as needed.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

class TextTable {
 public:
  enum class Align { left, right };
  /// One column per header; alignment defaults to right except for the first column.
  explicit TextTable(std::vector<std::string> headers, std::vector<Align> alignment = {});
  void add(std::vector<std::string> row);
  /// Takes columns out until no line is longer than `width` (0: any length), `least` from its front
  /// on. The sentence that says so ends in '\n'; empty: nothing was taken out.
  std::string fit(std::size_t width, const std::vector<std::string>& least);
  /// "p: stages; v: chunks\n" of the columns that are there, in lines of whole entries; "" of none.
  std::string legend(std::initializer_list<std::pair<std::string_view, std::string_view>> entries,
                     std::size_t width = 0) const;
  /// Lines ending in '\n', each indented by `indent` spaces, without trailing blanks.
  std::string render(int indent = 0) const;

 private:
  std::vector<std::size_t> widths() const;

  std::vector<std::vector<std::string>> rows_;
  std::vector<Align> alignment_;
};

/// Characters in a line of the terminal that standard output is; 0: it is none.
std::size_t terminal_width();

/// "[3, 2, 2, 2]" as "3 [2]*3": as many equal ones in a row are said once.
std::string compressed(const std::vector<std::string>& words, std::string_view between);

/// Columns a UTF-8 string takes in a terminal (one per code point).
std::size_t display_width(const std::string& text);

}  // namespace penstock
