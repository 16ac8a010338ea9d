// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_options.hpp"

#include "base/units.hpp"
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/ranges.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

/// "1048576" of "1,048,576"; other commas stay, and make no number.
std::string without_commas(const std::string& text) {
  const std::vector<std::size_t> commas = [&] {
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == ',') at.push_back(i);
    return at;
  }();
  if (commas.empty() || commas[0] == 0 || commas[0] > 3) return text;
  std::string bare;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool due = i >= commas[0] && (i - commas[0]) % 4 == 0;
    if ((text[i] == ',') != due) return text;
    if (!due) bare += text[i];
  }
  return (text.size() - commas[0]) % 4 == 0 ? bare : text;
}

}  // namespace

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

std::int64_t PlanOptions::batch(PlanSource& source) {
  std::string text = arguments_.value("batch");
  const auto ends_with = [&](std::string_view word) {
    if (!text.ends_with(word)) return false;
    text.resize(text.size() - word.size());
    while (text.ends_with(' ')) text.pop_back();
    return true;
  };
  const bool tokens = ends_with("tokens") || ends_with("token");
  source.batch_in_samples = !tokens && (ends_with("samples") || ends_with("sample"));
  constexpr std::int64_t kMillion = 1'000'000, kMebi = 1 << 20, kKibi = 1 << 10;
  const char unit = text.empty() ? '\0' : static_cast<char>(std::toupper(text.back()));
  const bool millions = unit == 'M', thousands = unit == 'K' && tokens;
  if (millions || thousands) text = trimmed(text.substr(0, text.size() - 1));
  const auto n = parse_number<double>(without_commas(text));
  const double most = tokens ? 1e15 : static_cast<double>(kMostSamples);
  const bool more = tokens && (millions || thousands) && n && *n > 0 && *n <= most / kMebi;
  const bool whole = n && !millions && !thousands && *n >= 1 && *n <= most && *n == std::floor(*n);
  if (millions && n && *n > 0 && !tokens) {
    wrong("batch",
          fmt::format("'{}' may be tokens or samples, and the one million or the other: say "
                      "'{:.0f} tokens', '{:.0f} tokens' or '{:.0f} samples'",
                      arguments_.value("batch"), *n * kMebi, *n * kMillion, *n * kMillion));
  } else if (more) {
    // Of 4M tokens people mean 4 x 2^20 where samples have a power of two of them.
    source.batch_tokens =
        std::max<std::int64_t>(1, std::llround(*n * static_cast<double>(millions ? kMebi : kKibi)));
  } else if (whole && tokens) {
    source.batch_tokens = static_cast<std::int64_t>(*n);
  } else if (whole) {
    return static_cast<std::int64_t>(*n);
  } else if (arguments_.flag("batch")) {
    wrong("batch",
          fmt::format("must be an integer from 1 to {}, of samples, or 'N tokens', got '{}'",
                      kMostSamples, arguments_.value("batch")));
  }
  return 0;
}

std::optional<std::string> PlanOptions::cluster_of_gpus() {
  if (!arguments_.flag("gpus")) return std::nullopt;
  const std::string text = arguments_.value("gpus");
  const std::size_t sign = std::min(text.find('x'), text.size());
  const auto gpus = parse_number<int>(text.substr(0, sign));
  if (!gpus || *gpus < 1 || *gpus > kMostDevices || sign + 1 >= text.size()) {
    wrong("gpus", fmt::format("must be NxDEVICE such as 64xH100, with 1 to {} GPUs, got '{}'",
                              kMostDevices, text));
    return std::nullopt;
  }
  const std::string device = folded(text.substr(sign + 1));
  std::vector<std::string> devices;
  std::optional<Cluster> best;
  for (const std::string& name : shipped_names("models/clusters")) {
    const Cluster cluster = load_cluster(name);
    if (!cluster.groups.empty() || cluster.device.name.empty()) continue;
    devices.push_back(cluster.device.name);
    if (folded(cluster.device.name) != device) continue;
    const auto rank = [](const Cluster& c) { return !c.name.starts_with("dgx-"); };
    if (!best || rank(cluster) < rank(*best)) best = cluster;
  }
  if (!best) {
    std::ranges::sort(devices);
    devices.erase(std::ranges::unique(devices).begin(), devices.end());
    std::string guess = did_you_mean(text.substr(sign + 1), devices);
    std::vector<std::string> of_chip;  // A100 may be A100-40 or A100-80
    for (const std::string& name : devices)
      if (folded(name).starts_with(device + "-")) of_chip.push_back("'" + name + "'");
    if (of_chip.size() > 1) guess = fmt::format("; did you mean {}?", fmt::join(of_chip, " or "));
    wrong("gpus",
          fmt::format("there is no shipped cluster of '{}'{}; there are such of {}; others: "
                      "--cluster",
                      text.substr(sign + 1), guess, fmt::join(devices, ", ")));
    return std::nullopt;
  }
  const int node = best->devices_per_node;
  if (*gpus < node)  // of one node, whose NICs nobody uses
    return fmt::format("{{base: {}, nodes: 1, devices_per_node: {}, inter: {{nics: {}}}}}",
                       best->name, *gpus, std::gcd(*gpus, std::max(1, best->nics_per_node)));
  if (*gpus % node != 0) {
    wrong("gpus",
          fmt::format("nodes of {} have {} GPUs: {} or {}, not {}; other nodes: --cluster",
                      best->name, node, *gpus / node * node, (*gpus / node + 1) * node, *gpus));
    return std::nullopt;
  }
  return fmt::format("{{base: {}, nodes: {}}}", best->name, *gpus / node);
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
