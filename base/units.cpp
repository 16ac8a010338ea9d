// SPDX-License-Identifier: Apache-2.0
#include "base/units.hpp"

#include "base/suggest.hpp"
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace penstock {
namespace {

/// value = number * 10^exponent * factor. The power of ten goes into the number's text before it is
/// parsed and the factor is exact in binary or whole, so that "0.1 ms" is the double 0.0001.
struct Unit {
  const char* name;
  int exponent;
  double factor = 1;
};

struct Table {
  const char* what;
  const char* example;
  const char* shown;  // the units, for people
  std::vector<Unit> units;
};

const Table& table(Dimension dimension) {
  static const Table kTables[] = {
      {"a time",
       "1.5 us",
       "s, ms, us, ns, min, h",
       {{"s", 0}, {"ms", -3}, {"us", -6}, {"ns", -9}, {"min", 0, 60}, {"h", 0, 3600}}},
      {"a size",
       "16 GiB",
       "B, KB to TB, KiB to TiB",
       {{"B", 0},
        {"KB", 3},
        {"MB", 6},
        {"GB", 9},
        {"TB", 12},
        {"KiB", 0, 0x1p10},
        {"MiB", 0, 0x1p20},
        {"GiB", 0, 0x1p30},
        {"TiB", 0, 0x1p40}}},
      {"a bandwidth",
       "25 GB/s",
       "B/s, KB/s to TB/s, KiB/s to GiB/s, bit/s or bps, Kbps to Tbps",
       {{"B/s", 0},
        {"KB/s", 3},
        {"MB/s", 6},
        {"GB/s", 9},
        {"TB/s", 12},
        {"KiB/s", 0, 0x1p10},
        {"MiB/s", 0, 0x1p20},
        {"GiB/s", 0, 0x1p30},
        {"bps", 0, 0.125},
        {"Kbps", 3, 0.125},
        {"Mbps", 6, 0.125},
        {"Gbps", 9, 0.125},
        {"Tbps", 12, 0.125},
        {"bit/s", 0, 0.125},
        {"Kbit/s", 3, 0.125},
        {"Mbit/s", 6, 0.125},
        {"Gbit/s", 9, 0.125},
        {"Tbit/s", 12, 0.125}}},
      {"a compute rate",
       "125 TFLOP/s",
       "FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s",
       {{"FLOP/s", 0},
        {"GFLOP/s", 9},
        {"TFLOP/s", 12},
        {"PFLOP/s", 15},
        {"GFLOPS", 9},
        {"TFLOPS", 12},
        {"PFLOPS", 15}}},
      {"a share", "6%", "", {{"%", -2}}},
      {"a number", "3", "", {}},
  };
  return kTables[static_cast<int>(dimension)];
}

/// What people write for units, where the nearest spelling would be another one: GBps is 8 Gbps.
constexpr std::pair<std::string_view, std::string_view> kMeant[] = {
    {"sec", "s"},       {"secs", "s"},      {"second", "s"},    {"seconds", "s"},
    {"msec", "ms"},     {"usec", "us"},     {"nsec", "ns"},     {"minutes", "min"},
    {"m", "ms"},        {"hours", "h"},     {"bytes", "B"},     {"byte", "B"},
    {"K", "KiB"},       {"M", "MiB"},       {"G", "GiB"},       {"T", "TiB"},
    {"k", "KiB"},       {"KBps", "KB/s"},   {"MBps", "MB/s"},   {"GBps", "GB/s"},
    {"TBps", "TB/s"},   {"Gb/s", "Gbit/s"}, {"Mb/s", "Mbit/s"}, {"Tb/s", "Tbit/s"},
    {"TF", "TFLOP/s"},  {"PF", "PFLOP/s"},  {"G", "GB/s"},      {"T", "TFLOP/s"},
    {"Gbit", "Gbit/s"}, {"Gb", "Gbit/s"},   {"M", "MB/s"}};

bool needs_unit(Dimension dimension) {
  return dimension != Dimension::fraction && dimension != Dimension::number;
}

/// "1.5e-3 us" as its number and its unit; an empty number where there is none.
struct Parts {
  std::string_view mantissa, unit;
  int exponent = 0;
};

std::size_t digits(std::string_view text, std::size_t from) {
  while (from < text.size() && text[from] >= '0' && text[from] <= '9') ++from;
  return from;
}

Parts split(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::size_t whole = text.starts_with('-') ? 1 : 0;
  std::size_t end = digits(text, whole);
  std::size_t count = end - whole;
  if (end < text.size() && text[end] == '.') {
    const std::size_t point = end + 1;
    end = digits(text, point);
    count += end - point;
  }
  if (count == 0) return {};
  Parts parts{text.substr(0, end), {}};
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t from = end + 1;
    if (from < text.size() && text[from] == '+') ++from;
    const char* last = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + from, last, parts.exponent);
    if (error == std::errc::result_out_of_range)
      parts.exponent = text[from] == '-' ? -100'000 : 100'000;
    if (error != std::errc::invalid_argument) end = static_cast<std::size_t>(stop - text.data());
  }
  parts.exponent = std::clamp(parts.exponent, -100'000, 100'000);
  parts.unit = trimmed(text.substr(end));
  return parts;
}

/// mantissa * 10^exponent, correctly rounded; infinite when it is too large.
double decimal(std::string_view mantissa, int exponent) {
  const std::string text = fmt::format("{}e{}", mantissa, exponent);
  return std::strtod(text.c_str(), nullptr);
}

const Unit* find_unit(std::string_view unit, Dimension dimension) {
  if (dimension == Dimension::time && (unit == "µs" || unit == "μs")) unit = "us";
  for (const Unit& u : table(dimension).units) {
    if (unit == u.name) return &u;
  }
  return nullptr;
}

/// "; did you mean 'GB/s'?" for a unit that is none of this dimension.
std::string meant_unit(std::string_view unit, Dimension dimension) {
  std::vector<std::string> known;
  for (const Unit& u : table(dimension).units) known.emplace_back(u.name);
  const auto suggest = [](std::string_view name) {
    return fmt::format("; did you mean '{}'?", name);
  };
  const std::string per_second = std::string(unit) + "/s";
  if (find_unit(per_second, dimension) != nullptr) return suggest(per_second);
  for (const auto& [seen, meant] : kMeant) {
    if (unit == seen && find_unit(meant, dimension) != nullptr) return suggest(meant);
  }
  return did_you_mean(unit, known);
}

std::string unknown_unit(std::string_view unit, Dimension dimension) {
  if (table(dimension).units.empty()) return "is not a plain number";
  if (unit.starts_with(',')) return "has a comma; decimals follow a point, as in '1.5'";
  const bool word = std::isalpha(static_cast<unsigned char>(unit[0])) != 0 || unit == "%";
  if (!word) return needs_unit(dimension) ? "is not a number with a unit" : "is not a number";
  for (const Dimension other : {Dimension::time, Dimension::bytes, Dimension::bandwidth,
                                Dimension::flops_rate, Dimension::fraction}) {
    if (find_unit(unit, other) == nullptr) continue;
    const std::string per_second = std::string(unit) + "/s";
    const bool rate = find_unit(per_second, dimension) != nullptr;
    return fmt::format("is {}, not {}{}", table(other).what, table(dimension).what,
                       rate ? fmt::format("; did you mean '{}'?", per_second) : "");
  }
  return fmt::format("has the unknown unit '{}'{}", unit.substr(0, 20),
                     meant_unit(unit, dimension));
}

std::string scaled(double value, const char* const* units, int count, double step) {
  int i = 0;
  while (i + 1 < count && std::abs(value) >= step * (1 - 5e-4)) {
    value /= step;
    ++i;
  }
  return fmt::format("{:.{}f} {}", value,
                     std::abs(value) >= 99.95   ? 0
                     : std::abs(value) >= 9.995 ? 1
                                                : 2,
                     units[i]);
}

}  // namespace

std::string describe(Dimension dimension) {
  const Table& t = table(dimension);
  if (*t.shown == '\0') return fmt::format("{} such as '{}'", t.what, t.example);
  return fmt::format("{} such as '{}' (units: {})", t.what, t.example, t.shown);
}

std::string pattern(Dimension dimension) {
  std::string units;
  for (const Unit& unit : table(dimension).units) {
    if (!units.empty()) units += '|';
    units += unit.name;
  }
  if (dimension == Dimension::time) units += "|µs|μs";
  const std::string number = "[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?";
  if (units.empty()) return "^" + number + "$";
  return "^(0|" + number + " *(" + units + "))$";
}

std::optional<double> parse_quantity(std::string_view text, Dimension dimension, std::string& why) {
  const Parts parts = split(text);
  if (parts.mantissa.empty()) {
    why = needs_unit(dimension) ? "is not a number with a unit" : "is not a number";
    return std::nullopt;
  }
  const Unit* unit = find_unit(parts.unit, dimension);
  if (unit == nullptr && !parts.unit.empty()) {
    why = unknown_unit(parts.unit, dimension);
    return std::nullopt;
  }
  const double value =
      unit == nullptr ? decimal(parts.mantissa, parts.exponent)
                      : decimal(parts.mantissa, parts.exponent + unit->exponent) * unit->factor;
  if (unit == nullptr && needs_unit(dimension) && value != 0) {
    why = "has no unit";
    return std::nullopt;
  }
  if (!std::isfinite(value)) {
    why = "is too large";
    return std::nullopt;
  }
  return value;
}

std::string format_time(double seconds) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  if (seconds == 0) return "0 s";
  return scaled(seconds * 1e9, kUnits, 4, 1000);
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (std::abs(bytes) < 1024) return fmt::format("{:.0f} B", bytes);
  return scaled(bytes, kUnits, 5, 1024);
}

std::string ByteUnit::text(std::int64_t value) const {
  if (value == 0) return "0";
  const std::string digits = fmt::format("{:.{}f}", static_cast<double>(value) / bytes, decimals);
  const bool nothing = value > 0 && digits.find_first_not_of("0.") == std::string::npos;
  return nothing ? "<" + digits.substr(0, digits.size() - 1) + "1" : digits;
}

ByteUnit byte_unit(std::int64_t largest) {
  constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;
  if (largest < kMiB) return {"KiB", 1024};
  if (largest < kGiB) return {"MiB", kMiB, largest < 100 * kMiB ? 2 : 1};
  return {"GiB", kGiB};
}

std::string format_bandwidth(double bytes_per_s) {
  static constexpr const char* kUnits[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
  if (std::isinf(bytes_per_s)) return "unlimited";
  return scaled(bytes_per_s, kUnits, 5, 1000);
}

std::string format_percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t i = digits.size(); i > 3 + (count < 0 ? 1U : 0U); i -= 3)
    digits.insert(i - 3, ",");
  return digits;
}

std::string counted(std::int64_t count, std::string_view what) {
  const char* ending = count == 1 ? "" : what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, ending);
}

}  // namespace penstock
