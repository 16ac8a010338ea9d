// Bounds against simulations: of shapes, families, candidates and one replica.
#include "plan/search/search.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

Problem on_links(const std::string& link) {
  return Problem(
      fmt::format(
          "model: {{family: gpt, num_layers: 6, hidden_size: 256, num_attention_heads: 4, "
          "vocab_size: 4000, seq_length: 128, precision: mixed-fp16}}\n"
          "cluster: {{devices: 6, device: {{name: d, memory: 2 GiB, peak: {{fp16: 10 TFLOP/s}}, "
          "memory_bandwidth: 300 GB/s}}, link: {}}}\n",
          link),
      "small", 12);
}

TEST(Relaxed, MemoryIsThatOfNoMessagesHoweverLongTheyAreHeld) {
  const Candidate candidate{{{3, 2, 1, 1, 6}, find_schedule("1f1b"), 1, {}},
                            {2, 2, 2}};
  std::vector<double> relaxed_bytes;
  for (const char* link :
       {"{latency: 0 us, bandwidth: 1000 GB/s}", "{latency: 5 ms, bandwidth: 100 MB/s}"}) {
    const Problem problem = on_links(link);
    const Scenario scenario = problem.resolve(candidate);
    const Judgement bound = relaxed(scenario, problem.plain_reduction());
    ASSERT_TRUE(bound.engine.empty());
    EXPECT_LT(bound.memory_bytes, judge(scenario, EngineChoice::exact).memory_bytes);
    relaxed_bytes.push_back(bound.memory_bytes);
  }
  EXPECT_EQ(relaxed_bytes[0], relaxed_bytes[1]);
}

}  // namespace
}  // namespace penstock
