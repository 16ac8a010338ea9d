// SPDX-License-Identifier: Apache-2.0
// Properties of random scenarios, as a user writes them. That both engines agree on random runs is
// in tests/sim.
#include "base/error.hpp"
#include "results/simulation.hpp"
#include "tests/random_shape.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace penstock::random_scenarios_test {
namespace {

/// Keys with dots, and their values.
using Keys = std::map<std::string, std::string>;

/// A number or, now and then, one for each of `stages`.
template <class Draw>
std::string value(std::mt19937_64& random, std::uint32_t stages, const Draw& draw) {
  if (random_between(random, 0, 3) != 0) return draw();
  std::string list = "[";
  for (std::uint32_t s = 0; s < stages; ++s) list += (s == 0 ? "" : ", ") + draw();
  return list + "]";
}

Keys random_keys(std::mt19937_64& random) {
  const Schedule& schedule = random_schedule(random);
  const ScheduleShape shape = random_shape(schedule, random, 6, 12);
  const std::uint32_t stages = stages_of(schedule, shape);
  const auto number = [&](std::uint32_t most, const char* unit) {
    return [&random, most, unit] {
      return fmt::format("{} {}", random_between(random, 1, most), unit);
    };
  };
  Keys keys{{"schedule", std::string(schedule.name)},
            {"batches", std::to_string(shape.batches)},
            {"model.forward", value(random, stages, number(9000, "us"))},
            {"model.parameters", value(random, stages, number(900, "MiB"))},
            {"model.activation", value(random, stages, number(90, "MiB"))},
            {"model.output", value(random, stages, number(9, "MB"))},
            {"model.step", value(random, stages, number(900, "us"))},
            {"cluster.devices", "64"},
            {"cluster.memory", number(80, "GiB")()},
            {"cluster.link.latency", number(90, "us")()},
            {"cluster.link.bandwidth", number(90, "GB/s")()}};
  if (random_between(random, 0, 1) == 0) {
    keys["model.backward"] = value(random, stages, number(9000, "us"));
  } else {
    keys["model.backward_input"] = value(random, stages, number(9000, "us"));
    keys["model.backward_weight"] = value(random, stages, number(9000, "us"));
  }
  if (!schedule.whole_model) keys["pipeline.stages"] = std::to_string(shape.depth);
  if (shape.chunks != schedule.chunks.usual) keys["pipeline.chunks"] = std::to_string(shape.chunks);
  if (schedule.update != UpdateRule::stash)
    keys["pipeline.microbatches"] = std::to_string(shape.microbatches_per_update);
  if (random_between(random, 0, 2) == 0)
    keys["pipeline.width"] = std::to_string(random_between(random, 1, 3));
  return keys;
}

/// One line for each; a file that says a key twice would be refused.
std::string file_of(const Keys& keys) {
  std::string text;
  std::vector<std::string> open;  // maps of the line before
  for (const auto& [key, content] : keys) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= key.size();) {
      const std::size_t dot = std::min(key.find('.', at), key.size());
      parts.push_back(key.substr(at, dot - at));
      at = dot + 1;
    }
    std::size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same]) ++same;
    for (std::size_t i = same; i < parts.size(); ++i)
      text += std::string(2 * i, ' ') + parts[i] + ":" +
              (i + 1 == parts.size() ? " " + content : "") + "\n";
    open.assign(parts.begin(), parts.end() - 1);
  }
  return text;
}

Scenario read(const Keys& keys, const std::vector<Override>& changes = {}) {
  return parse_scenario(file_of(keys), "random.yaml", changes);
}

/// All that a run amounts to, as numbers; empty where it is refused.
std::vector<double> outcome(const Keys& keys, const std::vector<Override>& changes = {}) {
  try {
    const Simulation simulated = simulate(read(keys, changes), EngineChoice::exact);
    const Result r = summarize(simulated);
    std::vector<double> all{r.makespan_s, r.iteration_time_s.value_or(-1), r.samples_per_s,
                            r.bubble_fraction};
    for (const DeviceResult& d : r.devices)
      for (const std::int64_t bytes : d.memory.use.bytes) all.push_back(static_cast<double>(bytes));
    return all;
  } catch (const InputError&) {
    return {};
  }
}

constexpr int kScenarios = 300;

template <class Check>
void for_accepted(std::uint64_t seed, const Check& check) {
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int i = 0; i < kScenarios; ++i) {
    const Keys keys = random_keys(random);
    const std::vector<double> is = outcome(keys);
    SCOPED_TRACE(file_of(keys));
    if (!is.empty()) check(keys, is, random);
    accepted += is.empty() ? 0 : 1;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, kScenarios / 2) << "the others say nothing";
}

TEST(RandomScenarios, TakeATimeAndNoMemoryBelowZero) {
  for_accepted(1, [](const Keys& /*keys*/, const std::vector<double>& is, auto& /*random*/) {
    for (std::size_t i = 0; i < is.size(); ++i) {
      EXPECT_TRUE(std::isfinite(is[i])) << i;
      EXPECT_GE(is[i], i == 1 ? -1 : 0) << i;  // -1: too short for an iteration
    }
    EXPECT_GT(is[0], 0);
  });
}

TEST(RandomScenarios, SetIsAsGoodAsTheFile) {
  for_accepted(2, [](const Keys& keys, const std::vector<double>& is, auto& random) {
    Keys left = keys;
    std::vector<Override> changes;
    for (const auto& [key, content] : keys) {
      if (key == "schedule" || random_between(random, 0, 1) == 0) continue;
      changes.push_back(parse_override(key + "=" + content));
      // The file says nothing of it, or something else.
      if (random_between(random, 0, 1) == 0)
        left.erase(key);
      else
        left[key] = content.find_first_of(" [") == std::string::npos
                        ? "1"
                        : "1" + content.substr(content.rfind(' '));
      if (left.contains(key) && left[key].ends_with(']')) left[key].pop_back();
    }
    EXPECT_EQ(outcome(left, changes), is) << file_of(left);
  });
}

TEST(RandomScenarios, ReadAsTheSameWhenTheyAreWrittenAgain) {
  for_accepted(3, [](const Keys& keys, const std::vector<double>& is, auto& /*random*/) {
    const Scenario scenario = read(keys);
    const Scenario again = parse_scenario(scenario.text(), "again.yaml");
    EXPECT_EQ(again.text(), scenario.text());
    EXPECT_EQ(summarize(simulate(again, EngineChoice::exact)).makespan_s, is[0]);
  });
}

}  // namespace
}  // namespace penstock::random_scenarios_test
