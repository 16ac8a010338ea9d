// SPDX-License-Identifier: Apache-2.0
// Pictures of numbers for the terminal: a line of blocks, and a field of numbers or blocks.
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
  bool blocks = false;  ///< UTF-8
};

/// Of standard output.
Canvas canvas_of_terminal();

/// One block per number, from zero to the largest; NaN is a dot. "" without blocks.
std::string sparkline(const std::vector<double>& values, const Canvas& canvas);

/// What stands in a cell without a number; of several the first that is there.
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
  std::vector<std::vector<double>> values;       ///< by row; NaN: there is none
  std::vector<std::vector<std::uint8_t>> empty;  ///< why not, a place in kEmptyCells
};

/// Numbers where they fit, coloured where that is allowed; else a block for each value, or for the
/// best of several. What the signs mean stands below. Lines ending in '\n'.
std::string draw(const HeatMap& map, const Canvas& canvas);

}  // namespace penstock
