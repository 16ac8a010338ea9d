// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace penstock {
namespace {

/// The line as characters, tabs as one blank each so that the caret stays in its column.
std::vector<std::string> characters_of(const std::string& line) {
  std::vector<std::string> out;
  for (const char c : line) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80 && !out.empty();
    if (continues) {
      out.back() += c;
    } else {
      out.emplace_back(1, c == '\t' ? ' ' : c);
    }
  }
  return out;
}

std::string excerpt(const Diagnostic& d, int width) {
  const std::vector<std::string> line = characters_of(d.source_line);
  const int size = static_cast<int>(line.size());
  const int caret = std::clamp(d.where.column - 1 - d.source_offset, 0, size);
  const int from = size > width && caret > width - 20 ? std::max(caret - width / 2, 0) : 0;
  const int to = std::min(size, from + width);
  const bool cut = from > 0 || d.source_offset > 0;
  std::string shown = cut ? "…" : "";
  for (int i = from; i < to; ++i) shown += line[static_cast<std::size_t>(i)];
  if (to < size) shown += "…";
  const int blanks = caret - from + (cut ? 1 : 0);
  const int underlined = std::clamp(d.length, 1, std::max(1, to - caret)) - 1;
  const std::string number = std::to_string(d.where.line);
  return fmt::format("\n   {} | {}\n   {:{}} | {:{}}^{:~<{}}", number, shown, "", number.size(), "",
                     blanks, "", underlined);
}

std::string join(const std::vector<Diagnostic>& diagnostics, int characters = 100) {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    if (!text.empty()) text += '\n';
    text += render(d, characters);
  }
  return text;
}

}  // namespace

std::string render(const Diagnostic& d, int characters) {
  std::string text = d.where.origin;
  if (d.where.line > 0) text += fmt::format(":{}:{}", d.where.line, d.where.column);
  text += ": " + d.message;
  if (d.where.line > 0 && !d.source_line.empty()) text += excerpt(d, characters);
  return text;
}

InputError::InputError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join(diagnostics)), diagnostics_(std::move(diagnostics)) {}

InputError::InputError(const std::string& origin, const std::string& message)
    : InputError(std::vector<Diagnostic>(1, Diagnostic{Position{origin, 0, 0}, message, "", 1})) {}

std::string InputError::rendered(int characters) const { return join(diagnostics_, characters); }

InputError together(const InputError& error, const std::vector<Diagnostic>& more) {
  std::vector<Diagnostic> all = error.diagnostics();
  for (const Diagnostic& d : more)
    if (std::ranges::find(all, d.message, &Diagnostic::message) == all.end()) all.push_back(d);
  return InputError(std::move(all));
}

SystemError SystemError::from_errno(const std::string& operation, const std::string& object) {
  return SystemError(fmt::format("cannot {} '{}': {}", operation, object, std::strerror(errno)));
}

std::string what_of(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

}  // namespace penstock
