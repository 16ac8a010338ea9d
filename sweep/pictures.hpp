// SPDX-License-Identifier: Apache-2.0
// Draws numbers in a terminal: as a line of blocks, and as a field of numbers or blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// What the terminal can show, and how wide it is.
struct Canvas {
  int width = 100;
  bool colour = false;
  bool blocks = false;  ///< whether it shows UTF-8
};

/// Returns what the terminal of standard output can show.
Canvas canvas_of_terminal();

/// Returns one block per number, on a scale from zero to the largest; NaN is a dot. Returns ""
/// where the terminal shows no blocks.
std::string sparkline(const std::vector<double>& values, const Canvas& canvas);

/// A sign in a cell without a number. Where several apply, the first of kEmptyCells is shown.
struct EmptyCell {
  char sign;
  std::string_view meaning;
};
inline constexpr EmptyCell kEmptyCells[] = {{'x', "x nothing fits"},
                                            {'r', "r refused: there is no such run"},
                                            {'!', "! failed"},
                                            {' ', "blank: no point there"}};
inline constexpr std::uint8_t kBlankCell = 3;

struct HeatMap {
  std::string rows, columns;  ///< names of the two axes
  std::vector<std::string> row_labels, column_labels;
  std::vector<std::vector<double>> values;       ///< by row; NaN where there is none
  std::vector<std::vector<std::uint8_t>> empty;  ///< why there is none, as an index in kEmptyCells
};

/// Returns the lines of a heat map: numbers where they fit, coloured where the terminal shows
/// colours; else a block for each value, or for the best of several. The meaning of the signs
/// stands below.
std::string draw(const HeatMap& map, const Canvas& canvas);

}  // namespace penstock
