// SPDX-License-Identifier: Apache-2.0
// Lines as wide as who reads them has room for. The width is that of $COLUMNS, else of the terminal
// that a stream is; where there is neither, lines stay whole, for grep and scripts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Characters in a line of what a stream (1: standard output, 2: standard error) is read on; 0:
/// any.
std::size_t terminal_width(int stream = 1);

/// Of a line of results; 0: any, as where they go to a file.
std::size_t results_width();
void set_results_to_file(bool to_file);

/// Columns a UTF-8 string takes in a terminal (one per code point).
std::size_t display_width(std::string_view text);

/// A text's words in lines of at most `width`, but for words that are longer.
std::vector<std::string> lines_of_words(std::string_view text, std::size_t width);

/// `text` with its lines that are longer than `width` (0: none is) broken at the ends of words.
/// What follows stands under the last column of a list's row, else two blanks to the right of the
/// line's beginning. Commands, what is quoted, and an option with its value stay together.
std::string wrapped(std::string_view text, std::size_t width);

}  // namespace penstock
