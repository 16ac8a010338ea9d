// SPDX-License-Identifier: Apache-2.0
// Writes a row as a line of text, CSV (RFC 4180) or a JSON object, and reads it. Each line ends
// with a check of the text before it, so that --resume does not continue from a row that was
// changed.
#pragma once

#include "sweep/columns.hpp"

#include <optional>

namespace penstock {

class LineFormat {
 public:
  enum class Kind : std::uint8_t { csv, json };
  LineFormat(Kind kind, const std::vector<SweepColumn>& columns) : kind_(kind), columns_(columns) {}

  /// Returns the first line of a file with its line feed; "" in JSON, where there is none.
  std::string header() const;
  /// Returns the line of a row with its line feed.
  std::string line(const Cells& row) const;
  /// Returns whether a file whose first line was cut short may have begun with this.
  bool begins_as_ours(const std::string& cut) const;
  /// Returns the row of a line; none when it is no row with these columns, or its check is wrong.
  std::optional<Cells> parse(const std::string& line) const;

 private:
  std::string body(const Cells& row) const;
  std::string json_key(std::size_t column) const;
  std::optional<Cells> parse_json(const std::string& line) const;

  Kind kind_;
  const std::vector<SweepColumn>& columns_;
};

/// The column of checks.
inline constexpr std::string_view kCheckColumn = "check";

/// Of a row's text: 8 hexadecimal digits.
std::string check_of(std::string_view text);

/// Is this text a number as JSON writes them, of as many digits as a double keeps?
bool is_json_number(const std::string& text);

}  // namespace penstock
