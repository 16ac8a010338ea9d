#include "sweep/line_format.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

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
  return line + '\n';
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

std::string quoted_json(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

bool is_json_number(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  // Read back, the text must be the same: "1.50" and 20 digits stay texts.
  return parsed.is_number() && parsed.dump() == text;
}

std::string LineFormat::header() const {
  if (kind_ == Kind::json) return "";
  Cells names;
  for (const SweepColumn& column : columns_) names.push_back(column.name);
  return csv_line(names);
}

std::string LineFormat::line(const Cells& row) const {
  return kind_ == Kind::csv ? csv_line(row) : json_line(row);
}

std::string LineFormat::json_line(const Cells& row) const {
  using Type = SweepColumn::Type;
  std::string line;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const Type type = columns_[c].type;
    const bool number = type == Type::integer || type == Type::number ||
                        (type == Type::value && is_json_number(row[c]));
    line += fmt::format("{}{}:", c == 0 ? "{" : ",", quoted_json(columns_[c].name));
    line += !number ? quoted_json(row[c]) : row[c].empty() ? "null" : row[c];
  }
  return line + "}\n";
}

std::optional<Cells> LineFormat::parse(const std::string& line) const {
  auto cells = kind_ == Kind::csv ? parse_csv(line) : parse_json(line);
  if (cells && cells->size() != columns_.size()) return std::nullopt;
  return cells;
}

std::optional<Cells> LineFormat::parse_json(const std::string& line) const {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object() || object.size() != columns_.size()) return std::nullopt;
  Cells cells;
  for (const SweepColumn& column : columns_) {
    const auto at = object.find(column.name);
    if (at == object.end()) return std::nullopt;
    if (at->is_string()) {
      cells.push_back(at->get<std::string>());
    } else if (at->is_number_float()) {
      cells.push_back(number_cell(at->get<double>()));
    } else {
      cells.push_back(at->is_null() ? "" : at->dump());
    }
  }
  return cells;
}

}  // namespace penstock
