// SPDX-License-Identifier: Apache-2.0
#include "report/memory_section.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

using Samples = std::vector<std::pair<double, std::int64_t>>;

/// At most `most` samples: of neighbours the highest, at the time of the first. The last one stays,
/// as it holds until the end.
Samples thinned(const Samples& samples, std::size_t most) {
  if (samples.size() <= most) return samples;
  const std::size_t together = (samples.size() + most - 2) / (most - 1);
  Samples kept;
  for (std::size_t i = 0; i + 1 < samples.size(); i += together) {
    kept.push_back(samples[i]);
    for (std::size_t k = i; k < std::min(i + together, samples.size() - 1); ++k)
      kept.back().second = std::max(kept.back().second, samples[k].second);
  }
  kept.push_back(samples.back());
  return kept;
}

Json owners_json(const MemoryUse& use) {
  Json bytes = Json::array();
  for (const std::int64_t owner : use.bytes) bytes.push_back(owner);
  return bytes;
}

Json line_json(const MemoryLine& line, const Ticks& time, const Ticks& size, std::size_t most) {
  std::vector<std::uint32_t> at, bytes;
  for (const auto& [seconds, held] : thinned(line.samples, most)) {
    at.push_back(time.tick_of(seconds));
    bytes.push_back(size.tick_of(static_cast<double>(held)));
  }
  return {{"name", line.name},
          {"capacity", line.capacity_bytes},
          {"peak", line.peak.use.total()},
          {"peak_at_s", line.peak.at_s},
          {"peak_op", line.peak_op},
          {"owners", owners_json(line.peak.use)},
          {"at", packed(std::span<const std::uint32_t>(at))},
          {"bytes", packed(std::span<const std::uint32_t>(bytes))}};
}

}  // namespace

MemoryLine memory_line(const MemoryInput& input, int device, std::int64_t capacity_bytes) {
  MemoryLine line{fmt::format("device {}", device), capacity_bytes, {}, {}, {}};
  line.peak = memory_over_time(input, device, [&](double time_s, const MemoryUse& use) {
    line.samples.emplace_back(time_s, use.total());
  });
  if (line.peak.op != kNoOp) line.peak_op = to_string(input.ops[line.peak.op]);
  return line;
}

std::string section_text(const MemorySection& memory, std::size_t most_points) {
  Json json = section_json(memory.over_time ? "memory" : "owners", memory.text);
  double most_bytes = 0;
  for (const MemoryLine& line : memory.lines) {
    for (const auto& sample : line.samples)
      most_bytes = std::max(most_bytes, static_cast<double>(sample.second));
  }
  const Ticks time(memory.end_s), size(most_bytes);
  json["end_s"] = memory.end_s;
  json["tick_s"] = time.step();
  json["tick_bytes"] = size.step();
  for (const std::string_view owner : kOwnerNames) json["owners"].push_back(owner);
  json["lines"] = Json::array();
  const std::size_t each =
      std::max<std::size_t>(3, most_points / std::max<std::size_t>(1, memory.lines.size()));
  for (const MemoryLine& line : memory.lines)
    json["lines"].push_back(line_json(line, time, size, each));
  return to_text(json);
}

}  // namespace penstock
