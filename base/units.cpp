#include "base/units.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <vector>

namespace penstock {
namespace {

struct Unit {
  const char* name;
  double factor;
};

struct Table {
  const char* what;
  const char* example;
  std::vector<Unit> units;
};

const Table& table(Dimension dimension) {
  static const Table kTables[] = {
      {"a time",
       "1.5 us",
       {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"min", 60}, {"h", 3600}}},
      {"a size",
       "16 GiB",
       {{"B", 1},
        {"KB", 1e3},
        {"MB", 1e6},
        {"GB", 1e9},
        {"TB", 1e12},
        {"KiB", 1024.0},
        {"MiB", 1048576.0},
        {"GiB", 1073741824.0},
        {"TiB", 1099511627776.0}}},
      {"a bandwidth",
       "25 GB/s",
       {{"B/s", 1},
        {"KB/s", 1e3},
        {"MB/s", 1e6},
        {"GB/s", 1e9},
        {"TB/s", 1e12},
        {"KiB/s", 1024.0},
        {"MiB/s", 1048576.0},
        {"GiB/s", 1073741824.0},
        {"bps", 0.125},
        {"Kbps", 125},
        {"Mbps", 125e3},
        {"Gbps", 125e6},
        {"Tbps", 125e9},
        {"bit/s", 0.125},
        {"Kbit/s", 125},
        {"Mbit/s", 125e3},
        {"Gbit/s", 125e6},
        {"Tbit/s", 125e9}}},
      {"a compute rate",
       "125 TFLOP/s",
       {{"FLOP/s", 1},
        {"GFLOP/s", 1e9},
        {"TFLOP/s", 1e12},
        {"PFLOP/s", 1e15},
        {"GFLOPS", 1e9},
        {"TFLOPS", 1e12},
        {"PFLOPS", 1e15}}},
      {"a share", "6%", {{"%", 0.01}}},
      {"a number", "3", {}},
  };
  return kTables[static_cast<int>(dimension)];
}

bool needs_unit(Dimension dimension) {
  return dimension != Dimension::fraction && dimension != Dimension::number;
}

std::string unit_names(Dimension dimension) {
  std::string names;
  for (const Unit& unit : table(dimension).units) {
    if (!names.empty()) names += ", ";
    names += unit.name;
  }
  return names;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

/// Splits "1.5e-3 us" into its number and unit; false when there is no number in front.
bool split(std::string_view text, double& value, std::string_view& unit) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) value = HUGE_VAL;
  if (error == std::errc::invalid_argument) return false;
  unit = trimmed(text.substr(static_cast<std::size_t>(end - text.data())));
  return true;
}

std::string unknown_unit(std::string_view unit, Dimension dimension) {
  std::vector<std::string> known;
  for (const Unit& u : table(dimension).units) known.emplace_back(u.name);
  return fmt::format("has the unknown unit '{}' (allowed: {}){}", unit, unit_names(dimension),
                     did_you_mean(unit, known));
}

std::optional<double> factor_of(std::string_view unit, Dimension dimension) {
  for (const Unit& u : table(dimension).units) {
    if (unit == u.name) return u.factor;
  }
  if (dimension == Dimension::time && unit == "µs") return 1e-6;
  return std::nullopt;
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
  if (t.units.empty()) return fmt::format("{} such as '{}'", t.what, t.example);
  return fmt::format("{} such as '{}' (units: {})", t.what, t.example, unit_names(dimension));
}

std::string pattern(Dimension dimension) {
  std::string units;
  for (const Unit& unit : table(dimension).units) {
    if (!units.empty()) units += '|';
    units += unit.name;
  }
  const std::string number = "[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?";
  if (units.empty()) return "^" + number + "$";
  return "^(0|" + number + " *(" + units + "))$";
}

std::optional<double> parse_quantity(std::string_view text, Dimension dimension, std::string& why) {
  double value = 0;
  std::string_view unit;
  if (!split(text, value, unit)) {
    why = "is not a number" + std::string(needs_unit(dimension) ? " with a unit" : "");
    return std::nullopt;
  }
  if (!std::isfinite(value)) {
    why = "is not a finite number";
    return std::nullopt;
  }
  if (unit.empty()) {
    if (value == 0 || !needs_unit(dimension)) return value;
    why = "has no unit";
    return std::nullopt;
  }
  const std::optional<double> factor = factor_of(unit, dimension);
  if (!factor) {
    why = unknown_unit(unit, dimension);
    return std::nullopt;
  }
  // Decimal factors below one are divided by their inverse, so that "3 ms" is the double 0.003.
  const double result =
      *factor < 1 && *factor != 0.125 ? value / std::round(1 / *factor) : value * *factor;
  if (!std::isfinite(result)) {
    why = "is too large";
    return std::nullopt;
  }
  return result;
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

}  // namespace penstock
