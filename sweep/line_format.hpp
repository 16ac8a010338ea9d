// SPDX-License-Identifier: Apache-2.0
// A row as a line of text and back: CSV (RFC 4180) or a JSON object. Each line ends with a
// check of what stands before it, so that --resume does not go on from a row that was changed.
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
  /// May a file whose first line was cut have begun with this?
  bool begins_as_ours(const std::string& cut) const;
  /// Nothing when the line is no row with these columns, or its check is wrong.
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
