// SPDX-License-Identifier: Apache-2.0
// What a program says on its standard streams: messages never end it, lost output does.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <new>
#include <string>
#include <string_view>

namespace penstock {

/// Opens /dev/null in place of standard streams that are closed, so that no file gets their number.
/// Writing to a closed standard output still fails. First thing in main.
void keep_standard_streams();

/// Is this a byte of a UTF-8 sequence that is not its first?
inline bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
/// Bytes of the UTF-8 sequence that a text, which is not empty, starts with; 0: none.
std::size_t utf8_length(std::string_view text);

/// How a text, which is not empty, begins.
struct ShownCharacter {
  std::size_t bytes;   ///< of its first character
  std::string escape;  ///< instead of one that a terminal would obey, or that is no UTF-8; else ""
};
ShownCharacter shown_character(std::string_view text);

/// Returns `text` with control characters other than the `kept` ones, marks that change the
/// direction of writing, and what is no UTF-8 written out (\x1b, \u202e): a terminal obeys none
/// that a file's name or its content holds.
std::string without_controls(std::string_view text, std::string_view kept = "\n\t");

/// Writes to standard error, `without_controls`, in lines as wide as there is room, or
/// whole, for programs; when that is full or closed nothing is said. Without memory the text is
/// written as it is.
enum class Wrap { yes, no };
void say_text(std::string_view text, Wrap wrap = Wrap::yes) noexcept;

/// Writes what people read to standard output, `without_controls`, in lines as wide as there is
/// room.
void print_text(std::string_view text);
/// The same of a drawing with colours, whose texts are `without_controls` already.
void print_painted(std::string_view text);

/// The same. Where there is no memory to put the parts together, that is said instead.
template <class... Parts>
void say(fmt::format_string<Parts...> format, Parts&&... parts) {
  try {
    say_text(fmt::format(format, std::forward<Parts>(parts)...));
  } catch (const std::bad_alloc&) {
    say_text("penstock: not enough memory, not even to say what is wrong\n");
  }
}

/// Hands on what was printed so far; `require_output` knows when that failed.
void flush_output() noexcept;

/// Throws SystemError unless all that was printed on standard output has been written.
void require_output();

}  // namespace penstock
