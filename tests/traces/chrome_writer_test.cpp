// SPDX-License-Identifier: Apache-2.0
#include "traces/chrome_writer.hpp"

#include "hand_made.hpp"
#include "temp_folder.hpp"
#include "traces/byte_sink.hpp"
#include "traces/trace_check.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <set>

namespace penstock::chrome_writer_test {
namespace {

using nlohmann::json;

ChromeTrace trace_of(const HandMade& run) {
  return {run.view(), run.memory(), [](const Op& op) { return op.microbatch + 100; }, {}};
}

/// What was written, after the checker has accepted it.
json written(const ChromeTrace& trace) {
  const TempFolder folder;
  write_chrome_trace(trace, folder / "t.json");
  const TraceReport report = check_trace(folder / "t.json");
  EXPECT_EQ(report.violations, 0) << report.first.at(0);
  return json::parse(read_file(folder / "t.json"));
}

json select(const json& trace, const std::function<bool(const json&)>& wanted) {
  json found = json::array();
  for (const json& e : trace["traceEvents"]) {
    if (wanted(e)) found.push_back(e);
  }
  return found;
}
json slices(const json& trace, const std::string& category, int pid) {
  return select(trace, [&](const json& e) {
    return e["ph"] == "X" && e["cat"] == category && e["pid"] == pid;
  });
}
std::vector<std::string> reasons(const HandMade& run, int device) {
  std::vector<std::string> found;
  for (const json& e : slices(written(trace_of(run)), "bubble", device + 1))
    found.push_back(e["args"]["reason"]);
  return found;
}
std::map<int, std::string> lane_names(const json& trace, int pid) {
  std::map<int, std::string> names;
  for (const json& e : trace["traceEvents"]) {
    if (e["name"] == "thread_name" && e["pid"] == pid) names[e["tid"]] = e["args"]["name"];
  }
  return names;
}

/// GPipe on p devices with F = 1, B = 2 and messages of `wire` + `latency`, run op by op.
class Gpipe {
 public:
  Gpipe(int p, std::uint32_t m, Transfers transfers, double wire, double latency)
      : p_(p), m_(m), transfers_(transfers), wire_(wire), latency_(latency) {
    next_.assign(size(), 0);
    free_at_.assign(size(), 0);
    ops_.resize(size());
    while (step()) {
    }
  }
  const std::vector<std::vector<TimedOp>>& ops() const { return ops_; }

 private:
  std::size_t size() const { return static_cast<std::size_t>(p_); }
  /// Runs the next op of the first device that can; false when all is done.
  bool step() {
    for (int d = 0; d < p_; ++d) {
      const std::uint32_t i = next_[static_cast<std::size_t>(d)];
      if (i == 2 * m_) continue;
      const bool forward = i < m_;
      const std::uint32_t microbatch = forward ? i : 2 * m_ - 1 - i;
      const bool receives = forward ? d > 0 : d + 1 < p_;
      const auto message = sent_.find({d, forward, microbatch});
      if (receives && message == sent_.end()) continue;
      run(d, forward, microbatch, receives ? message->second : Span{-1, -1});
      return true;
    }
    return false;
  }
  void run(int d, bool forward, std::uint32_t microbatch, Span message) {
    double& free_at = free_at_[static_cast<std::size_t>(d)];
    const double start = std::max(free_at, message.end_s);
    const double end = start + (forward ? 1 : 2);
    free_at = end;
    const int to = forward ? d + 1 : d - 1;
    const bool sends = to >= 0 && to < p_;
    if (sends) {
      double& lane = lane_free_[{d, to}];
      const double depart = std::max(end, lane);
      lane = depart + wire_;
      sent_[{to, forward, microbatch}] = {depart, depart + wire_ + latency_};
      if (transfers_ != Transfers::overlapped && transfers_ != Transfers::free)
        free_at = depart + wire_ + latency_;
    }
    const int flags = (message.end_s >= 0 ? kIn : 0) | (sends ? kOut : 0);
    ops_[static_cast<std::size_t>(d)].push_back({forward ? OpKind::forward : OpKind::backward,
                                                 static_cast<std::uint16_t>(d), microbatch, flags,
                                                 start, end, message});
    ++next_[static_cast<std::size_t>(d)];
  }

  int p_;
  std::uint32_t m_;
  Transfers transfers_;
  double wire_, latency_;
  std::vector<std::uint32_t> next_;
  std::vector<double> free_at_;
  std::map<std::pair<int, int>, double> lane_free_;
  std::map<std::tuple<int, bool, std::uint32_t>, Span> sent_;
  std::vector<std::vector<TimedOp>> ops_;
};

TEST(ChromeWriter, PassesTheCheckerForAllTransferSemantics) {
  for (const Transfers transfers :
       {Transfers::free, Transfers::overlapped, Transfers::coupled, Transfers::blocking}) {
    for (const double latency : {0.0, 1.0 / 3, 5.5}) {
      const bool free = transfers == Transfers::free;
      HandMade run(Gpipe(4, 6, transfers, free ? 0 : 0.1, free ? 0 : latency).ops());
      run.program.transfers = transfers;
      StageCosts costs;
      costs.output_bytes = 3;
      costs.activation_bytes = 10;
      run.costs.assign(4, costs);
      const json trace = written(trace_of(run));
      const json flows = select(trace, [](const json& e) { return e["ph"] == "s"; });
      EXPECT_EQ(flows.size(), free ? 0u : 2u * 3 * 6);
      for (int pid = 1; pid <= 4; ++pid) EXPECT_EQ(slices(trace, "compute", pid).size(), 12u);
    }
  }
}

TEST(ChromeWriter, NamesProcessesAndLanesInOrder) {
  const json trace = written(trace_of(HandMade(two_stages())));
  const std::map<int, std::string> first = {
      {1, "compute"}, {1001, "bubble"}, {1002, "recv grad from 1"}, {1003, "send act to 1"}};
  EXPECT_EQ(lane_names(trace, 1), first);
  const json labels = select(trace, [](const json& e) { return e["name"] == "process_labels"; });
  EXPECT_EQ(labels[1]["args"]["labels"], "stage 1");
  std::map<int, int> sort;
  for (const json& e : trace["traceEvents"]) {
    if (e["name"] == "thread_sort_index" && e["pid"] == 1) sort[e["tid"]] = e["args"]["sort_index"];
  }
  EXPECT_LT(sort[1], sort[1001]);
  EXPECT_LT(sort[1001], sort[1003]);
  EXPECT_LT(sort[1003], sort[1002]);
}

TEST(ChromeWriter, OpsCarryTheirNumbersAsArguments) {
  const json trace = written(trace_of(HandMade(two_stages())));
  const json ops = slices(trace, "compute", 2);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[1]["name"], "B 0");
  EXPECT_EQ(ops[1]["ts"], 3'000'000.0);
  EXPECT_EQ(ops[1]["dur"], 2'000'000.0);
  EXPECT_EQ(ops[1]["args"], json({{"stage", 1}, {"microbatch", 0}, {"weight_version", 100}}));
}

TEST(ChromeWriter, MessagesAreSeenAtBothEndsAndJoined) {
  HandMade run(two_stages());
  run.costs[0].output_bytes = 64;
  const json trace = written(trace_of(run));
  const json args = {{"microbatch", 0}, {"stage", 0}, {"bytes", 64}, {"src", 1}, {"dst", 0}};
  const json at_receiver = slices(trace, "transfer", 1)[0];
  const json at_sender = slices(trace, "transfer", 2)[0];
  EXPECT_EQ(at_receiver["name"], "recv grad 0");
  EXPECT_EQ(at_sender["name"], "send grad 0");
  EXPECT_EQ(at_receiver["args"], args);
  EXPECT_EQ(at_sender["args"], args);
  EXPECT_EQ(at_sender["ts"], 5'000'000.0);
  EXPECT_EQ(at_sender["dur"], at_receiver["dur"]);
  const json flows = select(trace, [](const json& e) { return e.contains("id"); });
  ASSERT_EQ(flows.size(), 4u);
  for (std::size_t i = 0; i < flows.size(); i += 2) {
    EXPECT_EQ(flows[i]["id"], flows[i + 1]["id"]);
    EXPECT_NE(flows[i]["pid"], flows[i + 1]["pid"]);
  }
}

TEST(ChromeWriter, SkipsMessagesThatTakeNoTime) {
  HandMade run(
      {{{OpKind::forward, 0, 0, kOut, 0, 1}}, {{OpKind::forward, 1, 0, kIn, 1, 2, {1, 1}}}});
  const json trace = written(trace_of(run));
  EXPECT_TRUE(slices(trace, "transfer", 1).empty());
  EXPECT_EQ(lane_names(trace, 1).size(), 2u);
}

TEST(ChromeWriter, OverlappingMessagesGetLanesOfTheirOwn) {
  // Three messages from 1 to 11, 2 to 12 and 11 to 12: the third reuses the first one's lane.
  const HandMade run({{{OpKind::forward, 0, 0, kOut, 0, 1},
                       {OpKind::forward, 0, 1, kOut, 1, 2},
                       {OpKind::forward, 0, 2, kOut, 10, 11}},
                      {{OpKind::forward, 1, 0, kIn, 12, 13, {1, 11}},
                       {OpKind::forward, 1, 1, kIn, 13, 14, {2, 12}},
                       {OpKind::forward, 1, 2, kIn, 14, 15, {11, 12}}}});
  const json trace = written(trace_of(run));
  const auto names = lane_names(trace, 1);
  EXPECT_EQ(names.size(), 4u);
  EXPECT_EQ(names.at(1002), "send act to 1");
  EXPECT_EQ(names.at(1003), "send act to 1 (2)");
  const json sends = slices(trace, "transfer", 1);
  EXPECT_EQ(sends[0]["tid"], 1002);
  EXPECT_EQ(sends[1]["tid"], 1003);
  EXPECT_EQ(sends[2]["tid"], 1002);
}

TEST(ChromeWriter, MessagesConsumedOutOfOrderUseNoMoreLanesThanTheyNeed) {
  const HandMade run(
      {{{OpKind::forward, 0, 0, kOut, 0, 1}, {OpKind::forward, 0, 1, kOut, 1, 2}},
       {{OpKind::forward, 1, 1, kIn, 3, 4, {2, 3}}, {OpKind::forward, 1, 0, kIn, 4, 5, {1, 2}}}});
  EXPECT_EQ(lane_names(written(trace_of(run)), 1).size(), 3u);
}

TEST(ChromeWriter, RoundsTimesToNanosecondsSoThatNeighboursTouch) {
  std::vector<std::vector<TimedOp>> devices(1);
  for (std::uint32_t i = 0; i < 200; ++i)
    devices[0].push_back({OpKind::forward, 0, i, 0, i / 3e6, (i + 1) / 3e6});
  const json found = slices(written(trace_of(HandMade(devices))), "compute", 1);
  ASSERT_EQ(found.size(), 200u);
  const auto ns = [](const json& us) { return std::llround(us.get<double>() * 1000); };
  for (std::size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(ns(found[i - 1]["ts"]) + ns(found[i - 1]["dur"]), ns(found[i]["ts"]));
    EXPECT_EQ(ns(found[i]["ts"]), std::llround(static_cast<double>(i) / 3 * 1000));
  }
}

TEST(ChromeWriter, PrintsThreeDecimalsOfAMicrosecond) {
  const TempFolder folder;
  const HandMade run({{{OpKind::forward, 0, 0, 0, 1.4e-9, 1.2345678e-3}}});
  write_chrome_trace(trace_of(run), folder / "t.json");
  EXPECT_NE(read_file(folder / "t.json").find(R"("ts":0.001,"dur":1234.567,)"), std::string::npos);
}

TEST(ChromeWriter, BubblesSayWhatTheDeviceWaitsFor) {
  const HandMade run(two_stages());
  EXPECT_EQ(
      reasons(run, 0),
      (std::vector<std::string>{"B 0 waits for B 0 of stage 1",
                                "B 0 waits for the output of B 0 of stage 1, which is in flight"}));
  EXPECT_EQ(reasons(run, 1),
            (std::vector<std::string>{"F 0 waits for F 0 of stage 0", "nothing left to do"}));
}

TEST(ChromeWriter, BubblesOfAHeldSenderNameItsOwnSend) {
  HandMade run({{{OpKind::forward, 0, 0, kOut, 0, 1}, {OpKind::forward, 0, 1, 0, 3, 4}},
                {{OpKind::backward, 1, 1, 0, 0, 2}, {OpKind::forward, 1, 0, kIn, 3, 4, {2, 3}}}});
  run.program.transfers = Transfers::coupled;
  EXPECT_EQ(reasons(run, 0),
            (std::vector<std::string>{"F 1 waits until the output of F 0 can be sent",
                                      "F 1 waits until the output of F 0 has been sent"}));
}

TEST(ChromeWriter, BubblesOfReductionsSayWhetherTheyHaveBegun) {
  const HandMade run({{{OpKind::backward, 0, 0, 0, 0, 2},
                       {OpKind::reduce_grad, 0, 0, 0, 4, 5},
                       {OpKind::step, 0, 0, 0, 5, 6}}});
  EXPECT_EQ(reasons(run, 0), (std::vector<std::string>{"REDUCE_GRAD 0 waits for the other devices",
                                                       "REDUCE_GRAD 0 is under way"}));
}

/// A reduction from 2 to 6 beside F 1; STEP 0 waits for it from 3 on.
std::vector<std::vector<TimedOp>> detached_reduction() {
  return {{{OpKind::backward, 0, 0, 0, 0, 2},
           {OpKind::reduce_grad, 0, 0, Op::detached, 2, 2, {2, 6}},
           {OpKind::forward, 0, 1, 0, 2, 3},
           {OpKind::step, 0, 0, 0, 6, 7}}};
}

TEST(ChromeWriter, DetachedReductionsHaveALaneOfTheirOwn) {
  HandMade run(detached_reduction());
  run.costs[0].reduced_bytes = 48;
  const json trace = written(trace_of(run));
  const json found = slices(trace, "reduction", 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["name"], "reduction 0");
  EXPECT_EQ(found[0]["ts"], 2'000'000.0);
  EXPECT_EQ(found[0]["dur"], 4'000'000.0);
  EXPECT_EQ(found[0]["args"], json({{"stage", 0}, {"bytes", 48}}));
  EXPECT_EQ(lane_names(trace, 1).at(found[0]["tid"]), "reduction");
  EXPECT_EQ(slices(trace, "compute", 1).size(), 3U) << "the REDUCE_GRAD itself takes no time";
  EXPECT_EQ(reasons(run, 0),
            std::vector<std::string>{"STEP 0 waits for the reduction of its gradient"});
}

TEST(ChromeWriter, ReductionsThatStartDuringTheBackwardAreSeenFromThereOn) {
  // The first parts from 1 on; the device waits for the rest from 2 to 4.
  const HandMade early({{{OpKind::backward, 0, 0, 0, 0, 2},
                         {OpKind::reduce_grad, 0, 0, 0, 2, 4, {1, 4}},
                         {OpKind::step, 0, 0, 0, 4, 5}}});
  const json found = slices(written(trace_of(early)), "reduction", 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["ts"], 1'000'000.0);
  // One that is all in the compute lane is not shown twice.
  const HandMade whole({{{OpKind::backward, 0, 0, 0, 0, 2},
                         {OpKind::reduce_grad, 0, 0, 0, 2, 4, {2, 4}},
                         {OpKind::step, 0, 0, 0, 4, 5}}});
  EXPECT_TRUE(slices(written(trace_of(whole)), "reduction", 1).empty());
}

TEST(ChromeWriter, ReductionsInFlightTogetherGetLanesOfTheirOwn) {
  auto ops = detached_reduction();
  ops[0].push_back({OpKind::reduce_grad, 0, 1, Op::detached, 7, 7, {5, 9}});
  ops[0].push_back({OpKind::step, 0, 1, 0, 9, 10});
  const json found = slices(written(trace_of(HandMade(ops))), "reduction", 1);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[0]["tid"], found[1]["tid"]);
}

TEST(ChromeWriter, BubblesAreNamedByTheirCause) {
  std::set<std::string> names;
  for (int pid : {1, 2}) {
    for (const json& e : slices(written(trace_of(HandMade(two_stages()))), "bubble", pid))
      names.insert(e["name"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"imbalance", "transfer_wait", "warmup", "drain"}));
}

json counters(const json& trace) {
  return select(trace, [](const json& e) { return e["ph"] == "C"; });
}

TEST(ChromeWriter, CountersOfOneNanosecondAreMerged) {
  // F 0 ends 0.1 ns before F 1 starts: at 1 s there is one sample, the last one.
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1}, {OpKind::forward, 0, 1, 0, 1 + 1e-10, 2}}});
  run.costs[0].activation_bytes = 8;
  run.costs[0].forward_workspace_bytes = 3;
  const json found = counters(written(trace_of(run)));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["args"], json({{"activations", 8}, {"workspace", 3}}));
  EXPECT_EQ(found[1]["ts"], 1'000'000.0);
  EXPECT_EQ(found[1]["args"], json({{"activations", 16}, {"workspace", 3}}));
  EXPECT_EQ(found[2]["args"], json({{"activations", 16}, {"workspace", 0}}));
}

TEST(ChromeWriter, CountersAreWrittenOnlyWhenTheyChange) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1}, {OpKind::forward, 0, 1, 0, 1, 2}}});
  run.costs[0].forward_workspace_bytes = 3;  // freed and allocated again at 1 s
  EXPECT_EQ(counters(written(trace_of(run))).size(), 2u);
}

TEST(ChromeWriter, CountersLeaveOutOwnersThatHoldNothing) {
  HandMade run(two_stages());
  run.costs[0].weight_bytes = 5;
  for (const json& e : counters(written(trace_of(run)))) {
    EXPECT_EQ(e["pid"], 1) << "device 1 holds nothing";
    EXPECT_EQ(e["args"], json({{"weights", 5}}));
  }
}

TEST(ChromeWriter, OtherDataIsEscaped) {
  const HandMade run(two_stages());
  ChromeTrace trace = trace_of(run);
  trace.other_data = {{"scenario", "a \"b\"\n\xff"}, {"engine", "exact"}};
  const json other = written(trace)["otherData"];
  EXPECT_EQ(other["scenario"], "a \"b\"\n\xEF\xBF\xBD");
  EXPECT_EQ(other["engine"], "exact");
}

TEST(ChromeWriter, GzipHoldsTheSameBytes) {
  const TempFolder folder;
  const HandMade run(Gpipe(4, 6, Transfers::overlapped, 0.1, 5).ops());
  write_chrome_trace(trace_of(run), folder / "t.json");
  write_chrome_trace(trace_of(run), folder / "t.json.gz");
  EXPECT_EQ(read_file(folder / "t.json"), read_file(folder / "t.json.gz"));
  EXPECT_LT(std::filesystem::file_size(folder / "t.json.gz"),
            std::filesystem::file_size(folder / "t.json") / 5);
}

TEST(ChromeWriter, RunsWithoutOpsAreATraceToo) {
  const HandMade run(std::vector<std::vector<TimedOp>>(2));
  EXPECT_TRUE(slices(written(trace_of(run)), "compute", 1).empty());
}

TEST(ChromeWriter, PutsSeveralTimelinesInProcessesOfTheirOwn) {
  const HandMade predicted(two_stages()), measured(two_stages());
  ChromeTrace both[] = {trace_of(predicted), trace_of(measured)};
  both[0].prefix = "predicted ";
  both[1].prefix = "measured ";
  const TempFolder folder;
  write_chrome_traces(both, folder / "t.json");
  const TraceReport report = check_trace(folder / "t.json");
  EXPECT_EQ(report.violations, 0) << report.first.at(0);
  EXPECT_EQ(report.processes, 4);
  const json trace = json::parse(read_file(folder / "t.json"));
  std::map<int, std::pair<std::string, int>> names;  // by pid, with its place
  for (const json& e : trace["traceEvents"]) {
    if (e["name"] == "process_name") names[e["pid"]].first = e["args"]["name"];
    if (e["name"] == "process_sort_index") names[e["pid"]].second = e["args"]["sort_index"];
  }
  EXPECT_EQ(names, (std::map<int, std::pair<std::string, int>>{{1, {"predicted device 0", 0}},
                                                               {2, {"predicted device 1", 2}},
                                                               {3, {"measured device 0", 1}},
                                                               {4, {"measured device 1", 3}}}));
  EXPECT_EQ(slices(trace, "compute", 3).size(), 2U);
}

}  // namespace
}  // namespace penstock::chrome_writer_test
