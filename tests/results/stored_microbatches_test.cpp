// SPDX-License-Identifier: Apache-2.0
// A microbatch whose activations are stored where others' are not (torchgpipe's `checkpoint:
// except_last`) takes, exchanges and sends what it does where nothing is recomputed.
#include "results/simulation.hpp"
#include "sim/communication.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace penstock::stored_microbatches_test {
namespace {

constexpr std::uint32_t kMicrobatches = 4;

Simulation simulated(const std::string& checkpoint, const std::string& cluster, EngineChoice engine,
                     const std::string& stack = "none") {
  return simulate(
      parse_scenario("model: gpt-2.2b\nstack: " + stack + "\ncluster: " + cluster +
                         "\nschedule: torchgpipe\npipeline: {stages: 4, tensor: 2, microbatches: " +
                         std::to_string(kMicrobatches) + ", checkpoint: " + checkpoint + "}\n",
                     "test.yaml"),
      engine);
}

double backward_s(const Simulation& done, std::uint32_t stage, std::uint32_t microbatch) {
  const OpLists& ops = done.program.ops;
  for (std::uint32_t g = 0; g < ops.size(); ++g)
    if (ops[g].kind == OpKind::backward && ops[g].stage == stage && ops[g].microbatch == microbatch)
      return done.timeline->op(g).length_s();
  return -1;
}

TEST(StoredMicrobatches, TakeAsLongAsWhereNothingIsRecomputed) {
  const std::string alone = "{base: dgx-a100, intra: {attachment: pairs}}";
  for (const std::string stack : {"none", "megatron-b200-node"})
    for (const EngineChoice engine : {EngineChoice::exact, EngineChoice::simgrid}) {
      const Simulation last = simulated("except_last", alone, engine, stack),
                       never = simulated("never", alone, engine, stack),
                       always = simulated("always", alone, engine, stack);
      for (std::uint32_t stage = 0; stage < 4; ++stage) {
        const double kept_s = backward_s(never, stage, 3);
        EXPECT_GT(kept_s, 0);
        EXPECT_NEAR(backward_s(last, stage, 3), kept_s, 1e-9 * kept_s) << stack << stage;
        EXPECT_GT(backward_s(always, stage, 3), 1.1 * kept_s) << stack << stage;
        EXPECT_NEAR(backward_s(last, stage, 0), backward_s(always, stage, 0), 1e-9 * kept_s);
      }
    }
}

TEST(StoredMicrobatches, ExchangeWhatTheyDoWhereNothingIsRecomputed) {
  for (const char* cluster : {"{base: dgx-a100, intra: {attachment: pairs}}", "dgx-a100"}) {
    const auto bytes = [&](const std::string& checkpoint) {
      const Simulation done = simulated(checkpoint, cluster, EngineChoice::automatic);
      const CommunicationByDimension sums = communication(done.input(), *done.timeline);
      return static_cast<double>(sums.inner[static_cast<std::size_t>(Axis::tensor)].bytes);
    };
    const double always = bytes("always"), never = bytes("never");
    EXPECT_GT(always, 1.1 * never);
    EXPECT_NEAR(bytes("except_last"), (3 * always + never) / kMicrobatches, 1e-9 * always);
  }
}

}  // namespace
}  // namespace penstock::stored_microbatches_test
