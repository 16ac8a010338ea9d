// SPDX-License-Identifier: Apache-2.0
// The commands of a shell script as a tree, read as bash reads them (its manual, "Shell Syntax" and
// "Shell Commands"). Words stay as they are written: what they come to depends on when they are
// reached.
#pragma once

#include "scenarios/shell_text.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

/// What bash would not take, or what goes beyond the limits here.
struct ShellError {
  ShellPlace place;
  std::string message;
};

/// Text of a source: [begin, end).
struct ShellWord {
  const ShellSource* source = nullptr;
  std::size_t begin = 0, end = 0;

  std::string text() const { return source->text.substr(begin, end - begin); }
  ShellPlace place() const { return source->place(begin); }
};

/// `NAME=value`, `NAME[index]+=value`, `NAME=(a [index]=b)`.
struct ShellAssignment {
  std::string name;
  ShellWord index;  ///< no source: there is none
  bool adds = false, is_array = false;
  ShellWord value;
  struct Element {
    ShellWord index, value;
    bool adds = false;
  };
  std::vector<Element> elements{};
};

struct ShellArgument {
  ShellWord word;
  std::shared_ptr<const ShellAssignment> assignment;  ///< where it is one
};

struct ShellRedirection {
  enum class Kind : std::uint8_t {
    other,
    file,
    text,
    document,
    output
  };  ///< `<`, `<<<`, `<<`, `>`
  Kind kind = Kind::other;
  ShellWord word{};      ///< of a document: its lines
  bool literal = false;  ///< a document whose delimiter is quoted
  bool strips = false;   ///< its lines lose leading tabs
  bool adds = false;     ///< `>>`
};

struct ShellNode {
  enum class Kind : std::uint8_t {
    simple,    // arguments
    sequence,  // children, one after the other
    and_list,
    or_list,   // two children
    pipeline,  // children, each in a shell of its own
    background,
    subshell,
    group,
    branches,  // condition, body, condition, body, ..., or the last body
    cases,     // word; patterns, bodies
    loop,      // `for NAME in words`
    counting,  // for ((word)): body
    repeat,    // while, until: condition, body
    function,  // name, body
    arithmetic,
    conditional  // ((word)), [[ words ]]
  };
  Kind kind = Kind::simple;
  ShellWord all{};  ///< as it is written
  std::vector<std::shared_ptr<const ShellNode>> children{};
  std::vector<ShellArgument> arguments{};  ///< assignments first
  std::vector<ShellWord> words{};
  std::vector<ShellRedirection> redirections{};
  struct Case {
    std::vector<ShellWord> patterns;
  };
  std::vector<Case> patterns{};
  std::string name{};
  bool negated = false;  ///< of a pipeline: `!`; of a repeat: until; of a loop: over all arguments
  bool falls = false;    ///< cases, some of which end with `;&` or `;;&`
  bool asks = false;     ///< of a loop: `select`
};

using ShellTree = std::shared_ptr<const ShellNode>;

/// `lines_end_commands`: not in a list of arguments. Throws ShellError.
ShellTree read_shell(const ShellSource& source, bool lines_end_commands = true);
ShellTree read_shell(const ShellWord& part);

/// Behind what begins at `at`: '$' and what belongs to it, a quoted text, `...`. Throws ShellError
/// where it does not end.
std::size_t end_of_dollar(const ShellSource& source, std::size_t at, bool quoted);
std::size_t end_of_quotes(const ShellSource& source, std::size_t at);
/// Of the brace or parenthesis that was opened before `at`, the place of the one that closes it.
std::size_t closing_brace(const ShellSource& source, std::size_t at, bool quoted);
std::size_t closing_parenthesis(const ShellSource& source, std::size_t at);
bool is_arithmetic(const ShellSource& source, std::size_t open, std::size_t close);

}  // namespace penstock
