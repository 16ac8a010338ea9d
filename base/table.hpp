// SPDX-License-Identifier: Apache-2.0
// Text tables for the terminal: no borders, numbers right-aligned, columns as wide as needed.
#pragma once

#include "base/terminal.hpp"

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
  void add_row(std::vector<std::string> row);
  /// Takes columns out until no line is longer than `width` (0: any length), `least` from its front
  /// on; none where that is not enough. The sentence that says so ends in '\n'; empty: nothing was
  /// taken out.
  std::string fit(std::size_t width, const std::vector<std::string>& least);
  /// "p: stages; v: chunks\n" of the columns that are there, in lines of whole entries; "" of none.
  std::string legend(std::initializer_list<std::pair<std::string_view, std::string_view>> entries,
                     std::size_t width = 0) const;
  /// Lines ending in '\n', each indented by `indent` spaces, without trailing blanks. Where they
  /// are wider than `width` (0: any) the words of a last column of texts are wrapped, and columns
  /// that have no room stand below, beside the first column again.
  std::string render(int indent = 0, std::size_t width = results_width()) const;

 private:
  using Columns = std::vector<std::size_t>;
  std::vector<std::size_t> widths() const;
  /// Where it is the last: it is one of texts.
  bool is_wrapped(std::size_t column) const { return alignment_[column] == Align::left; }
  std::vector<Columns> columns_side_by_side(const Columns& widths, std::size_t room) const;
  std::string lines(const std::vector<std::string>& row, const Columns& columns,
                    const Columns& widths, std::size_t room) const;

  std::vector<std::vector<std::string>> rows_;
  std::vector<Align> alignment_;
};

/// "[3, 2, 2, 2]" as "3 [2]*3": as many equal ones in a row are said once.
std::string compressed(const std::vector<std::string>& words, std::string_view between);

}  // namespace penstock
