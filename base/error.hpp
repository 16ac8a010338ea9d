// SPDX-License-Identifier: Apache-2.0
// Three kinds of error; whoever throws must choose.
//   InputError   the user's file or flag is wrong: where, what was seen, what is allowed, a hint
//   SystemError  the operating system (or a driver) refused: operation + object + its own text
//   InternalBug  an invariant does not hold; no input may reach it
// Errors are thrown where they are found and caught once, in main.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock {

/// A place in an input: a file and a 1-based line and column, or a flag such as `--set a=b`.
struct Position {
  std::string origin;
  int line = 0;    ///< 0: the whole of `origin`
  int column = 0;  ///< in characters
};

/// What is wrong, where a program acts on it: a message is for people.
enum class Reason : std::uint8_t { other, too_few_devices };

/// One thing wrong with an input.
struct Diagnostic {
  Position where;
  std::string message;
  std::string source_line;  ///< the line of the file, for the caret; may be empty
  int length = 1;           ///< characters to underline
  int source_offset = 0;  ///< characters of the line before `source_line` (0: it is the whole line)
  Reason reason = Reason::other;
  std::int64_t devices = 0;  ///< that there are, of too_few_devices
};

/// `file:line:column: message`, and the source line with a caret where there is one, cut around it
/// to so many characters.
std::string render(const Diagnostic& diagnostic, int characters = 100);

class InputError : public std::runtime_error {
 public:
  explicit InputError(std::vector<Diagnostic> diagnostics);
  /// An error about `origin` as a whole (a flag, a missing file).
  InputError(const std::string& origin, const std::string& message);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  /// As what() says it, but with source lines of at most so many characters.
  std::string rendered(int characters) const;

 private:
  std::vector<Diagnostic> diagnostics_;
};

/// Both: of diagnostics with the same message the first.
InputError together(const InputError& error, const std::vector<Diagnostic>& more);

class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// "cannot OPERATION 'OBJECT': <errno text>".
  static SystemError from_errno(const std::string& operation, const std::string& object);
};

class InternalBug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// What to say of an error. Of memory that is not there "out of memory", which takes none.
std::string what_of(const std::exception& error);

/// Throws InternalBug unless `holds`.
inline void invariant(bool holds, const char* what) {
  if (!holds) throw InternalBug(what);
}

}  // namespace penstock
