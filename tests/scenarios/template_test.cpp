// SPDX-License-Identifier: Apache-2.0
// A scenario read once gives, for any overrides, what reading it anew gives.
#include "base/error.hpp"
#include "scenarios/scenario.hpp"
#include "tests/scenarios/costs_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

namespace penstock::template_test {
namespace {

std::string shipped(const std::string& name) {
  return (std::filesystem::path(data_folder()) / "scenarios" / (name + ".yaml")).string();
}

/// Everything a run depends on, as text; an error as its message.
std::string described(const std::function<Scenario()>& read) {
  try {
    const Scenario s = read();
    std::string text =
        fmt::format("{}\n{}\n{}\n{}\n", s.name, s.origin, s.text(), s.schedule->name);
    text += fmt::format("{} {} {} {}\n", s.shape.depth, s.shape.chunks, s.shape.batches,
                        s.shape.microbatches_per_update);
    text += fmt::format("{} {} {}\n", s.mesh.most(), static_cast<int>(s.lowering.transfers),
                        s.lowering.detached_reductions);
    text += fmt::format("{} {} {}\n", s.microbatch_size, recompute_text(s.recompute),
                        s.mesh.size(Axis::tensor));
    text += fmt::format("{} {} {}\n", s.layers, s.mesh.gpus, s.widths());
    text += fmt::format("{} {} {} {}\n", s.cluster.name, s.cluster.devices(), s.cluster.device.name,
                        s.cluster.inter.bytes_per_s);
    text += fmt::format("{}\n{}\n", s.overrides, s.notes);
    return text + costs_text(s.costs);
  } catch (const InputError& error) {
    return error.what();
  }
}

std::vector<std::vector<Override>> changes() {
  return {
      {},
      {{"stages", "8"}, {"microbatch_size", "4"}},
      {{"pipeline.split", "balanced"}, {"pipeline.stages", "7"}},
      {{"pipeline.stages", "7"}},
      {{"schedule", "gpipe"}, {"recompute", "none"}},
      {{"schedule", "\"gpipe\""}},
      {{"schedule", "gpip"}},
      {{"stages", "four"}, {"width", "0"}, {"nonsense", "1"}},
      {{"stages", "null"}},
      {{"stages", "~"}},
      {{"stages", ""}},
      {{"stages", "[1, 2"}},
      {{"stages", "1e3"}},
      {{"cluster", "dgx-a100"}},
      {{"cluster", "dgx-a1000"}},
      {{"cluster.nodes", "64"}, {"cluster.inter", "100 Gbps"}},
      {{"cluster.intra.attachment", "pairs"}},
      {{"model", "gpt-3.8b"}},
      {{"model.num_layers", "48"}, {"name", "null"}},
      {{"model", "no-such-model.yaml"}},
      {{"model", "gpt-2.2b"}, {"model.hidden_size", "4097"}},
      {{"transfers", "coupled"}, {"batches", "2"}},
  };
}

TEST(ScenarioTemplate, ResolvesAsTheFileReadAnew) {
  for (const char* name : {"gpt-2.2b-2bw", "gpt-2.2b-mixed", "small-interleaved-1f1b"}) {
    const ScenarioTemplate read_once(shipped(name));
    for (int again = 0; again < 2; ++again) {
      for (const std::vector<Override>& overrides : changes()) {
        EXPECT_EQ(described([&] { return read_once.resolve(overrides); }),
                  described([&] { return load_scenario(shipped(name), overrides); }));
      }
    }
  }
}

/// Words that need no parser mean what they mean in a file.
TEST(ScenarioTemplate, TakesPlainWordsAsYamlDoes) {
  for (const char* word : {"gpipe", "1f1b", "null", "NULL", "true", "no", "0x8", "08", "1_000",
                           "8.", "8-", "4.5", "NaN", "nullx", "1e1"}) {
    for (const char* key : {"stages", "schedule", "recompute", "vertical_sync"}) {
      const std::string text = shipped("gpt-2.2b-2bw");
      const std::vector<Override> plain{{key, word}}, bracketed{{key, std::string(word) + " "}};
      const auto error_of = [&](const std::vector<Override>& overrides) {
        std::string said;
        try {
          load_scenario(text, overrides);
        } catch (const InputError& error) {
          for (const Diagnostic& d : error.diagnostics()) said += d.message + "\n";
        }
        return said;
      };
      EXPECT_EQ(error_of(plain), error_of(bracketed)) << key << "=" << word;
    }
  }
}

TEST(ScenarioTemplate, IsSharedByThreads) {
  const ScenarioTemplate read_once(shipped("gpt-2.2b-2bw"));
  const auto all = [&] {
    std::string text;
    for (const std::vector<Override>& overrides : changes())
      text += described([&] { return read_once.resolve(overrides); });
    return text;
  };
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (std::string& text : found) threads.emplace_back([&] { text = all(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : found) EXPECT_EQ(text, all());
}

TEST(ScenarioTemplate, ThrowsForAFileThatIsNotThere) {
  EXPECT_THROW(ScenarioTemplate("no-such-scenario.yaml"), InputError);
}

}  // namespace
}  // namespace penstock::template_test
