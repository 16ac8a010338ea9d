// SPDX-License-Identifier: Apache-2.0
#include "sweep/line_format.hpp"

#include "base/json.hpp"
#include "sweep/manifest.hpp"
#include "sweep/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

void append_csv(std::string& line, const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) line += c == '"' ? std::string("\"\"") : std::string(1, c);
  line += '"';
}

std::string csv_line(const Cells& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != &cells.front()) line += ',';
    append_csv(line, cell);
  }
  return line;
}

/// Nothing when a quote is not closed.
std::optional<Cells> parse_csv(const std::string& line) {
  Cells cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool doubled = quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"';
    if (doubled) {
      cells.back() += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  if (quoted) return std::nullopt;
  return cells;
}

std::string quoted_json(const std::string& text) { return Json(text).dump(); }

std::string json_value(SweepColumn::Type type, const std::string& cell) {
  using Type = SweepColumn::Type;
  if (cell.empty()) return "null";
  const bool number =
      type == Type::integer || type == Type::number || (type != Type::text && is_json_number(cell));
  const bool boolean = type == Type::value && (cell == "true" || cell == "false");
  return number || boolean ? cell : quoted_json(cell);
}

std::size_t json_value_end(const std::string& line, std::size_t at) {
  if (at >= line.size() || line[at] != '"')
    return std::min(line.find_first_of(",}", at), line.size());
  for (++at; at < line.size() && line[at] != '"'; ++at)
    if (line[at] == '\\') ++at;
  return std::min(at + 1, line.size());
}

/// Nothing when a column of this type has no such value.
std::optional<std::string> json_cell(SweepColumn::Type type, const std::string& value) {
  using Type = SweepColumn::Type;
  if (value == "null") return "";
  const auto parsed = Json::parse_if(value);
  if (!parsed) return std::nullopt;
  if (parsed->is_number() || (type == Type::value && (value == "true" || value == "false")))
    return value;
  const bool text = parsed->is_string() && type != Type::integer && type != Type::number;
  return text ? std::optional(parsed->get<std::string>()) : std::nullopt;
}

std::string before_check(LineFormat::Kind kind) {
  return kind == LineFormat::Kind::csv ? "," : fmt::format(",\"{}\":\"", kCheckColumn);
}
std::string after_check(LineFormat::Kind kind) { return kind == LineFormat::Kind::csv ? "" : "\""; }

}  // namespace

std::string check_of(std::string_view text) { return hash_of(text).substr(0, 8); }

bool is_json_number(const std::string& text) {
  const auto parsed = Json::parse_if(text);
  // More digits than a double keeps stay text, so that nothing is lost.
  return parsed && parsed->is_number() && parse_decimal(text).has_value();
}

std::string LineFormat::header() const {
  if (kind_ == Kind::json) return "";
  Cells names;
  for (const SweepColumn& column : columns_) names.push_back(column.name);
  names.emplace_back(kCheckColumn);
  return csv_line(names) + '\n';
}

bool LineFormat::begins_as_ours(const std::string& cut) const {
  const std::string begin = kind_ == Kind::csv ? header() : json_key(0);
  return begin.starts_with(cut.substr(0, begin.size()));
}

std::string LineFormat::json_key(std::size_t column) const {
  return fmt::format("{}{}:", column == 0 ? "{" : ",", quoted_json(columns_[column].name));
}

std::string LineFormat::line(const Cells& row) const {
  const std::string text = body(row);
  const char* const end = kind_ == Kind::csv ? "\n" : "}\n";
  return text + before_check(kind_) + check_of(text) + after_check(kind_) + end;
}

std::string LineFormat::body(const Cells& row) const {
  if (kind_ == Kind::csv) return csv_line(row);
  std::string line;
  for (std::size_t c = 0; c < row.size(); ++c)
    line += json_key(c) + json_value(columns_[c].type, row[c]);
  return line;
}

std::optional<Cells> LineFormat::parse(const std::string& whole) const {
  const std::size_t at = whole.rfind(before_check(kind_));
  if (at == std::string::npos) return std::nullopt;
  std::string line = whole.substr(0, at);
  const char* const end = kind_ == Kind::csv ? "" : "}";
  if (whole.substr(at) != before_check(kind_) + check_of(line) + after_check(kind_) + end)
    return std::nullopt;
  line += end;
  auto cells = kind_ == Kind::csv ? parse_csv(line) : parse_json(line);
  if (cells && cells->size() != columns_.size()) return std::nullopt;
  return cells;
}

/// Values are taken as they stand, so that a row is written again to the same bytes (1.50).
std::optional<Cells> LineFormat::parse_json(const std::string& line) const {
  Cells cells;
  std::size_t at = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::string key = json_key(c);
    if (line.compare(at, key.size(), key) != 0) return std::nullopt;
    at += key.size();
    const std::size_t end = json_value_end(line, at);
    auto cell = json_cell(columns_[c].type, line.substr(at, end - at));
    if (!cell) return std::nullopt;
    cells.push_back(std::move(*cell));
    at = end;
  }
  if (line.substr(at) != "}") return std::nullopt;
  return cells;
}

}  // namespace penstock
