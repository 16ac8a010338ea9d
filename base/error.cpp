#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock {
namespace {

constexpr int kWidth = 100;  // longer source lines are cut around the caret

std::string excerpt(const Diagnostic& d) {
  std::string line = d.source_line;
  std::replace(line.begin(), line.end(), '\t', ' ');
  int column = d.where.column;
  if (column > kWidth - 20) {
    const int cut = column - kWidth / 2;
    line = "…" + line.substr(std::min<std::size_t>(static_cast<std::size_t>(cut), line.size()));
    column -= cut - 1;
  }
  if (line.size() > kWidth) line = line.substr(0, kWidth) + "…";
  const int room = std::max(1, static_cast<int>(line.size()) - column + 1);
  const std::string number = std::to_string(d.where.line);
  return fmt::format("\n   {} | {}\n   {} | {}^{}", number, line, std::string(number.size(), ' '),
                     std::string(static_cast<std::size_t>(std::max(0, column - 1)), ' '),
                     std::string(static_cast<std::size_t>(std::clamp(d.length, 1, room) - 1), '~'));
}

std::string join(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    if (!text.empty()) text += '\n';
    text += render(d);
  }
  return text;
}

}  // namespace

std::string render(const Diagnostic& d) {
  std::string text = d.where.origin;
  if (d.where.line > 0) text += fmt::format(":{}:{}", d.where.line, d.where.column);
  text += ": " + d.message;
  if (d.where.line > 0 && !d.source_line.empty()) text += excerpt(d);
  return text;
}

InputError::InputError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join(diagnostics)), diagnostics_(std::move(diagnostics)) {}

InputError::InputError(const std::string& origin, const std::string& message)
    : InputError(std::vector<Diagnostic>(1, Diagnostic{Position{origin, 0, 0}, message, "", 1})) {}

SystemError SystemError::from_errno(const std::string& operation, const std::string& object) {
  return SystemError(fmt::format("cannot {} '{}': {}", operation, object, std::strerror(errno)));
}

}  // namespace penstock
