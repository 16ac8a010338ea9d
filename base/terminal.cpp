// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.hpp"

#include "base/numbers.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace penstock {
namespace {

bool results_are_a_file = false;

bool is_command(std::string_view text) {
  return text.starts_with("penstock ") || text.starts_with("penstock-run ");
}

/// Where what a quote or a command begins here ends; `from`: it begins none.
std::size_t end_of_quoted(std::string_view text, std::size_t from) {
  if (is_command(text.substr(from)) && from >= 2 && text[from - 2] == ':') return text.size();
  std::size_t at = from;
  while (at < text.size() && (text[at] == '(' || text[at] == '[')) ++at;
  if (at == text.size() || (text[at] != '`' && text[at] != '\'')) return from;
  const std::size_t close = text.find(text[at], at + 1);
  return close == text.npos ? from : close + 1;
}

/// An option before its value, a number before its unit.
bool belongs_to_next(std::string_view word, std::string_view rest) {
  constexpr std::size_t kLongestUnit = 5;
  const bool number = word.back() >= '0' && word.back() <= '9';
  return word.starts_with("--") ||
         (number && rest.substr(0, rest.find(' ')).size() <= kLongestUnit);
}

/// The end of the word that begins here, with what must stay on its line; `room`: of a line.
std::size_t end_of_word(std::string_view text, std::size_t from, std::size_t room) {
  const auto end_from = [&](std::size_t at) { return std::min(text.find(' ', at), text.size()); };
  const auto has_room = [&](std::size_t end) {
    return display_width(text.substr(from, end - from)) <= room;
  };
  const std::size_t quoted = end_of_quoted(text, from);
  if (quoted > from && has_room(end_from(quoted))) return end_from(quoted);
  const std::size_t end = end_from(from);
  if (end == text.size() || !belongs_to_next(text.substr(from, end - from), text.substr(end + 1)))
    return end;
  const std::size_t with_value = end_of_word(text, end + 1, room);
  return has_room(with_value) ? with_value : end;
}

std::size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// Where lines that continue this one begin: below the text of its last column (of the one that the
/// next line goes on with), a little to the right where the next line begins there, too.
std::size_t hang_of(std::string_view line, std::string_view next, std::size_t width) {
  const std::size_t indent = indent_of(line), below = indent_of(next), most = width * 3 / 5;
  std::size_t hang = 0;
  for (std::size_t at = indent; (at = line.find("  ", at)) != line.npos;) {
    at = std::min(line.find_first_not_of(' ', at), line.size());
    if (display_width(line.substr(0, at)) <= most) hang = at;
  }
  const bool goes_on = below > indent + 2 && below < std::min(next.size(), most) &&
                       below < line.size() && line.substr(below - 2, 2) == "? ";
  if (goes_on && hang == 0) hang = below;
  return hang > 0 ? hang : indent;
}

/// A command is pasted whole; what is said of it goes below.
std::string command_lines(std::string_view line) {
  const std::size_t remark = line.find("  #");
  if (remark == line.npos) return std::string(line);
  const std::size_t indent = line.find_first_not_of(' ');
  const std::size_t end = line.find_last_not_of(' ', remark) + 1;
  return std::string(line.substr(0, end)) + '\n' + std::string(indent + 4, ' ') +
         std::string(line.substr(line.find('#', remark)));
}

std::string wrapped_line(std::string_view line, std::string_view next, std::size_t width) {
  const std::size_t indent = indent_of(line);
  if (display_width(line) <= width || line.find('\x1b') != line.npos) return std::string(line);
  if (indent > 0 && is_command(line.substr(indent))) return command_lines(line);
  const std::size_t first = hang_of(line, next, width);  // of what is broken
  const bool apart = first == indent || indent_of(next) == first;
  const bool remark = line.substr(indent).starts_with('#');  // so is what follows of it
  const std::size_t column =
      display_width(line.substr(0, first)) + (apart ? 2 : 0) + (remark ? 2 : 0);
  const std::size_t room = width > column + 8 ? width - column : 8;
  std::string out, now(line.substr(0, first));
  bool any = false;
  for (std::size_t at = first; at < line.size();) {
    const std::size_t end = end_of_word(line, at, room);
    const std::string_view word = line.substr(at, end - at);
    const std::size_t after = std::min(line.find_first_not_of(' ', end), line.size());
    if (any && display_width(now) + display_width(word) > width) {
      out += now.substr(0, now.find_last_not_of(' ') + 1) + '\n';
      now = std::string(column, ' ');
      if (remark) now[indent] = '#';
    }
    now += std::string(word) + std::string(after - end, ' ');
    any = true;
    at = after;
  }
  return out + now.substr(0, now.find_last_not_of(' ') + 1);
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t terminal_width(int stream) {
  const char* const columns = std::getenv("COLUMNS");
  const auto width = parse_number<std::size_t>(columns == nullptr ? "" : columns);
  if (width.value_or(0) > 0) return *width;
  winsize size{};
  if (isatty(stream) == 0 || ioctl(stream, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::size_t results_width() { return results_are_a_file ? 0 : terminal_width(); }

void set_results_to_file(bool to_file) { results_are_a_file = to_file; }

std::vector<std::string> lines_of_words(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != text.npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word(text.substr(at, end - at));
    if (lines.empty() || display_width(lines.back()) + 1 + display_width(word) > width)
      lines.push_back(word);
    else
      lines.back() += " " + word;
    at = end;
  }
  return lines;
}

std::string wrapped(std::string_view text, std::size_t width) {
  if (width == 0) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view rest = text.substr(std::min(end + 1, text.size()));
    out += wrapped_line(text.substr(at, end - at), rest.substr(0, rest.find('\n')), width);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace penstock
