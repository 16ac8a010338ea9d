// SPDX-License-Identifier: Apache-2.0
#include "traces/recording.hpp"

#include "base/error.hpp"
#include "hand_made.hpp"
#include "temp_folder.hpp"
#include "traces/byte_sink.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace penstock::recording_test {
namespace {

using Json = nlohmann::ordered_json;

Op op(const char* token) { return parse_op(token).value(); }

Recording small() {
  Recording r;
  r.name = "two stages, \"quoted\"";
  r.scenario = "name: two stages\nschedule: 1f1b\n";
  r.profile = "laptop.yaml";
  r.backend = "host";
  r.clock = "wall";
  r.description = {{"cpu", "a cpu"}, {"blas", "OpenBLAS"}};
  r.schedule = "1f1b";
  r.transfers = "overlapped";
  r.depth = 2;
  r.microbatches = 1;
  r.batches = 1;
  r.compute = "stand_in";
  RecordedRun run;
  run.ops = {{0, op("0F0"), {0.1, 1.0 / 3}, {}, 0},
             {1, op("1F0"), {0.5, 0.75}, Span{1.0 / 3, 0.4375}, 0},
             {1, op("1STEP0"), {0.75, 0.75}, {}, {}}};
  RecordedDevice device;
  device.device = 1;
  device.peak[Owner::weights] = 4096;
  device.peak[Owner::workspace] = 7;
  device.peak_at_s = 0.5;
  device.peak_op = op("1F0");
  device.allocator_peak_bytes = 8192;
  run.devices = {device, {.device = 0}};
  run.losses = {{0, 2.5}};
  run.weights_equal = true;
  RecordedRun stopped;
  stopped.complete = false;
  stopped.stopped_because = "device 1 stood before 1B0";
  stopped.losses = {{0, std::numeric_limits<double>::quiet_NaN()}};
  r.runs = {run, stopped};
  return r;
}

/// The text of a recording.
std::string text_of(const Recording& recording) {
  const TempFolder folder;
  write_recording(recording, folder / "r.json");
  return read_file(folder / "r.json");
}

/// What is wrong with the small recording once `change` has been made.
template <class Change>
std::string error_after(Change&& change) {
  Json json = Json::parse(text_of(small()));
  change(json);
  try {
    parse_recording(json.dump(), "r.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Recording, IsTheSameAfterBeingWrittenAndRead) {
  const TempFolder folder;
  for (const char* name : {"r.json", "r.json.gz"}) {
    write_recording(small(), folder / name);
    const Recording r = read_recording(folder / name);
    const Recording wrote = small();
    EXPECT_EQ(r.name, wrote.name);
    EXPECT_EQ(r.scenario, wrote.scenario);
    EXPECT_EQ(r.profile, wrote.profile);
    EXPECT_EQ(r.backend, wrote.backend);
    EXPECT_EQ(r.clock, wrote.clock);
    EXPECT_EQ(r.description, wrote.description);
    EXPECT_EQ(r.schedule, wrote.schedule);
    EXPECT_EQ(r.transfers, wrote.transfers);
    EXPECT_EQ(r.compute, wrote.compute);
    EXPECT_EQ(r.depth, 2);
    EXPECT_EQ(r.microbatches, 1U);
    EXPECT_EQ(r.batches, 1U);
    ASSERT_EQ(r.runs.size(), 2U);
    ASSERT_EQ(r.runs[0].ops.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      const RecordedOp &is = r.runs[0].ops[i], &was = wrote.runs[0].ops[i];
      EXPECT_EQ(is.device, was.device);
      EXPECT_EQ(is.op, was.op);
      EXPECT_EQ(is.span.start_s, was.span.start_s);  // to the last bit
      EXPECT_EQ(is.span.end_s, was.span.end_s);
      EXPECT_EQ(is.weight_version, was.weight_version);
      ASSERT_EQ(is.message.has_value(), was.message.has_value());
    }
    EXPECT_EQ(r.runs[0].ops[1].message->start_s, 1.0 / 3);
    EXPECT_EQ(r.runs[0].ops[1].message->end_s, 0.4375);
    ASSERT_EQ(r.runs[0].devices.size(), 2U);
    EXPECT_EQ(r.runs[0].devices[0].peak.bytes, wrote.runs[0].devices[0].peak.bytes);
    EXPECT_EQ(r.runs[0].devices[0].peak_op, wrote.runs[0].devices[0].peak_op);
    EXPECT_EQ(r.runs[0].devices[0].allocator_peak_bytes, 8192);
    EXPECT_EQ(r.runs[0].devices[1].allocator_peak_bytes, std::nullopt);
    EXPECT_EQ(r.runs[0].devices[1].peak_op, std::nullopt);
    EXPECT_EQ(r.runs[0].losses[0].loss, 2.5);
    EXPECT_EQ(r.runs[0].weights_equal, true);
    EXPECT_TRUE(r.runs[0].complete);
    EXPECT_FALSE(r.runs[1].complete);
    EXPECT_EQ(r.runs[1].stopped_because, "device 1 stood before 1B0");
    EXPECT_EQ(r.runs[1].weights_equal, std::nullopt);
    EXPECT_TRUE(std::isnan(r.runs[1].losses[0].loss));
  }
}

TEST(Recording, IsTheSameBytesEveryTimeWithOneOpPerLine) {
  const std::string text = text_of(small());
  EXPECT_EQ(text, text_of(small()));
  EXPECT_NE(text.find("\n    {\"device\":0,\"op\":\"0F0\",\"start_s\":0.1,"), std::string::npos);
  EXPECT_TRUE(is_recording(text));
  EXPECT_FALSE(is_recording("{\"traceEvents\": []}"));
}

TEST(Recording, SaysEverythingThatIsWrongAtOnce) {
  const std::string error = error_after([](Json& j) {
    j["runs"][0]["ops"][0]["op"] = "0X0";
    j["runs"][0]["ops"][1].erase("end_s");
    j["depth"] = "two";
  });
  EXPECT_NE(error.find("r.json: depth: must be an integer from 1 to 1048576, got \"two\""),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("runs[0].ops[0].op: must be an op such as \"2F5\", got \"0X0\""),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("runs[0].ops[1]: 'end_s' is missing"), std::string::npos) << error;
}

struct Malformed {
  const char* name;
  void (*change)(Json&);
  const char* says;
};
class MalformedRecording : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedRecording, GetsOneClearError) {
  const std::string error = error_after(GetParam().change);
  EXPECT_NE(error.find(GetParam().says), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Recording, MalformedRecording,
    testing::Values(
        Malformed{"OfAnotherFormat", [](Json& j) { j["format"] = "trace"; },
                  "is not a recording: no \"format\": \"penstock recording\""},
        Malformed{"OfAnotherVersion", [](Json& j) { j["version"] = 2; },
                  "version: must be 1, got 2"},
        Malformed{"WithoutAName", [](Json& j) { j.erase("name"); }, "'name' is missing"},
        Malformed{"WithAnUnknownKey", [](Json& j) { j["runs"][0]["opps"] = 1; },
                  "runs[0]: unknown key 'opps'"},
        Malformed{"WithoutRuns", [](Json& j) { j["runs"] = Json::array(); },
                  "runs: must hold at least one run"},
        Malformed{"WhereAnOpEndsBeforeItStarts",
                  [](Json& j) { j["runs"][0]["ops"][0]["end_s"] = 0; },
                  "runs[0].ops[0]: end_s (0) is before start_s (0.1)"},
        Malformed{"WithHalfAMessage",
                  [](Json& j) { j["runs"][0]["ops"][1].erase("message_end_s"); },
                  "runs[0].ops[1]: 'message_end_s' is missing"},
        Malformed{"WithANegativeDevice", [](Json& j) { j["runs"][0]["ops"][0]["device"] = -1; },
                  "runs[0].ops[0].device: must be an integer from 0 to 16777216, got -1"},
        Malformed{"WithTextForATime", [](Json& j) { j["runs"][0]["ops"][0]["start_s"] = "soon"; },
                  "runs[0].ops[0].start_s: must be a number from -1e+09 to 1e+09, got \"soon\""},
        Malformed{"WithoutAnOwnerOfMemory",
                  [](Json& j) { j["runs"][0]["devices"][0]["memory"].erase("weights"); },
                  "runs[0].devices[0].memory: 'weights' is missing"},
        Malformed{"WithANumberInTheDescription", [](Json& j) { j["description"]["cpu"] = 3; },
                  "description.cpu: must be a text, got 3"},
        Malformed{"WhoseRunIsAList", [](Json& j) { j["runs"][1]["ops"] = 3; },
                  "runs[1].ops: must be a list, got 3"}),
    [](const auto& test) { return test.param.name; });

TEST(Recording, ThatIsNotJsonSaysWhere) {
  try {
    parse_recording("{\n \"format\": penstock\n}", "r.json");
    FAIL() << "was read";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "r.json:2:12: is not JSON from here on");
  }
}

TEST(Recording, OfAThousandErrorsTwentyAreShown) {
  const std::string error = error_after([](Json& j) {
    const Json one = {{"device", 0}};
    j["runs"][0]["ops"] = Json::array();
    for (int i = 0; i < 1000; ++i) j["runs"][0]["ops"].push_back(one);
  });
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 20);
  EXPECT_NE(error.find("and 2980 more"), std::string::npos) << error;
}

TEST(ParseOp, ReadsWhatToStringWrites) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::step); ++kind) {
    const Op wrote{.microbatch = 1234567, .stage = 65535, .kind = static_cast<OpKind>(kind)};
    EXPECT_EQ(parse_op(to_string(wrote)), wrote) << to_string(wrote);
  }
  for (const char* wrong : {"", "F", "2F", "F5", "2X5", "2F5 ", " 2F5", "2F-5", "65536F0",
                            "2F4294967296", "2FB5", "2f5"}) {
    EXPECT_EQ(parse_op(wrong), std::nullopt) << wrong;
  }
}

// Matching to a Program

RecordedRun run_of_two_stages() {
  RecordedRun run;
  // In no particular order: as threads end.
  run.ops = {{1, op("1B0"), {3, 5}, {}, 0},
             {0, op("0F0"), {0, 1}, {}, 0},
             {1, op("1F0"), {2, 3}, Span{1, 2}, 0},
             {0, op("0B0"), {6, 8}, Span{5, 6}, 0}};
  return run;
}

TEST(ToTimeline, FindsEveryOpByDeviceAndToken) {
  const HandMade made(two_stages());
  const RecordedTimeline t = to_timeline(made.program.ops, *made.table, run_of_two_stages());
  EXPECT_TRUE(t.missing.empty());
  EXPECT_TRUE(t.unknown.empty());
  for (std::uint32_t g = 0; g < made.program.ops.size(); ++g) {
    EXPECT_EQ(t.timeline.op(g).start_s, made.timeline->op(g).start_s);
    EXPECT_EQ(t.timeline.op(g).end_s, made.timeline->op(g).end_s);
    EXPECT_EQ(t.timeline.message(g).start_s, made.timeline->message(g).start_s);
    EXPECT_EQ(t.timeline.message(g).end_s, made.timeline->message(g).end_s);
  }
  EXPECT_EQ(t.timeline.makespan_s, 8);
  EXPECT_EQ(t.order, (std::vector<std::vector<std::uint32_t>>{{0, 1}, {2, 3}}));
}

TEST(ToTimeline, ReportsOpsThatAreMissingAndThoseNobodyKnows) {
  const HandMade made(two_stages());
  RecordedRun run = run_of_two_stages();
  run.ops.erase(run.ops.begin());                     // 1B0
  run.ops.push_back({0, op("0F0"), {9, 10}, {}, 0});  // twice
  run.ops.push_back({0, op("1F0"), {9, 10}, {}, 0});  // on another device
  run.ops.push_back({1, op("1F7"), {9, 10}, {}, 0});  // no such microbatch
  run.ops.push_back({0, op("9F0"), {9, 10}, {}, 0});  // no such stage
  run.ops.push_back({0, op("0I0"), {9, 10}, {}, 0});  // the Program has a B
  run.ops.push_back({0, op("0STEP0"), {9, 10}, {}, 0});
  const RecordedTimeline t = to_timeline(made.program.ops, *made.table, run);
  EXPECT_EQ(t.missing, std::vector<std::uint32_t>{3});
  EXPECT_EQ(t.timeline.op(3).end_s, -1);
  EXPECT_FALSE(t.timeline.has_message(3));
  ASSERT_EQ(t.unknown.size(), 6U);
  EXPECT_EQ(t.unknown[0].span.start_s, 9);
  EXPECT_EQ(t.timeline.op(0).start_s, 0) << "the first of two counts";
  EXPECT_EQ(t.timeline.makespan_s, 8);
}

TEST(ToTimeline, OrdersOpsByStartAndPutsThoseOfNoLengthFirst) {
  using K = OpKind;
  const HandMade made({{{K::forward, 0, 0, 0, 0, 1},
                        {K::backward, 0, 0, 0, 1, 2},
                        {K::step, 0, 0, 0, 2, 2},
                        {K::forward, 0, 1, 0, 2, 3}}});
  RecordedRun run;
  run.ops = {{0, op("0F1"), {2, 3}, {}, {}},
             {0, op("0STEP0"), {2, 2}, {}, {}},
             {0, op("0B0"), {0.5, 2}, {}, {}},
             {0, op("0F0"), {1, 2}, {}, {}}};
  const RecordedTimeline t = to_timeline(made.program.ops, *made.table, run);
  EXPECT_EQ(t.order[0], (std::vector<std::uint32_t>{1, 0, 2, 3}));
}

}  // namespace
}  // namespace penstock::recording_test
