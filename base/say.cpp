#include "base/say.hpp"

#include "base/error.hpp"
#include "base/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
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

std::string without_controls(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
      continue;
    }
    if (c == 0xc2 && next < 0xa0) {  // U+0080 to U+009F
      out += fmt::format("\\u{:04x}", next);
    } else {
      out += text.substr(i, length);
    }
    i += length - 1;
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

void print_text(std::string_view text) {
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
