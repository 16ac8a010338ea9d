// SPDX-License-Identifier: Apache-2.0
// What a word or variable of a shell script is, as far as it can be told without running the
// script: a text of pieces, each of which is known, or is not and then says how it is written and
// which variables would tell it. A piece that a condition decides (`[ "$A" ] && OPTS="--x"`) keeps
// both of what it can be.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// A place in one of the files that were read; `file` counts them.
struct ShellPlace {
  int file = 0, line = 1, column = 1;
};

/// Script text and where it stands: that of `eval` and the like is put together from several
/// places.
struct ShellSource {
  std::string text;
  std::vector<std::pair<std::size_t, ShellPlace>> origins;  ///< ascending; the first at 0

  ShellPlace place(std::size_t at) const;
};

/// The text of a file, each line's place known.
ShellSource shell_source(std::string text, int file);

using ShellNames = std::vector<std::string>;
void add_names(ShellNames& to, const ShellNames& names);

struct ShellText;

/// What a condition decides: a text, or words of an array.
struct ShellChoice {
  std::string condition;
  std::vector<ShellText> yes, no;
  std::size_t weight = 1;  ///< choices in it, itself among them
};

struct ShellPiece {
  std::string text;  ///< of one that is not known: how the script writes it
  ShellPlace place;
  bool known = true;
  bool quoted = false;
  bool absent = false;  ///< of a variable that nothing sets: empty, unless the surroundings set it
  bool folder = false;  ///< not known, but it is the script's own folder
  ShellNames names{};   ///< the variables that tell it
  std::shared_ptr<const ShellChoice> choice{};
};

struct ShellText {
  std::vector<ShellPiece> pieces;

  bool known() const;
  bool empty() const { return pieces.empty(); }
  /// Is it made of variables that nothing sets?
  bool absent() const;
  std::string shown() const;  ///< what it is where all is known
  ShellNames names() const;
  std::size_t size() const;
  ShellText unquoted() const;
  /// Nothing is added to a text that is far longer than any launch's.
  void add(ShellPiece piece);
  void add(const ShellText& text);
};

ShellText known_text(std::string text, ShellPlace place = {});
ShellText unknown_text(std::string shown, ShellNames names, ShellPlace place = {});

/// Do both say the same, wherever they were written?
bool same_text(const ShellText& a, const ShellText& b);

/// Returns the piece with the choice in it; without it where that is of too many choices.
ShellPiece chosen_piece(ShellChoice choice, ShellPiece piece);

/// Is a choice always a word of its own at its beginning, or its end?
bool is_cut_before(const ShellPiece& piece);
bool is_cut_behind(const ShellPiece& piece);

/// What a text is whose value a condition decides: common words, then the choice.
ShellText chosen_text(const ShellText& yes, const ShellText& no, const std::string& condition,
                      const std::string& shown, const ShellNames& names);

}  // namespace penstock
