// A row as a line of text and back: CSV (RFC 4180) or a JSON object.
#pragma once

#include "sweep/columns.hpp"

#include <optional>

namespace penstock {

class LineFormat {
 public:
  enum class Kind : std::uint8_t { csv, json };
  LineFormat(Kind kind, const std::vector<SweepColumn>& columns) : kind_(kind), columns_(columns) {}

  /// The first line of a file with its line feed; "" where there is none.
  std::string header() const;
  /// With its line feed.
  std::string line(const Cells& row) const;
  /// Nothing when the line is no row with these columns.
  std::optional<Cells> parse(const std::string& line) const;

 private:
  std::string json_line(const Cells& row) const;
  std::optional<Cells> parse_json(const std::string& line) const;

  Kind kind_;
  const std::vector<SweepColumn>& columns_;
};

/// Is this text a number as JSON writes them?
bool is_json_number(const std::string& text);

}  // namespace penstock
