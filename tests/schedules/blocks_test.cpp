// SPDX-License-Identifier: Apache-2.0
#include "schedules/blocks.hpp"
#include "schedules/catalog/v_blocks.hpp"
#include "schedules/evaluate.hpp"
#include "tests/schedules/recorded.hpp"

#include <algorithm>

namespace penstock::blocks_test {
namespace {

/// 1F1B on p devices: F there, B (two slots) back, every three slots.
BuildingBlock one_f_one_b_block(std::uint32_t p) {
  BuildingBlock block{.layout = Layout::loop, .chunks = 1};
  for (std::uint32_t s = 0; s < p; ++s) {
    block.forward.push_back(s);
    block.backward.push_back(p + 2 * (p - 1 - s));
  }
  return block;
}

Placement where_of(const BuildingBlock& block) {
  return layout(block.layout, std::vector<int>(block.depth(), 1), block.chunks, 1);
}

ScheduleShape shape_of(const BuildingBlock& block, std::uint32_t m) {
  return {.depth = block.depth(), .microbatches_per_update = m, .chunks = block.chunks};
}

OpLists order_of(const BuildingBlock& block, std::uint32_t m, Reorder how) {
  OpLists order;
  generate_from_block(block, shape_of(block, m), order, how);
  return order;
}

Evaluation evaluated(const BuildingBlock& block, std::uint32_t m, Reorder how) {
  return evaluate(order_of(block, m, how), where_of(block), shape_of(block, m));
}

void expect_problem(const BuildingBlock& block, const std::string& what) {
  const auto found = problems(block);
  EXPECT_TRUE(std::ranges::any_of(
      found, [&](const BlockProblem& p) { return p.why.find(what) != std::string::npos; }))
      << what << "\nfound: " << (found.empty() ? "nothing" : found[0].why);
}

TEST(Blocks, TheBlockOf1f1bRepeatsTo1f1b) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    ASSERT_TRUE(problems(one_f_one_b_block(p)).empty());
    for (std::uint32_t m = 1; m <= 24; ++m) {
      OpLists expected;
      find_schedule("1f1b")->generate({.depth = p, .microbatches_per_update = m}, expected);
      const OpLists order = order_of(one_f_one_b_block(p), m, Reorder::none);
      for (int d = 0; d < static_cast<int>(p); ++d)
        EXPECT_EQ(tokens_of(order, d), tokens_of(expected, d)) << p << " " << m << " " << d;
    }
  }
}

TEST(Blocks, LifespanRunsFromTheForwardToTheEndOfTheBackwardOrTheWeights) {
  EXPECT_EQ(lifespans(one_f_one_b_block(3)), (std::vector<std::uint32_t>{9, 6, 3}));
  BuildingBlock split{
      .chunks = 1, .forward = {0, 1}, .backward_input = {5, 2}, .backward_weight = {7, 6}};
  EXPECT_EQ(lifespans(split), (std::vector<std::uint32_t>{8, 6}));
}

TEST(Blocks, MemoryBoundAddsTheIntervalsThatTheStagesOfADeviceLive) {
  for (std::uint32_t d = 0; d < 4; ++d) EXPECT_EQ(memory_bound(one_f_one_b_block(4), d), 4 - d);
  EXPECT_EQ(memory_bound(v_zb_block(4), 0), 8U);
}

TEST(Blocks, WeightsTakeTheNextFreeSlotsInTheOrderOfTheirInputs) {
  // Device 0 runs F in slots 0 and 1, I in 2 and 3 of six, so both Ws wait for 4 and 5.
  const BuildingBlock block{.chunks = 2, .forward = {0, 1}, .backward_input = {3, 2}};
  ASSERT_TRUE(problems(block).empty());
  EXPECT_EQ(with_weights(block).backward_weight, (std::vector<std::uint32_t>{5, 4}));
}

TEST(Blocks, PassesThatMeetAreNamedWithTheirDeviceAndSlots) {
  BuildingBlock block = one_f_one_b_block(2);
  block.backward = {5, 2};
  expect_problem(block,
                 "0F in slot 0 and 0B in slot 5 meet on device 0: 0 and 2-3 modulo the interval 3");
}

TEST(Blocks, PassesThatStartTooEarlyAreNamedWithWhatTheyNeed) {
  BuildingBlock block = one_f_one_b_block(3);
  block.forward[2] = 1;
  expect_problem(block, "2F in slot 1 needs 1F, which ends with slot 1: slot 2 or later");
  block = one_f_one_b_block(3);
  block.backward[1] = 4;
  expect_problem(block, "1B in slot 4 needs 2B, which ends with slot 4: slot 5 or later");
  const BuildingBlock early{
      .chunks = 1, .forward = {0}, .backward_input = {1}, .backward_weight = {1}, .interval = 9};
  expect_problem(early, "0W in slot 1 needs 0I, which ends with slot 1: slot 2 or later");
}

TEST(Blocks, MalformedBlocksAreRefused) {
  expect_problem({.chunks = 1}, "forward needs a slot for every virtual stage");
  expect_problem({.chunks = 2, .forward = {0, 1, 2}, .backward = {7, 5, 3}},
                 "3 virtual stages do not divide into 2 chunks per device");
  expect_problem({.chunks = 1, .forward = {0}}, "either backward or backward_input");
  expect_problem({.chunks = 1, .forward = {0}, .backward = {1}, .backward_input = {1}},
                 "either backward or backward_input");
  expect_problem({.chunks = 1, .forward = {0}, .backward = {1}, .backward_weight = {2}},
                 "backward already contains it");
  expect_problem({.chunks = 1, .forward = {0, 1}, .backward = {2}},
                 "backward has 1 slots, forward has 2: one per virtual stage");
  expect_problem({.layout = Layout::mirrored, .chunks = 1, .forward = {0}, .backward = {1}},
                 "the layout of a block is loop or snake");
  expect_problem({.chunks = 1, .forward = {0}, .backward = {1}, .interval = 2},
                 "device 0 works 3 slots in every interval of 2: interval must be at least 3");
  expect_problem({.chunks = 1, .forward = {0}, .backward = {1000000}}, "slot 1000000 is too late");
  BuildingBlock none = one_f_one_b_block(2);
  none.widths.forward = 0;
  expect_problem(none, "a pass of forward takes 1 to 4096 slots");
  none = one_f_one_b_block(2);
  none.interval = 4000000000;
  expect_problem(none, "interval must be at most 65536 slots");
  // Four free slots in two halves leave no room for a W of three.
  const BuildingBlock halves{.chunks = 1,
                             .forward = {0},
                             .backward_input = {3},
                             .interval = 6,
                             .widths = {.backward_weight = 3}};
  expect_problem(halves, "leave no room for every W");
}

TEST(Blocks, DrawingShowsEverySlotOfEveryDeviceAndTheBound) {
  EXPECT_EQ(draw(one_f_one_b_block(2)),
            "interval 3 slots\n"
            "device 0  0F .  .  .  0B =\n"
            "device 1  .  1F 1B =\n"
            "device 0 holds at most 2 activations: stage 0 for 6 slots\n"
            "device 1 holds at most 1 activations: stage 1 for 3 slots\n");
}

/// Blocks of all kinds, also some that nobody published.
std::vector<BuildingBlock> some_blocks(std::uint32_t p) {
  std::vector<BuildingBlock> blocks = {v_min_block(p), v_half_block(p), v_zb_block(p),
                                       one_f_one_b_v_block(p), one_f_one_b_block(p)};
  blocks.push_back(with_weights(v_half_block(p)));
  for (std::uint32_t turn = 1; turn <= 6; ++turn)
    blocks.push_back(v_block(p, {.legs = {4, 2, 4, 2}, .turns = {turn, turn, turn}}));
  BuildingBlock wide = one_f_one_b_block(p);  // times 3 to 7, W left out
  wide.backward_input = std::move(wide.backward);
  wide.backward.clear();
  wide.widths = {.forward = 3, .backward_input = 4, .backward_weight = 3};
  wide.interval = 10;
  for (std::uint32_t s = 0; s < p; ++s) {
    wide.forward[s] = 3 * s;
    wide.backward_input[s] = 3 * p + 4 * (p - 1 - s);
  }
  blocks.push_back(wide);
  std::erase_if(blocks, [](const BuildingBlock& block) { return !problems(block).empty(); });
  return blocks;
}

TEST(Blocks, EveryOrderRunsEveryPassOnceAndHoldsNoMoreThanTheRepeatedBlock) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    const auto blocks = some_blocks(p);
    ASSERT_GE(blocks.size(), 7U) << p;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (std::uint32_t m = 1; m <= 24; ++m) {
        const Evaluation repeated = evaluated(blocks[b], m, Reorder::none);
        const double limit = *std::ranges::max_element(repeated.peaks);
        for (const Reorder how :
             {Reorder::none, Reorder::both_ends, Reorder::everywhere, Reorder::best}) {
          const OpLists order = order_of(blocks[b], m, how);
          const std::uint32_t passes = blocks[b].splits_backward() ? 3 : 2;
          ASSERT_EQ(order.size(), passes * m * blocks[b].stages());
          const Evaluation found = evaluate(order, where_of(blocks[b]), shape_of(blocks[b], m));
          ASSERT_TRUE(found.stuck.empty()) << p << " " << m << " block " << b;
          EXPECT_LE(*std::ranges::max_element(found.peaks), limit) << p << " " << m << " " << b;
        }
      }
    }
  }
}

TEST(Blocks, TheBestOrderIsNoLaterThanAnyOther) {
  for (const BuildingBlock& block : some_blocks(6)) {
    for (const std::uint32_t m : {3U, 9U, 20U}) {
      const double best = evaluated(block, m, Reorder::best).makespan;
      for (const Reorder how : {Reorder::none, Reorder::both_ends, Reorder::everywhere})
        EXPECT_LE(best, evaluated(block, m, how).makespan);
    }
  }
}

}  // namespace
}  // namespace penstock::blocks_test
