// SPDX-License-Identifier: Apache-2.0
#include "sweep/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cctype>
#include <cstdlib>

namespace penstock {
namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t kMostMantissa = 999'999'999'999'999'999;
constexpr std::int64_t kMostDigits15 = 999'999'999'999'999;
constexpr int kMostExponent = 400;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Without zeros at its end, so that equal values look alike.
Decimal without_zeros(Decimal d) {
  while (d.mantissa != 0 && d.mantissa % 10 == 0) {
    d.mantissa /= 10;
    ++d.exponent;
  }
  if (d.mantissa == 0) d.exponent = 0;
  return d;
}

/// Both at the smaller exponent; false when that has too many digits.
bool align(Decimal& a, Decimal& b) {
  if (a.mantissa == 0) a.exponent = b.exponent;
  if (b.mantissa == 0) b.exponent = a.exponent;
  Decimal& high = a.exponent > b.exponent ? a : b;
  const int low = std::min(a.exponent, b.exponent);
  for (; high.exponent > low; --high.exponent) {
    if (std::abs(high.mantissa) > kMostMantissa / 10) return false;
    high.mantissa *= 10;
  }
  return true;
}

/// A part of the text that is digits, from `at`.
std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

std::string with_point(std::string digits, int exponent) {
  if (exponent >= 0) return digits + std::string(static_cast<std::size_t>(exponent), '0');
  const auto places = static_cast<std::size_t>(-exponent);
  if (digits.size() <= places) digits.insert(0, places + 1 - digits.size(), '0');
  digits.insert(digits.size() - places, ".");
  return digits;
}

}  // namespace

NumberWithUnit split_unit(std::string_view text) {
  std::size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const std::size_t first = at;
  at = digits_end(text, at);
  std::size_t count = at - first;
  if (at < text.size() && text[at] == '.') {
    const std::size_t end = digits_end(text, at + 1);
    count += end - at - 1;
    at = end;
  }
  if (count == 0) return {};
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const bool sign = at + 1 < text.size() && (text[at + 1] == '-' || text[at + 1] == '+');
    const std::size_t end = digits_end(text, at + (sign ? 2 : 1));
    if (end > at + (sign ? 2U : 1U)) at = end;
  }
  std::string_view unit = text.substr(at);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  while (unit.ends_with(' ')) unit.remove_suffix(1);
  return {text.substr(0, at), unit};
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  const auto [number, unit] = split_unit(text);
  if (number.empty() || !unit.empty()) return std::nullopt;
  Decimal d;
  const std::size_t power = std::min(number.find_first_of("eE"), number.size());
  bool after_point = false;
  for (const char c : number.substr(0, power)) {
    if (c == '.') after_point = true;
    if (!is_digit(c)) continue;
    d.mantissa = d.mantissa * 10 + (c - '0');
    if (d.mantissa > kMostDigits15) return std::nullopt;
    if (after_point) --d.exponent;
  }
  if (power < number.size()) {
    std::string_view digits = number.substr(power + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int exponent = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc() || std::abs(exponent) > kMostExponent) return std::nullopt;
    d.exponent += exponent;
  }
  if (number.starts_with('-')) d.mantissa = -d.mantissa;
  return without_zeros(d);
}

std::string to_string(Decimal d) {
  d = without_zeros(d);
  const std::string sign = d.mantissa < 0 ? "-" : "";
  const std::string digits = std::to_string(std::abs(d.mantissa));
  if (d.exponent > 15 || d.exponent < -20) return fmt::format("{}{}e{}", sign, digits, d.exponent);
  return sign + with_point(digits, d.exponent);
}

std::optional<Decimal> plus(Decimal a, Decimal b) {
  if (!align(a, b)) return std::nullopt;
  const Decimal sum{a.mantissa + b.mantissa, a.exponent};
  if (std::abs(sum.mantissa) > kMostMantissa) return std::nullopt;
  return without_zeros(sum);
}

Decimal times(Decimal a, Decimal b) {
  Wide product = static_cast<Wide>(a.mantissa) * b.mantissa;
  int exponent = a.exponent + b.exponent;
  while (product > kMostDigits15 || product < -kMostDigits15) {
    const auto half = product < 0 ? -5 : 5;
    product = product > 10 * static_cast<Wide>(kMostDigits15) ||
                      product < -10 * static_cast<Wide>(kMostDigits15)
                  ? product / 10
                  : (product + half) / 10;
    ++exponent;
  }
  return without_zeros({static_cast<std::int64_t>(product), exponent});
}

bool less(Decimal a, Decimal b) {
  if ((a.mantissa < 0) != (b.mantissa < 0)) return a.mantissa < 0;
  if (align(a, b)) return a.mantissa < b.mantissa;
  // One is so much longer than the other that they cannot be aligned.
  const bool a_is_larger = a.exponent > b.exponent;
  return (a.mantissa < 0) == a_is_larger;
}

}  // namespace penstock
