// SPDX-License-Identifier: Apache-2.0
#include "scenarios/unitless.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace penstock {
namespace {

constexpr std::string_view kTimes[] = {"forward",         "backward", "backward_input",
                                       "backward_weight", "step",     "forward_backward"};
// Keys that other sections have, too.
constexpr std::string_view kOfPipeline[] = {"checkpoint", "chunks"};
constexpr std::string_view kSizes[] = {"activation", "activation_after_input"};

template <class Keys>
bool among(const Keys& keys, std::string_view key) {
  return std::ranges::find(keys, key) != std::ranges::end(keys);
}

constexpr std::string_view kBetweenNumbers = "[], ";

bool is_unitless(const std::string& value) {
  return value.find_first_not_of("0123456789.eE+-[], ") == std::string::npos;
}

/// "[1, 2]" -> "[1 s, 2 s]".
std::string with_unit(const std::string& numbers, std::string_view unit) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += numbers[i];
    const bool inside = kBetweenNumbers.find(numbers[i]) == std::string_view::npos;
    const bool ends =
        i + 1 == numbers.size() || kBetweenNumbers.find(numbers[i + 1]) != std::string_view::npos;
    if (inside && ends) text += fmt::format(" {}", unit);
  }
  return text;
}

std::string seconds(const Override& o) {
  if (is_unitless(o.value)) return with_unit(o.value, "s");
  throw InputError("--set " + o.key + "=" + o.value,
                   "times of `schedule show` have no unit; expected a number such as 1.5");
}

/// The value of a key that is a whole number; `usual` when it is not said, or wrong (which the
/// reader of the scenario will say).
std::uint32_t whole(const std::vector<Override>& overrides, std::string_view key,
                    std::uint32_t usual) {
  for (const Override& o : overrides) {
    if (o.key == key) std::from_chars(o.value.data(), o.value.data() + o.value.size(), usual);
  }
  return std::clamp(usual, 1U, 4096U);
}

/// The number of microbatches nearest to `wanted` that the schedule admits.
std::uint32_t nearest_admitted(const Schedule& schedule, ScheduleShape shape,
                               std::uint32_t wanted) {
  const auto admits = [&](std::uint32_t m) {
    shape.microbatches_per_update = m;
    return schedule.refuse(shape).empty();
  };
  const std::uint32_t farthest = std::min(4 * std::max(shape.stages(), wanted), 16384U);
  for (std::uint32_t distance = 0; distance <= farthest; ++distance) {
    if (admits(wanted + distance)) return wanted + distance;
    if (distance < wanted && admits(wanted - distance)) return wanted - distance;
  }
  return wanted;
}

/// The keys batches and pipeline that are short to draw and legal.
std::string usual_pipeline(const Schedule& schedule, const std::vector<Override>& overrides) {
  if (schedule.whole_model) return "batches: 2\npipeline: {stages: 1, width: 4, microbatches: 2}\n";
  const bool runs_on = !schedule.flushes() && schedule.update != UpdateRule::stash;
  ScheduleShape shape{.depth = whole(overrides, "stages", 4),
                      .chunks = whole(overrides, "chunks", schedule.chunks.usual),
                      .memory_limit = schedule.usual_limit};
  const std::uint32_t m = nearest_admitted(schedule, shape,
                                           schedule.update == UpdateRule::stash ? 1
                                           : runs_on                            ? 4
                                                                                : 8);
  const int batches = schedule.update == UpdateRule::stash ? 8 : runs_on ? 2 : 1;
  return fmt::format("batches: {}\npipeline: {{stages: 4, microbatches: {}}}\n", batches, m);
}

}  // namespace

Scenario unitless_scenario(const std::string& schedule, const std::vector<Override>& overrides) {
  // Schedules are looked at op by op.
  std::map<std::string, std::string> model{{"forward", "1 s"}, {"per", "chunk"}};
  std::string transfer = "0";
  std::vector<Override> rest;
  bool backward = false;
  for (const Override& o : overrides) {
    if (o.key == "transfer") {
      transfer = seconds(o);
    } else if (among(kTimes, o.key)) {
      model[o.key] = seconds(o);
      backward = backward || o.key.starts_with("backward");
    } else if (among(kSizes, o.key)) {
      model[o.key] = is_unitless(o.value) ? with_unit(o.value, "B") : o.value;
    } else {
      rest.push_back({among(kOfPipeline, o.key) ? "pipeline." + o.key : o.key, o.value});
    }
  }
  if (!backward) model["backward"] = "2 s";
  std::string text = "model: {";
  for (const auto& [key, value] : model) text += fmt::format("{}: {}, ", key, value);
  text +=
      fmt::format("}}\ncluster: {{link: {{latency: {}}}}}\nschedule: '{}'\n", transfer, schedule);
  const Schedule* known = find_schedule(schedule);
  if (known != nullptr) text += usual_pipeline(*known, overrides);
  // A building block of the user's own says how many devices; a table also how many microbatches.
  if (known == nullptr && !schedule.ends_with(".csv")) text += "pipeline: {microbatches: 8}\n";
  return parse_scenario(text, "schedule show", rest);
}

}  // namespace penstock
