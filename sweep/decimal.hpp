// SPDX-License-Identifier: Apache-2.0
// Decimal numbers, so that ranges are exact: 0.1 added ten times is 1.
//
// A value is mantissa * 10^exponent with a mantissa below 10^18. Sums must fit; products keep 15
// significant digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

struct Decimal {
  std::int64_t mantissa = 0;
  int exponent = 0;
};

/// Returns the number of a text such as "1.5" or "-3e4"; none when it is no number of at most 15
/// digits.
std::optional<Decimal> parse_decimal(std::string_view text);

/// Returns a number as people write it, with an exponent only where it would be long: "0.001",
/// "1500", "1e-30".
std::string to_string(Decimal value);

/// Returns the sum; none when it has too many digits.
std::optional<Decimal> plus(Decimal a, Decimal b);
/// Returns the product, rounded to 15 digits.
Decimal times(Decimal a, Decimal b);
bool less(Decimal a, Decimal b);

/// A text such as "1.5ms" as "1.5" and "ms"; the number is empty where the text does not begin with
/// one.
struct NumberWithUnit {
  std::string_view number, unit;
};
NumberWithUnit split_unit(std::string_view text);

}  // namespace penstock
