// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/formats/torch_reader.hpp"
#include "tests/schedules/recorded.hpp"
#include "tests/effort.hpp"
#include "tests/shared.hpp"

#include <algorithm>
#include <fstream>
#include <random>

namespace penstock::torch_csv_test {
namespace {

constexpr const char* kRight = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

/// What the reader says of a table; empty when it is right.
std::string said(const std::string& text) {
  try {
    read_torch_csv(text, "t.csv");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

struct Wrong {
  const char* name;
  const char* text;
  const char* message;  ///< with its place
};

class WrongTable : public testing::TestWithParam<Wrong> {};

TEST_P(WrongTable, IsRefusedWithPlaceAndReason) {
  EXPECT_NE(said(GetParam().text).find(GetParam().message), std::string::npos)
      << said(GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    Words, WrongTable,
    testing::Values(
        Wrong{"Empty", "", "t.csv: has no compute actions"},
        Wrong{"NoStage", "F0,0B0\n", "t.csv:1:1: 'F0' is no action; expected <stage><kind>"},
        Wrong{"UnknownKind", "0F0,0X0\n", "t.csv:1:5: '0X0' has an unknown kind 'X'; one of F, B,"},
        Wrong{"Slip", "0F0,0SENDF0,0B0\n", "did you mean 'SEND_F'?"},
        Wrong{"NoMicrobatch", "0F,0B0\n", "'0F' has no microbatch; expected 0F0 or the like"},
        Wrong{"GoesOn", "0F0 0B0\n", "'0F0 0B0' goes on after the action '0F0'"},
        Wrong{"LargeStage", "70000F0\n", "has a stage beyond 65534"},
        Wrong{"LargeMicrobatch", "0F99999999999\n", "has a microbatch beyond 1073741823"},
        Wrong{"NoPair", "(0F0;0B0)OVERLAP\n", "is no pair; a forward and a backward that run"},
        Wrong{"TwoForwards", "(0F0;0F1)OVERLAP_F_B\n", "must be one F and one B or I"},
        Wrong{"AfterTwoBytes", "\xC3\xA4,q\n", "t.csv:1:3: 'q' is no action"}),
    [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Ops, WrongTable,
    testing::Values(
        Wrong{"Twice", "0F0,0F0,0B0\n", "t.csv:1:5: '0F0' stands twice; the first is in line 1, "},
        Wrong{"Both", "0F0,0I0,0W0,0B0\n", "'0B0' stands beside '0I0' of line 1, column 5"},
        Wrong{"NoBackward", "0F0,0F1,0B1\n", "stage 0 has no B, and no I, of microbatch 0"},
        Wrong{"NoForward", "0F0,0B0,0B1\n", "stage 0 has no F of microbatch 1"},
        Wrong{"NoWeight", "0F0,0I0\n", "'0I0' has no '0W0'; without I and W apart it is '0B0'"},
        Wrong{"NoInput", "0F0,0B0,0W0,0F1,0I1,0W1\n", "'0W0' has no '0I0' that goes with it"},
        Wrong{"OlderNoWeight", "0F0,0BW0,0F1,0B1\n",
              "'0B1' has no '0W1'; without B and W apart it is '0BW1'"},
        Wrong{"OlderNoInput", "0F0,0BW0,0F1,0B1,0W1,0W0\n", "'0W0' has no '0B0' that goes with it"},
        Wrong{"OlderNoBackward", "0F0,0BW0,0F1\n", "has no BW, and no B, of microbatch 1"},
        Wrong{"OlderAndNewer", "0F0,0BW0,0F1,0I1,0W1\n",
              "t.csv:1:5: a whole backward is '0B0' in a table whose input's halves are I"},
        Wrong{"OlderBoth", "0F0,0B0,0BW0,0W0\n", "'0BW0' stands beside '0B0' of line 1, column 5"},
        Wrong{"ForwardsOnly", "0F0,0F1\n", "the table has forwards only"},
        Wrong{"StageGap", "0F0,0B0\n2F0,2B0\n",
              "t.csv:2:1: '2F0' is of stage 2, but there is no stage 1;"},
        Wrong{"MicrobatchGap", "0F0,0B0,0F4,0B4\n",
              "but there is no microbatch 1 to 3; they are numbered"},
        Wrong{"OtherDevice", "0F0\n0B0\n", "t.csv:2:1: '0B0' stands on device 1, but '0F0' on"},
        Wrong{"IdleDevice", "0F0,0B0\n\n1F0,1B0\n", "t.csv:2:1: device 1 computes nothing"},
        Wrong{
            "TwoHomes", "0F0,0B0,1F0,1B0,0F1,0B1\n1F1,1B1\n",
            "'1F1' stands on device 1, '1F0' on device 0 (line 1, column 9); a stage lives on one"},
        Wrong{"Sparse",
              "0F0,1F1,2F2,3F3,4F4,5F5,6F6,7F7,8F8,9F9,10F10,11F11,12F12,13F13,14F14,15F15,16F16,"
              "17F17,18F18,19F19,20F20,21F21,22F22,23F23,24F24,25F25,26F26,27F27,28F28,29F29,"
              "30F30,31F31,32F32,33F33,34F34,35F35,36F36,37F37,38F38,39F39,40F40,41F41,42F42\n",
              "the table has 43 actions, too few for 43 stages and 43 microbatches"}),
    [](const auto& instance) { return instance.param.name; });

TEST(TorchCsv, OlderWordsAreToldFromTheWholeTable) {
  // Two devices, of which the first has whole backwards: as PyTorch 2.5 writes them, and today.
  const std::pair<const char*, const char*> kSame[] = {
      {"0F0,0F1,0BW0,0BW1\n1F0,1B0,1F1,1W0,1B1,1W1\n",
       "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1W0,1I1,1W1\n"},
      {"0F0,0B0,0W0\n1F0,1B0,1W0\n", "0F0,0I0,0W0\n1F0,1I0,1W0\n"},
      {"0F0,0F1,0BW0,0BW1\n1F0,(1F1;1BW0)OVERLAP_F_B,,1BW1\n",
       "0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,,1B1\n"}};
  for (const auto& [older, newer] : kSame) {
    const ImportedSchedule a = read_torch_csv(older, "a.csv"), b = read_torch_csv(newer, "b.csv");
    EXPECT_EQ(to_csv(a.table), to_csv(b.table));
    EXPECT_EQ(a.split_backward, b.split_backward);
    ASSERT_EQ(a.warnings.size(), 1) << older;
    EXPECT_NE(a.warnings[0].find("PyTorch 2.5"), std::string::npos);
    EXPECT_TRUE(b.warnings.empty());
  }
}

TEST(TorchCsv, TheSharedTableOfOlderWordsIsRead) {
  const auto path = shared_folder() / "cases" / "zb-old-tokens.csv";
  SKIP_WITHOUT_SHARED(path);
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const ImportedSchedule s = read_torch_csv(text, "zb.csv");
  EXPECT_EQ(to_csv(s.table), "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1W0,1I1,1W1\n");
}

INSTANTIATE_TEST_SUITE_P(
    Orders, WrongTable,
    testing::Values(
        Wrong{"BackwardFirst", "0B0,0F0\n", "t.csv:1:1: '0B0' needs '0F0', which stands after it"},
        Wrong{"WeightFirst", "0F0,0W0,0I0\n", "'0W0' needs '0I0', which stands after it"},
        Wrong{"OwnStages", "1F0,0F0,1B0,0B0\n", "'1F0' needs '0F0', which stands after it on"},
        Wrong{
            "Cycle", "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n",
            "t.csv:1:5: deadlock: device 0 is stuck before '0B0', which waits for '1B0' of device "
            "1 (line 2, column 9); device 1 is stuck before '1F1', which waits for '0F1' of device "
            "0 (line 1, column 9)"},
        Wrong{"NeverThere", "0F0,0B0\n1B0\n",
              "is stuck before '1B0', which waits for '1F0', which "
              "is nowhere"},
        Wrong{"PairOfOneMicrobatch", "(0F0;0B0)OVERLAP_F_B\n",
              "t.csv:1:6: deadlock: device 0 is stuck before '0B0', which waits for '0F0', which "
              "runs together with it (line 1, column 2)"},
        Wrong{"OfAnotherDevice", "0F0,0B0,1REDUCE_GRAD\n1F0,1B0\n",
              "t.csv:1:9: '1REDUCE_GRAD' is of a stage that device 0 does not compute"},
        Wrong{"Resharded", "0UNSHARD,0F0,0RESHARD,0B0\n",
              "'0B0' computes without its parameters; '0UNSHARD' comes first"},
        Wrong{"FetchedTwice", "0UNSHARD,0F0,0UNSHARD,0B0\n", "'0UNSHARD' fetches what is there"},
        Wrong{"GivenUpTwice", "0F0,0RESHARD,0B0\n", "'0RESHARD' gives up what is not there"},
        Wrong{"ReducedEarly", "0F0,0REDUCE_GRAD,0B0\n",
              "t.csv:1:5: '0REDUCE_GRAD' stands before '0B0' (line 1, column 18)"}),
    [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Messages, WrongTable,
    testing::Values(
        Wrong{"NotReceived", "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
              "t.csv:1:5: '0SEND_F0' is received nowhere: there is no '1RECV_F0'"},
        Wrong{"NotSent", "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
              "'1RECV_F0' is sent nowhere: there is no '0SEND_F0'"},
        Wrong{"WaitsForEver", "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
              "is stuck before '1F0', which waits for '1RECV_F0', which nobody sends"},
        Wrong{"Neither", "0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
              "'1F0' needs '0F0' of device 0 (line 1, column 1), but there is no '0SEND_F0' and no "
              "'1RECV_F0'"},
        Wrong{"BeforeItsProducer", "0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
              "t.csv:1:1: '0SEND_F0' sends what '0F0' makes only after it"},
        Wrong{"AfterItsConsumer", "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n",
              "t.csv:2:5: '1RECV_F0' comes after '1F0', which needs it"},
        Wrong{"ToItself", "0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n",
              "'0SEND_F0' is a message of device 0 to itself: '1F0' stands there, too"},
        Wrong{"ToNobody", "0F0,0SEND_F0,0B0\n", "is of stage 0, the first, which has nobody to"},
        Wrong{"OfNothing", "0F0,0SEND_F0,0SEND_F1,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
              "'0SEND_F1' goes with '0F1', which is nowhere"},
        Wrong{"InAnotherRow", "0F0,0RECV_B0,0B0\n1RECV_F0,0SEND_F0,1F0,1B0,1SEND_B0\n",
              "'0SEND_F0' stands on device 1, but '0F0' on device 0"},
        Wrong{"OtherOrder",
              "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
              "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
              "t.csv:2:1: '1RECV_F1' is receive 1 of device 1 from device 0, but send 1 the other "
              "way is '0SEND_F0' (line 1, column 5); messages between two devices arrive in the "
              "order they are sent"}),
    [](const auto& instance) { return instance.param.name; });

TEST(TorchCsv, AllErrorsComeAtOnce) {
  const std::string text = said("0F0,0X0,0B0\n1F0,q,1F0\n");
  for (const char* part : {"'0X0'", "'q'", "'1F0' stands twice", "stage 1 has no B"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(TorchCsv, LongListsOfErrorsEnd) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "q,";
  const std::string all = said(text);
  EXPECT_NE(all.find("t.csv: and "), std::string::npos);
  EXPECT_LT(all.size(), 60'000U);
}

TEST(TorchCsv, ATableSaysWhereStagesLive) {
  const ImportedSchedule s =
      read_torch_csv("0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2I0,2W0,1I0,1W0\n", "t.csv");
  EXPECT_EQ(s.placement.positions(), (std::vector<std::uint32_t>{0, 1, 1, 0}));
  EXPECT_EQ(s.depth, 2U);
  EXPECT_EQ(s.chunks, 2U);
  EXPECT_EQ(s.microbatches, 1U);
  EXPECT_TRUE(s.split_backward);
  EXPECT_FALSE(s.full_backward);
  EXPECT_FALSE(s.communicates);
}

TEST(TorchCsv, OfAPairTheForwardIsFirst) {
  const ImportedSchedule s =
      read_torch_csv("0F0,0F1,1F0,(1B0;1F1)OVERLAP_F_B,0B0,1B1,0B1\n", "t.csv");
  EXPECT_EQ(tokens_of(s.order, 0), "0F0 0F1 1F0 (1F1;1B0)OVERLAP_F_B 0B0 1B1 0B1");
  EXPECT_EQ(to_csv(s.table), "0F0,0F1,1F0,(1B0;1F1)OVERLAP_F_B,0B0,1B1,0B1\n");
}

TEST(TorchCsv, WhatSpreadsheetsAddDoesNotMatter) {
  EXPECT_EQ(said(std::string("\xEF\xBB\xBF") + "\"0F0\",\"0B0\"\r\n\r\n"), "");
}

/// A generated order is read back as it was, alone and lowered; in NCCL's channels, too, and with
/// one channel for both directions of a pair of devices.
void expect_read_back(const Schedule& schedule, const ScheduleShape& shape) {
  const std::uint32_t m = shape.microbatches_per_update;
  SCOPED_TRACE(fmt::format("{} p={} m={} v={}", schedule.name, shape.depth, m, shape.chunks));
  OpLists order;
  schedule.generate(shape, order);
  const Placement where =
      layout(schedule.layout, std::vector<int>(shape.depth, 1), shape.chunks, m);
  const TorchTable compute = table_of(order);
  const ImportedSchedule back = read_torch_csv(to_csv(compute), "t.csv");
  for (int d = 0; d < order.devices(); ++d)
    ASSERT_EQ(tokens_of(back.order, d), tokens_of(order, d));
  EXPECT_EQ(back.placement.positions(), where.positions());
  EXPECT_EQ(back.placement.mirrored(), where.mirrored() && m > 1 && shape.depth > 1);
  const TorchTable all = with_communication(compute, where);
  const ImportedSchedule lowered = read_torch_csv(to_csv(all), "t.csv");
  EXPECT_EQ(lowered.warnings, std::vector<std::string>{});
  EXPECT_EQ(lowered.table.rows, all.rows);
}

TEST(TorchCsv, EveryShippedScheduleIsReadBackAsItWas) {
  int read = 0;
  for (const Schedule& schedule : schedules()) {
    if (schedule.whole_backward) continue;  // a table has a backward of every microbatch
    for (std::uint32_t p = 1; p <= (kBrief ? 3 : 8); ++p) {
      for (const std::uint32_t m : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 12U, 16U, 24U}) {
        if (kBrief && schedule.looks_at_costs && m > 5) break;  // a search takes seconds
        for (std::uint32_t v = 1; v <= 4; ++v) {
          const ScheduleShape shape{.depth = p, .microbatches_per_update = m, .chunks = v};
          if (!schedule.refuse(shape).empty()) continue;
          expect_read_back(schedule, shape);
          ++read;
        }
      }
    }
  }
  EXPECT_GT(read, 300);
}

/// Ops of a pipeline in a random order that each device could run by itself.
std::vector<std::vector<Op>> random_order(std::mt19937& rng, std::uint32_t p, std::uint32_t m) {
  std::vector<std::vector<Op>> rows(p);
  for (std::uint32_t s = 0; s < p; ++s) {
    std::vector<std::uint32_t> forwards(m), backwards;
    for (std::uint32_t k = 0; k < m; ++k) forwards[k] = k;
    // Mostly in order, so that some of them run.
    if (rng() % 4 == 0) std::shuffle(forwards.begin(), forwards.end(), rng);
    while (!forwards.empty() || !backwards.empty()) {
      const bool forward = backwards.empty() || (!forwards.empty() && rng() % 2 == 0);
      auto& from = forward ? forwards : backwards;
      const std::uint32_t k = from.front();
      from.erase(from.begin());
      rows[s].push_back(make_op(forward ? OpKind::forward : OpKind::backward, s, k));
      if (forward) backwards.push_back(k);
    }
  }
  return rows;
}

TEST(TorchCsv, RandomOrdersDeadlockWhenTheEvaluationDoesAndNameABlockedOp) {
  std::mt19937 rng(11);
  int dead = 0, alive = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t p = 2 + static_cast<std::uint32_t>(rng() % 3);
    const std::uint32_t m = 1 + static_cast<std::uint32_t>(rng() % 4);
    OpLists order;
    for (const auto& row : random_order(rng, p, m)) {
      for (const Op& op : row) order.add_op(op);
      order.end_device();
    }
    const Evaluation expected = evaluate(order, loop_placement(static_cast<int>(p), 1, 1),
                                         {.depth = p, .microbatches_per_update = m});
    const std::string text = said(to_csv(table_of(order)));
    ASSERT_EQ(text.empty(), expected.stuck.empty()) << text;
    (text.empty() ? alive : dead) += 1;
    if (text.empty()) continue;
    const bool named = std::ranges::any_of(expected.stuck, [&](const Op& op) {
      return text.find("is stuck before '" + to_string(op) + "'") != std::string::npos;
    });
    EXPECT_TRUE(named) << text;
  }
  EXPECT_GT(dead, 200);
  EXPECT_GT(alive, 200);
}

TEST(TorchCsv, DamagedTablesAreRefusedOrRunButNeverCrash) {
  std::mt19937 rng(3);
  const std::string alphabet = "0123,;()\nFBIWSEND_RCV \"";
  const std::string lowered =
      to_csv(with_communication(read_torch_csv(kRight, "t.csv").table, loop_placement(2, 1, 1)));
  for (int i = 0; i < 8000; ++i) {
    std::string text = i % 2 == 0 ? kRight : lowered;
    for (std::size_t n = 1 + rng() % 3; n-- > 0;) {
      const std::size_t at = rng() % text.size();
      if (rng() % 2 == 0) {
        text.erase(at, 1 + rng() % 3);
      } else {
        text.insert(at, 1, alphabet[rng() % alphabet.size()]);
      }
      if (text.empty()) break;
    }
    said(text);  // InputError or nothing; anything else ends the test
  }
}

TEST(TorchCsv, ALineOfRefusedWordsIsNotAlsoCalledADeviceThatComputesNothing) {
  const std::string words = said("0F0,0B0\nx\n");
  EXPECT_NE(words.find("t.csv:2:1: 'x' is no action"), std::string::npos) << words;
  EXPECT_EQ(words.find("computes nothing"), std::string::npos) << words;
  const std::string blank = said("0F0,0B0\n,\n1F0,1B0\n");
  EXPECT_NE(blank.find("t.csv:2:1: device 1 computes nothing"), std::string::npos) << blank;
}

TEST(TorchCsv, RecordedOrdersRunAndRecordedDeadlocksAreNamed) {
  SKIP_WITHOUT_RECORDED("torch_pipelining_2.14.1.jsonl.gz");
  int right = 0;
  for (const char* file :
       {"torch_pipelining_2.14.1.jsonl.gz", "megatron_interleaved.jsonl.gz", "sail_simple.jsonl.gz",
        "sail_v_adaptive_search.jsonl.gz", "sail_vhalf_vmin_greedy.jsonl.gz",
        "sail_zb_auto.jsonl.gz", "sail_zbv_heuristic.jsonl.gz", "deepseek_dualpipe.jsonl.gz"}) {
    for (const RecordedCase& one : recorded_cases(file)) {
      if (one.order.empty()) continue;
      const std::string text = said(to_csv(table_of(recorded_order(one))));
      EXPECT_EQ(text.find("deadlock: ") != std::string::npos, one.deadlocks()) << one.name();
      if (!one.deadlocks()) {
        EXPECT_EQ(text, "") << one.name();
      }
      right += text.empty() ? 1 : 0;
    }
  }
  EXPECT_GT(right, 1000);
}

}  // namespace
}  // namespace penstock::torch_csv_test
