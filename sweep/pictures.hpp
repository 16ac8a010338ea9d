// Pictures of numbers for the terminal: a line of blocks, and a field of numbers or blocks.
#pragma once

#include <string>
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

struct HeatMap {
  std::string rows, columns;  ///< names of the two axes
  std::vector<std::string> row_labels, column_labels;
  std::vector<std::vector<double>> values;  ///< by row; NaN: nothing there
};

/// Numbers where they fit, coloured where that is allowed; else a block for each value, or for the
/// best of several. Lines ending in '\n'.
std::string draw(const HeatMap& map, const Canvas& canvas);

}  // namespace penstock
