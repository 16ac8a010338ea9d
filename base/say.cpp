// SPDX-License-Identifier: Apache-2.0
#include "base/say.hpp"

#include "base/error.hpp"
#include "base/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>

namespace penstock {
namespace {

int output_error = 0;  // errno of the first write to standard output that failed

}  // namespace

void keep_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest that is free, so it takes this place.
    if (::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first <= 0xDF ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!is_continuation(text[i])) return 0;
  return length;
}

namespace {

/// The code of the UTF-8 sequence of `length` bytes that a text starts with.
char32_t code_of(std::string_view text, std::size_t length) {
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t code = length == 1 ? first : first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fU);
  return code;
}

/// Does a terminal obey it (C0, DEL, C1), or does it change the direction of what is written
/// (UAX 9's marks, embeddings, overrides and isolates)?
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

ShownCharacter shown_character(std::string_view text) {
  const std::size_t length = utf8_length(text);
  const char32_t code = length == 0 ? static_cast<unsigned char>(text[0]) : code_of(text, length);
  if (length > 0 && !is_control(code)) return {length, ""};
  return {std::max<std::size_t>(length, 1),
          length > 1 ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code))
                     : fmt::format("\\x{:02x}", static_cast<std::uint32_t>(code))};
}

std::string without_controls(std::string_view text, std::string_view kept) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const ShownCharacter c = shown_character(text.substr(i));
    if (c.escape.empty() || kept.find(text[i]) != kept.npos)
      out += text.substr(i, c.bytes);
    else
      out += c.escape;
    i += c.bytes;
  }
  return out;
}

void say_text(std::string_view text, Wrap wrap) noexcept {
  try {
    const std::size_t width = wrap == Wrap::no ? 0 : terminal_width(STDERR_FILENO);
    const std::string shown = wrapped(without_controls(text), width);
    std::fwrite(shown.data(), 1, shown.size(), stderr);
  } catch (const std::exception&) {  // no memory to say it
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

void print_text(std::string_view text) { print_painted(without_controls(text)); }

void print_painted(std::string_view text) {
  fmt::print("{}", wrapped(text, terminal_width(STDOUT_FILENO)));
}

void flush_output() noexcept {
  if (std::fflush(stdout) != 0 && output_error == 0) output_error = errno;
}

void require_output() {
  flush_output();
  if (output_error == 0 && std::ferror(stdout) != 0) output_error = EIO;
  if (output_error == 0) return;
  errno = output_error;
  throw SystemError::from_errno("write", "standard output");
}

}  // namespace penstock
