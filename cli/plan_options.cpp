#include "cli/plan_options.hpp"

#include "base/units.hpp"
#include "base/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

PlanOptions::PlanOptions(const Arguments& arguments) : arguments_(arguments) {
  for (const auto& [flag, why] : arguments.wrong) add_diagnostic(flag, why);
}

std::optional<std::int64_t> PlanOptions::integer(const std::string& option, std::int64_t most) {
  if (!arguments_.flag(option)) return std::nullopt;
  const std::string text = arguments_.value(option);
  const auto n = parse_number<std::int64_t>(text);
  if (n && *n >= 1 && *n <= most) return n;
  wrong(option, fmt::format("must be an integer from 1 to {}, got '{}'", most, text));
  return std::nullopt;
}

std::optional<double> PlanOptions::positive(const std::string& option) {
  if (!arguments_.flag(option)) return std::nullopt;
  const std::string text = arguments_.value(option);
  const auto value = parse_number<double>(text);
  if (value && *value > 0) return value;
  wrong(option, fmt::format("must be a number of more than 0, got '{}'", text));
  return std::nullopt;
}

std::optional<double> PlanOptions::bytes(const std::string& option) {
  if (!arguments_.flag(option)) return std::nullopt;
  return quantity(option, arguments_.value(option), false);
}

std::optional<double> PlanOptions::share(const std::string& option) {
  if (!arguments_.flag(option)) return std::nullopt;
  const std::string text = arguments_.value(option);
  std::string why;
  const auto value = parse_quantity(text, Dimension::fraction, why);
  if (value && *value >= 0 && *value < 1) return value;
  wrong(option, fmt::format("must be a share below 100%, such as 10%, got '{}'", text));
  return std::nullopt;
}

std::vector<PlanLevel> PlanOptions::levels() {
  std::vector<PlanLevel> found;
  std::int64_t devices = 1;
  for (const std::string& text : arguments_.values("level")) {
    const std::size_t sign = std::min(text.find('x'), text.size());
    PlanLevel level;
    level.width = parse_number<int>(text.substr(0, sign)).value_or(0);
    if (sign == text.size() || level.width < 1 || level.width > kMostDevices) {
      wrong("level", fmt::format("must be WIDTHxBANDWIDTH such as 4x12GB/s, with 1 to {} devices "
                                 "(or groups of the level before), got '{}'",
                                 kMostDevices, text));
      continue;
    }
    level.bytes_per_s = quantity("level", text.substr(sign + 1), true).value_or(1);
    devices *= level.width;
    if (devices > kMostDevices) {
      wrong("level", fmt::format("the levels have more than {} devices", kMostDevices));
      break;
    }
    found.push_back(level);
  }
  return found;
}

void PlanOptions::wrong(const std::string& option, const std::string& message) {
  add_diagnostic("--" + option, message);
}

void PlanOptions::refuse(const std::string& option, const std::string& message) {
  if (arguments_.flag(option)) wrong(option, message);
}

void PlanOptions::missing(const std::string& message) {
  add_diagnostic("penstock plan " + arguments_.positional[0], message);
}

void PlanOptions::throw_if_wrong() const {
  if (!wrong_.empty()) throw InputError(wrong_);
}

std::optional<double> PlanOptions::quantity(const std::string& option, const std::string& text,
                                            bool bandwidth) {
  const Dimension dimension = bandwidth ? Dimension::bandwidth : Dimension::bytes;
  std::string why;
  const auto value = parse_quantity(text, dimension, why);
  if (value && *value > 0) return value;
  wrong(option, fmt::format("must be {}{}, got '{}'", describe(dimension),
                            value ? " of more than 0" : "", text));
  return std::nullopt;
}

void PlanOptions::add_diagnostic(const std::string& origin, const std::string& message) {
  wrong_.push_back({{origin, 0, 0}, message, "", 1, 0});
}

}  // namespace penstock
