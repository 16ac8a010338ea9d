// SPDX-License-Identifier: Apache-2.0
// One test per rule: a small trace that obeys all of them, and one change each.
#include "traces/trace_check.hpp"

#include "base/error.hpp"
#include "temp_folder.hpp"
#include "traces/byte_sink.hpp"

namespace penstock::trace_check_test {
namespace {

// Two devices and a message between them.
const std::vector<std::string> kMetadata = {
    R"({"ph":"M","name":"process_name","pid":1,"tid":1,"args":{"name":"device 0"}})",
    R"({"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"compute"}})",
    R"({"ph":"M","name":"process_name","pid":2,"tid":2,"args":{"name":"device 1"}})",
    R"({"ph":"M","name":"thread_name","pid":2,"tid":2,"args":{"name":"compute"}})",
};
const std::string kSend = R"({"ph":"X","name":"send act 0","pid":1,"tid":1,"ts":10,"dur":5})";
const std::string kReceive = R"({"ph":"X","name":"recv act 0","pid":2,"tid":2,"ts":10,"dur":5})";
const std::string kStart = R"({"ph":"s","name":"a","cat":"t","id":1,"pid":1,"tid":1,"ts":10})";
const std::string kFinish =
    R"({"ph":"f","bp":"e","name":"a","cat":"t","id":1,"pid":2,"tid":2,"ts":14.999})";

TraceReport check_text(const std::string& text) {
  const TempFolder folder;
  write_file(folder / "t.json", text);
  return check_trace(folder / "t.json");
}

/// The report on the metadata above, the events given, and nothing else.
TraceReport check_events(const std::vector<std::string>& events) {
  std::string text = R"({"displayTimeUnit":"ms","otherData":{"x":{"ph":"?"}},"traceEvents":[)";
  bool first = true;
  for (const auto* list : {&kMetadata, &events}) {
    for (const std::string& event : *list) {
      if (!first) text += ",\n";
      first = false;
      text += event;
    }
  }
  return check_text(text + "]}");
}

void expect_only(const TraceReport& report, const std::string& sentence) {
  ASSERT_EQ(report.violations, 1) << (report.first.empty() ? "" : report.first.front());
  EXPECT_EQ(report.first.at(0), sentence);
}

TEST(TraceCheck, AcceptsATraceThatObeysEveryRule) {
  const TraceReport report = check_events(
      {kSend, kReceive, kStart, kFinish, R"({"ph":"C","name":"m","pid":1,"ts":1,"args":{"a":1}})",
       R"({"ph":"C","name":"m","pid":1,"ts":2,"args":{"a":2}})",
       R"({"ph":"i","name":"now","s":"t","pid":1,"tid":1,"ts":3})"});
  EXPECT_EQ(report.violations, 0) << report.first.at(0);
  EXPECT_EQ(report.events, 11);
  EXPECT_EQ(report.slices, 2);
  EXPECT_EQ(report.counters, 2);
  EXPECT_EQ(report.flows, 2);
  EXPECT_EQ(report.lanes, 2);
  EXPECT_EQ(report.processes, 2);
}

TEST(TraceCheck, WhatIsNotJsonIsSaidWithItsPlace) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      check_text(text);
    } catch (const InputError& e) {
      const std::string what = e.what();
      return what.substr(what.find("t.json"));
    }
    return "no error";
  };
  EXPECT_EQ(error("{\n \"traceEvents\": [nan]}"), "t.json:2:19: is not JSON from here on");
  EXPECT_EQ(error("{\"a\": \"\xff\"}"), "t.json:1:8: is not JSON from here on");
  EXPECT_EQ(error("{\"ts\": 1e400}"), "t.json: holds a number that is too large for a time");
}

TEST(TraceCheck, ReadsGzip) {
  const TempFolder folder;
  write_file(folder / "t.json.gz", R"({"traceEvents":[]})");
  EXPECT_EQ(check_trace(folder / "t.json.gz").violations, 0);
}

TEST(TraceCheck, FindsPidZero) {
  expect_only(check_events({R"({"ph":"C","name":"m","pid":0,"ts":1,"args":{"a":1}})"}),
              "event 5 (pid 0, tid 0) needs a pid that is not 0");
}

TEST(TraceCheck, FindsTidZero) {
  expect_only(check_events({R"({"ph":"i","s":"t","name":"x","pid":1,"tid":0,"ts":1})"}),
              "event 5 (pid 1, tid 0) needs a tid that is not 0");
}

TEST(TraceCheck, FindsAMissingTid) {
  expect_only(check_events({R"({"ph":"i","s":"t","name":"x","pid":1,"ts":1})"}),
              "event 5 (pid 1, tid 0) needs a tid that is not 0");
}

TEST(TraceCheck, FindsANamelessEvent) {
  expect_only(check_events({R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":1})"}),
              "event 5 (pid 1, tid 1) has no name");
}

TEST(TraceCheck, FindsAnEventWithoutTime) {
  expect_only(check_events({R"({"ph":"X","name":"F 0","pid":1,"tid":1,"dur":1})"}),
              "event 5 (pid 1, tid 1) has no ts");
}

TEST(TraceCheck, FindsANegativeOrMissingDuration) {
  const std::string sentence = "event 5 (pid 1, tid 1) needs a dur that is not negative";
  expect_only(check_events({R"({"ph":"X","name":"F 0","pid":1,"tid":1,"ts":1,"dur":-1})"}),
              sentence);
  expect_only(check_events({R"({"ph":"X","name":"F 0","pid":1,"tid":1,"ts":1})"}), sentence);
}

TEST(TraceCheck, FindsBeginAndEndEvents) {
  expect_only(check_events({R"({"ph":"B","name":"F 0","pid":1,"tid":1,"ts":1})"}),
              "event 5 (pid 1, tid 1) has the phase 'B'; only M, X, C, s, f and i are understood");
}

TEST(TraceCheck, FindsAnEventWithoutPhase) {
  expect_only(check_events({R"({"name":"F 0","pid":1,"tid":1,"ts":1})"}),
              "event 5 (pid 1, tid 1) has the phase ''; only M, X, C, s, f and i are understood");
}

TEST(TraceCheck, FindsAnInstantOfWiderScope) {
  expect_only(check_events({R"({"ph":"i","s":"g","name":"x","pid":1,"tid":1,"ts":1})"}),
              "event 5 (pid 1, tid 1) an instant needs \"s\": \"t\"");
}

TEST(TraceCheck, FindsMetadataWithATime) {
  expect_only(
      check_events(
          {R"({"ph":"M","name":"thread_name","pid":1,"tid":1,"ts":0,"args":{"name":"x"}})"}),
      "event 5 (pid 1, tid 1) is metadata and has a ts");
}

TEST(TraceCheck, FindsMetadataWithoutArguments) {
  expect_only(check_events({R"({"ph":"M","name":"thread_name","pid":1,"tid":1})"}),
              "event 5 (pid 1, tid 1) is metadata without args");
}

TEST(TraceCheck, FindsMetadataAfterTheFirstEvent) {
  expect_only(
      check_events(
          {kSend, R"({"ph":"M","name":"thread_name","pid":1,"tid":3,"args":{"name":"x"}})"}),
      "event 6 (pid 1, tid 3) is metadata and comes after the first event");
}

TEST(TraceCheck, FindsAProcessWithoutName) {
  expect_only(
      check_events({R"({"ph":"M","name":"thread_name","pid":3,"tid":3,"args":{"name":"x"}})",
                    R"({"ph":"X","name":"F 0","pid":3,"tid":3,"ts":1,"dur":1})"}),
      "process 3 has no process_name");
}

TEST(TraceCheck, FindsALaneWithoutName) {
  expect_only(check_events({R"({"ph":"X","name":"F 0","pid":1,"tid":7,"ts":1,"dur":1})"}),
              "lane pid 1, tid 7 has no thread_name");
}

TEST(TraceCheck, FindsAnOverlapOfOneNanosecond) {
  expect_only(
      check_events({kSend, R"({"ph":"X","name":"F 0","pid":1,"tid":1,"ts":14.999,"dur":1})"}),
      "lane pid 1, tid 1 has overlapping slices at 14999 ns");
}

TEST(TraceCheck, FindsAnOverlapWhateverTheOrderInTheFile) {
  expect_only(
      check_events({kSend, R"({"ph":"X","name":"F 0","pid":1,"tid":1,"ts":9,"dur":1.001})"}),
      "lane pid 1, tid 1 has overlapping slices at 10000 ns");
}

TEST(TraceCheck, AcceptsSlicesThatTouch) {
  const auto report =
      check_events({kSend, R"({"ph":"X","name":"F 0","pid":1,"tid":1,"ts":15.000,"dur":1})"});
  EXPECT_EQ(report.violations, 0);
}

TEST(TraceCheck, FindsTwoCounterSamplesAtOneInstant) {
  expect_only(check_events({R"({"ph":"C","name":"m","pid":1,"tid":1,"ts":1.0,"args":{"a":1}})",
                            R"({"ph":"C","name":"m","pid":1,"tid":1,"ts":1.0001,"args":{"a":2}})"}),
              "event 6 (pid 1, tid 1) is a second sample of its counter at one instant");
}

TEST(TraceCheck, FindsACounterThatGoesBackInTime) {
  expect_only(check_events({R"({"ph":"C","name":"m","pid":1,"tid":1,"ts":2,"args":{"a":1}})",
                            R"({"ph":"C","name":"m","pid":1,"tid":1,"ts":1,"args":{"a":2}})"}),
              "event 6 (pid 1, tid 1) is a counter sample that goes back in time");
}

TEST(TraceCheck, FindsACounterWithoutSeries) {
  expect_only(check_events({R"({"ph":"C","name":"m","pid":1,"tid":1,"ts":2,"args":{}})"}),
              "event 5 (pid 1, tid 1) is a counter without series");
}

TEST(TraceCheck, FindsACounterThatIsNoNumber) {
  expect_only(check_events({R"({"ph":"C","name":"m","pid":1,"tid":1,"ts":2,"args":{"a":"1"}})"}),
              "event 5 (pid 1, tid 1) has the series 'a', which is not a number");
}

TEST(TraceCheck, FindsAFlowThatNeverFinishes) {
  expect_only(check_events({kSend, kReceive, kStart}), "flow t/a/1 starts and never finishes");
}

TEST(TraceCheck, FindsAFlowThatNeverStarted) {
  expect_only(check_events({kSend, kReceive, kFinish}), "flow t/a/1 finishes and never started");
}

TEST(TraceCheck, FindsAFlowWithoutId) {
  expect_only(check_events({kSend, R"({"ph":"s","name":"a","cat":"t","pid":1,"tid":1,"ts":10})"}),
              "event 6 (pid 1, tid 1) is a flow without an id");
}

TEST(TraceCheck, FindsARepeatedFlowId) {
  expect_only(check_events({kSend, kReceive, kStart, kFinish, kStart}),
              "event 9 (pid 1, tid 1) repeats the id of a flow");
}

TEST(TraceCheck, FindsAFinishThatBindsToTheNextSlice) {
  expect_only(
      check_events({kSend, kReceive, kStart,
                    R"({"ph":"f","name":"a","cat":"t","id":1,"pid":2,"tid":2,"ts":14.999})"}),
      "event 8 (pid 2, tid 2) finishes a flow without \"bp\": \"e\"");
}

TEST(TraceCheck, FindsAFlowEndOutsideEverySlice) {
  for (const std::string ts : {"9.999", "15.000"}) {
    const TraceReport report = check_events(
        {kSend, kReceive, kStart,
         R"({"ph":"f","bp":"e","name":"a","cat":"t","id":1,"pid":2,"tid":2,"ts":)" + ts + "}"});
    expect_only(report, "flow t/a/1 touches pid 2, tid 2 at " +
                            std::string(ts == "9.999" ? "9999" : "15000") +
                            " ns, where there is no slice");
  }
}

TEST(TraceCheck, FindsAMissingArrayOfEvents) {
  for (const char* text : {"{}", "[]", "3", R"({"traceEvents":{}})"})
    expect_only(check_text(text), "the file has no array \"traceEvents\"");
}

TEST(TraceCheck, FindsAnElementThatIsNoEvent) {
  expect_only(check_text(R"({"traceEvents":[7]})"),
              "the file holds something in \"traceEvents\" that is no event");
}

TEST(TraceCheck, KeepsTheFirstTwentyOfManyViolations) {
  const std::vector<std::string> many(50, R"({"ph":"B","name":"x","pid":1,"tid":1,"ts":1})");
  const TraceReport report = check_events(many);
  EXPECT_EQ(report.violations, 50);
  EXPECT_EQ(report.first.size(), 20u);
}

TEST(TraceCheck, RefusesWhatIsNotJson) {
  EXPECT_THROW(check_text(R"({"traceEvents":[)"), InputError);
  EXPECT_THROW(check_text(""), InputError);
}

TEST(TraceCheck, SurvivesEventsOfOddTypes) {
  const TraceReport report = check_events(
      {R"({"ph":1,"name":[],"pid":"1","tid":1.5,"ts":"0"})", R"({"ph":"X","name":"x","args":[]})",
       R"({"ph":"M","name":"process_name","pid":1,"tid":1,"args":[1]})", "{}"});
  EXPECT_GE(report.violations, 4);
}

}  // namespace
}  // namespace penstock::trace_check_test
