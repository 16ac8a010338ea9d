// SPDX-License-Identifier: Apache-2.0
// Program files: what is written is read again, and what nobody should have written is refused
// with its reason before anything is allocated.
#include "hw/run_plan_file.hpp"

#include "tests/hw/plan_rig.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace penstock::run_plan_file_test {
namespace {

using Json = nlohmann::json;

RunPlan plan(const std::string& schedule = "1f1b") {
  return plan_of({schedule, shape_of(schedule, 3, 4, 2)});
}

std::string why(const Json& json) {
  try {
    parse_run_plan(json.dump(), "p.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ProgramFile, OfEveryScheduleIsReadAsItWasWritten) {
  for (const Schedule& s : schedules()) {
    RigSpec spec{std::string(s.name), shape_of(std::string(s.name), 3, 4, 2)};
    for (std::uint32_t stage = 0; stage < spec.shape.stages(); ++stage) {
      StageCosts& c = spec.costs.emplace_back(unit_costs(1.25, 2.5 + stage));
      c.overlap_saving_s = 0.125 * stage;
      c.step_s = 0.375, c.reduce_grad_s = 0.1875 * stage;
      if (stage % 2 == 1) continue;
      c.stored = c.pass(false);
      (*c.stored)[OpKind::backward].seconds -= 0.75;
      c.stored->activation_bytes = 70 + stage, c.stored->backward_workspace_bytes = 7;
    }
    RunPlan written = plan_of(spec);
    written.training.seed = std::numeric_limits<std::uint64_t>::max();
    const RunPlan read = parse_run_plan(to_text(written), "p.json");
    EXPECT_EQ(to_text(read), to_text(written)) << s.name;
    ASSERT_EQ(read.program.ops.size(), written.program.ops.size());
    for (std::uint32_t g = 0; g < read.program.ops.size(); ++g)
      ASSERT_EQ(read.program.ops[g], written.program.ops[g]) << s.name;
    for (std::uint32_t g = 0; g < read.program.ops.size(); ++g)
      ASSERT_EQ(duration_s(read, g), duration_s(written, g)) << s.name;
    const Placement& placement = read.program.placement;
    EXPECT_EQ(placement.mirrored_batch(), written.program.placement.mirrored_batch());
    EXPECT_EQ(placement.positions(), written.program.placement.positions());
    EXPECT_EQ(read.training.seed, written.training.seed);
  }
}

/// Sends, steps, batches and replicas follow from it.
TEST(ProgramFile, HoldsTheComputeOrderOfOneBatch) {
  RigSpec spec{"1f1b", {2, 2, 3}};
  spec.shape.replicas = 2;
  const RunPlan written = plan_of(spec);
  const Json json = Json::parse(to_text(written));
  EXPECT_EQ(json["order"], Json::array({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}));
  const RunPlan read = parse_run_plan(json.dump(), "p.json");
  EXPECT_EQ(read.program.ops.size(), 4U * 3 * (4 + 2));  // devices, batches, with reduction, step
  EXPECT_EQ(to_text(read), to_text(written));
}

TEST(ProgramFile, IsLoweredToTheOpsItWasWrittenFromWhateverTheReplicas) {
  for (const char* name : {"1f1b", "gpipe", "pipedream", "pipedream-2bw", "zb-h1"}) {
    for (const auto& replicas : {PerStage(3), PerStage(std::vector{2, 3, 1})}) {
      RigSpec spec{name, shape_of(name, 3, 4, 2)};
      spec.shape.replicas = replicas;
      if (!find_schedule(name)->refuse(spec.shape).empty()) continue;  // equal widths only
      const RunPlan written = plan_of(spec);
      const RunPlan read = parse_run_plan(to_text(written), "p.json");
      ASSERT_EQ(read.program.ops.size(), written.program.ops.size()) << name;
      for (std::uint32_t g = 0; g < read.program.ops.size(); ++g)
        ASSERT_EQ(read.program.ops[g], written.program.ops[g]) << name;
    }
  }
}

TEST(ProgramFile, OfATransformerIsReadAsItWasWritten) {
  RunPlan written = plan();
  make_transformer(written, Recompute::full);
  EXPECT_EQ(to_text(parse_run_plan(to_text(written), "p.json")), to_text(written));
}

/// Two replicas with half of the experts each.
RunPlan with_experts() {
  RigSpec spec{"1f1b", {2, 2, 1}};
  spec.shape.replicas = 2;
  RunPlan plan = plan_of(spec);
  make_transformer(plan, Recompute::none);
  plan.model.experts = Experts{.count = 4, .top_k = 2, .width = 8, .router_bias = true};
  plan.division.expert = 2;
  plan.router_start = {1, 0, 0, 0};
  return plan;
}

TEST(ProgramFile, OfAModelWithExpertsIsReadAsItWasWrittenAndRefusedWhereItIsWrong) {
  const std::string text = to_text(with_experts());
  EXPECT_EQ(to_text(parse_run_plan(text, "p.json")), text);
  const auto why_with = [&](const char* place, const Json& value) {
    Json json = Json::parse(text);
    json[Json::json_pointer(place)] = value;
    return why(json);
  };
  EXPECT_NE(why_with("/division/expert", 3).find("must divide the experts"), std::string::npos);
  EXPECT_NE(why_with("/division/expert", 4).find("ranks of each position"), std::string::npos);
  EXPECT_NE(why_with("/model/experts/top_k", 5).find("top_k 1 to count"), std::string::npos);
  EXPECT_NE(why_with("/model/experts/width", 0).find("an expert is 0 wide"), std::string::npos);
  EXPECT_NE(why_with("/router_start", {1, 2}).find("router_start must"), std::string::npos);
}

TEST(ProgramFile, HasOneRecomputationOrOneOfEachStage) {
  RunPlan written = plan();
  for (const auto& recompute : {PerStage<Recomputation>(Recompute::full),
                                in_turn(written, {Recompute::full, Recompute::selective})}) {
    make_transformer(written, recompute);
    const Json json = Json::parse(to_text(written));
    EXPECT_EQ(json["recompute"],
              recompute.alike() ? Json("full") : Json::array({"full", "selective", "full"}));
    EXPECT_EQ(parse_run_plan(to_text(written), "p.json").recompute, recompute);
  }
}

TEST(ProgramFile, HasTheLayersThatAreRecomputed) {
  RunPlan written = plan();
  make_transformer(written, in_turn(written, {Recomputation::block(3), Recompute::none}), 4);
  EXPECT_EQ(Json::parse(to_text(written))["recompute"],
            Json::array({"block 3", "none", "block 3"}));
  EXPECT_EQ(parse_run_plan(to_text(written), "p.json").recompute, written.recompute);
}

TEST(ProgramFile, KeepsAnUnlimitedBandwidth) {
  RunPlan written = plan();
  written.channels[0].bytes_per_s = std::numeric_limits<double>::infinity();
  const RunPlan read = parse_run_plan(to_text(written), "p.json");
  EXPECT_EQ(read.channels[0].bytes_per_s, std::numeric_limits<double>::infinity());
}

struct Change {
  const char* pointer;  ///< JSON pointer
  Json value;
  const char* reason;
};

TEST(ProgramFile, SaysEverythingThatIsWrongAtOnce) {
  Json json = Json::parse(to_text(plan()));
  json["costs"][1]["forward"]["compute_s"] = -1;
  json["program"]["placement"]["widths"] = "two";
  json["order"][0] = "0F0 0X0 0B0 0B";
  json.erase("name");
  EXPECT_EQ(why(json),
            "p.json: 'name' is missing\n"
            "p.json: program.placement.widths: must be a list, got \"two\"\n"
            "p.json: order[0]: '0X0' is no op that computes\n"
            "p.json: order[0]: '0B' is no op that computes\n"
            "p.json: costs[1].forward.compute_s: must be a number from 0 to 1e+09, got -1");
}

class WrongProgramFile : public testing::TestWithParam<Change> {};

TEST_P(WrongProgramFile, IsRefusedWithItsReason) {
  RunPlan right = plan("pipedream");
  make_transformer(right, Recompute::none);
  Json json = Json::parse(to_text(right));
  ASSERT_EQ(why(json), "");
  json[Json::json_pointer(GetParam().pointer)] = GetParam().value;
  const std::string text = why(json);
  EXPECT_NE(text.find(GetParam().reason), std::string::npos) << text;
  EXPECT_EQ(text.find("p.json"), 0U) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, WrongProgramFile,
    testing::Values(
        Change{"/penstock_program", 3,
               "version 3; this penstock reads 11: export the scenario again"},
        Change{"/nane", 3, "unknown key 'nane'"},
        Change{"/costs/1/forwards", 3, "costs[1]: unknown key 'forwards'"},
        Change{"/name", 3, "name: must be a text"},
        Change{"/training/seed", -1, "seed: must be an integer from 0"},
        Change{"/training/seed", 1.5, "seed: must be an integer"},
        Change{"/compute", "magic", "compute: must be one of stand_in, transformer"},
        Change{"/program", 1, "p.json: program: must be an object, got 1"},
        Change{"/program/flushes", "yes", "flushes: must be true or false"},
        Change{"/program/optimizer_sync", "never", "device, global, post-validation"},
        Change{"/program/optimizer_sync", "post-validation", "only devices that flush"},
        Change{"/program/placement/widths/0", 2147483648,
               "program.placement.widths[0]: must be an integer from 0 to 2147483647"},
        Change{"/program/placement/widths", Json::array(), "no devices"},
        Change{"/program/placement/widths/0", 0, "no devices"},
        Change{"/program/placement/widths/0", 4,
               "reduction.parts must have those of each position"},
        Change{"/program/placement/widths/0", 2147483647, "more than 16000000 devices"},
        Change{"/ops", 65535, "65535 ops are stated"},
        Change{"/program/batches", 9, "ops are stated"},
        Change{"/program/batches", 4294967295U, "too long"},
        Change{"/program/microbatches_per_update", 4294967295U, "too long"},
        Change{"/program/placement/position", Json::array(), "no stages"},
        Change{"/program/placement/position/1", 3, "outside of the pipeline"},
        Change{"/program/placement/position/1", 0, "position 1 of the pipeline has no stage"},
        Change{"/program/versions/delay", Json::array({1}), "delay and stages differ"},
        Change{"/program/versions/delay/0", 4294967295U, "weight version"},
        Change{"/program/placement/mirrored_batch", 1, "even number of devices"},
        Change{"/reduction/parts", Json::array({Json::array()}),
               "reduction.parts must have those of each position"},
        Change{"/reduction/algorithm", "star", "reduction.algorithm: must be one of ring"},
        Change{"/reduction/gpus", Json::array({1, 1, 2}), "a GPU of its own for each rank"},
        Change{"/reduction/nodes", Json::array({1}), "the node of each rank"},
        Change{"/lone_updates", Json::array({{{"replica", 0}, {"version", 0}}}),
               "lone_updates must have the updates of each replica"},
        Change{"/costs", Json::array(), "costs and stages differ"},
        Change{"/costs/0/forward/compute_s", nullptr, "forward.compute_s: must be a number from 0"},
        Change{"/costs/0/forward/compute_s", -1, "forward.compute_s: must be a number from 0"},
        Change{"/costs/0/output_bytes", 9007199254740992, "output_bytes: must be an integer"},
        Change{"/channels/0/source", 7, "does not join two devices"},
        Change{"/channels/0/bytes_per_s", 0, "has no bandwidth"},
        Change{"/channels", Json::array(), "has no channel from"},
        Change{"/channels/0/backward", true, "0F0 has no channel from 0 to 1"},
        Change{"/layers", Json::array({3, 0, 0}), "stage 1 has nothing to do"},
        Change{"/layers", Json::array({1, 1, 2}), "not those of the model"},
        Change{"/layers", Json::array({3}), "layers and stages differ"},
        Change{"/recompute", "ful",
               "recompute: must be one of none, selective, full, block N, uniform N, got"},
        Change{"/recompute", Json::array({"full", "ful", "none"}), "got \"ful\""},
        Change{"/recompute", Json::array({"full", "none"}), "recompute and stages differ"},
        Change{"/recompute", "block 0", "got \"block 0\""},
        Change{"/recompute", Json::array(), "recompute: must be a name, or a list of names"},
        Change{"/model/hidden_size", 4611686018427387904, "hidden_size: must be an integer"},
        Change{"/model/hidden_size", 16777217, "a size of the model"},
        Change{"/model/seq_length", 16777216, "larger than any machine"},
        Change{"/model/num_attention_heads", 0, "a size of the model"},
        Change{"/microbatch_size", 0, "a size of the model"},
        Change{"/optimizer/beta1", "x", "beta1: must be a number"},
        Change{"/order/0", "", "ops are stated"}, Change{"/order/0", "x", "order[0]: 'x' is no op"},
        Change{"/order/0", 4, "order[0]: must be a text"},
        Change{"/order", Json::array(), "order and placement differ"},
        Change{"/order/2", "2F0++", "is no op"}, Change{"/order/0", "0STEP0", "is no op"},
        Change{"/order/0", "9F0", "out of place"}, Change{"/order/0", "1F0", "out of place"},
        Change{"/order/0", "0F4294967295", "out of place"}));

TEST(ProgramFile, WithListedVersionsIsRefusedWhereTheyAreNotWhatAnOpCanUse) {
  const RunPlan right = plan_of({"i-timeprest", {2, 3, 3}});
  const Change changes[] = {
      {"/program/versions/forward_listed", Json::array(), "must have a rising version"},
      {"/program/versions/forward_listed/0/8", 0, "must have a rising version"},
      {"/program/versions/forward_listed/0", 3, "forward_listed[0]: must be a list"},
      {"/program/versions/backward_listed/1/8", 7, "needs weight version 7"},
      {"/program/versions/listed_held", Json::array({1}), "must have a rising version"},
      {"/program/versions/listed_held/1", 1, "weight versions at once"},
      {"/program/versions/backward", "corrected", "only the latest weights"},
      {"/program/versions/backward", "halved", "must be one of plain, corrected, mixed"},
      {"/program/whole_backward", false, "backward_microbatches is not the number"},
      {"/costs/1/backward_microbatches", 2, "backward_microbatches is not the number"},
  };
  for (const Change& change : changes) {
    Json json = Json::parse(to_text(right));
    ASSERT_EQ(why(json), "");
    json[Json::json_pointer(change.pointer)] = change.value;
    EXPECT_NE(why(json).find(change.reason), std::string::npos)
        << change.pointer << ": " << why(json);
  }
}

/// One text of a device's list replaced by another.
std::string after(const RunPlan& right, const std::string& from, const std::string& to) {
  std::string text = to_text(right);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return why(Json::parse(text));
}

TEST(WrongOps, AreRefusedWithTheirReason) {
  const RunPlan right = plan();
  EXPECT_NE(after(right, "\"0F0 ", "\"0F1 ").find("0F1 stands twice"), std::string::npos);
  EXPECT_NE(after(right, "\"0F0 ", "\"0F99 ").find("out of place"), std::string::npos);
  EXPECT_NE(after(right, "\"0F0 0F1", "\"0F0 0B0").find("stands twice"), std::string::npos);
  EXPECT_NE(after(right, "\"2F0 2B0", "\"2B0 2F0").find("stands after it"), std::string::npos);
}

TEST(WrongOps, ThatCannotRunTogetherOrStoreByHalvesAreRefused) {
  const auto together = "can run together only with a backward";
  const RunPlan right = plan();
  EXPECT_NE(after(right, "\"0F0 ", "\"0F0+ ").find(together), std::string::npos);
  EXPECT_NE(after(right, "\"0F0 ", "\"0F0=+ ").find("is no op"), std::string::npos);
  EXPECT_NE(after(right, "\"0F0 ", "\"0F0= ").find("stores ('=') what its F does not"),
            std::string::npos);
  RunPlan coupled = plan_of({"dualpipev", shape_of("dualpipev", 2, 4, 1)});
  EXPECT_EQ(why(Json::parse(to_text(coupled))), "");
  coupled.program.transfers = Transfers::coupled;
  EXPECT_NE(why(Json::parse(to_text(coupled))).find(together), std::string::npos);
}

TEST(WrongOps, ThatWouldTakeLessThanNoTimeAreRefused) {
  RunPlan pairs = plan_of({"dualpipev", shape_of("dualpipev", 2, 4, 1)});
  for (StageCosts& c : pairs.costs) c.overlap_saving_s = 4;
  EXPECT_NE(why(Json::parse(to_text(pairs))).find("would take -1 s"), std::string::npos);
}

TEST(WrongMirrors, AreRefusedWithTheirReason) {
  const RunPlan right = plan_of({"chimera", {4, 4, 2}});
  EXPECT_EQ(why(Json::parse(to_text(right))), "");
  const Change changes[] = {
      {"/program/placement/mirrored_batch", 3, "mirrored_batch is not microbatches_per_update"},
      {"/program/placement/mirrored_batch", 0, "reduction.parts must have"},
      {"/program/placement/position", Json::array({0, 2, 1, 3}), "in their order"},
      {"/program/placement/widths/0", 2, "even number of devices"},
      {"/reduction/parts", Json::array(), "reduction.parts must have"},
      {"/reduction/parts/0/0/seconds", -1, "seconds: must be a number from 0"},
      {"/reduction/parts/0/0/share", 0.5, "must add up to 1"},
      {"/reduction/parts/0/0/ready", 2, "ready: must be a number from 0 to 1"},
  };
  for (const Change& change : changes) {
    Json json = Json::parse(to_text(right));
    json[Json::json_pointer(change.pointer)] = change.value;
    EXPECT_NE(why(json).find(change.reason), std::string::npos)
        << change.pointer << ": " << why(json);
  }
}

TEST(WrongOps, NamedByControlCharactersAreQuotedReadably) {
  const std::string text = after(plan(), "\"0F0 ", "\"\\u001b[2J ");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("is no op"), std::string::npos);
}

/// Every number in a device's list, with where it stands in the text.
std::vector<std::pair<std::size_t, std::size_t>> numbers_of(const std::string& line) {
  std::vector<std::pair<std::size_t, std::size_t>> numbers;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const std::size_t end = std::min(line.find_first_not_of("0123456789", at), line.size());
    if (end > at) numbers.emplace_back(at, end - at);
    at = end;
  }
  return numbers;
}

const std::size_t kEvery = kBrief ? 5 : 1;

/// Plans of each kind of placement, of split and of whole backwards.
std::vector<RunPlan> plans_of_all_kinds() {
  std::vector<RunPlan> plans;
  for (const char* name : {"1f1b", "pipedream", "interleaved-1f1b", "zb-h1", "v-half", "dualpipe",
                           "timeprest", "torchgpipe"})
    plans.push_back(plan(name));
  return plans;
}

TEST(ProgramFile, WithAStageOrMicrobatchOutOfRangeIsRefusedWhereverItStands) {
  for (const RunPlan& right : plans_of_all_kinds()) {
    const Json json = Json::parse(to_text(right));
    for (std::size_t d = 0; d < json["order"].size(); ++d) {
      const std::string line = json["order"][d];
      const auto numbers = numbers_of(line);
      for (std::size_t i = 0; i < numbers.size(); i += kEvery) {
        for (const char* number : {"4000", "65535", "65536", "4294967295", "4294967296",
                                   "18446744073709551616", "99999999999999999999999"}) {
          Json changed = json;
          std::string other = line;
          changed["order"][d] = other.replace(numbers[i].first, numbers[i].second, number);
          ASSERT_NE(why(changed), "") << right.name << " device " << d << ": " << number << " in "
                                      << line.substr(0, numbers[i].first) << "...";
        }
      }
    }
  }
}

/// Where every number of a file is.
void each_number(const Json& json, const Json::json_pointer& at,
                 std::vector<Json::json_pointer>& found) {
  if (json.is_number()) found.push_back(at);
  if (json.is_array())
    for (std::size_t i = 0; i < json.size(); ++i) each_number(json[i], at / i, found);
  if (json.is_object())
    for (const auto& [key, value] : json.items()) each_number(value, at / key, found);
}

TEST(ProgramFile, WithAnyNumberChangedIsReadOrRefusedButNeverABug) {
  const Json numbers[] = {0,
                          1,
                          -1,
                          65535,
                          65536,
                          2147483648,
                          4294967295U,
                          4294967296L,
                          1.5,
                          1e300,
                          -1e300,
                          std::numeric_limits<std::uint64_t>::max(),
                          std::numeric_limits<std::int64_t>::min()};
  std::size_t refused = 0;
  std::vector<RunPlan> plans = plans_of_all_kinds();
  plans.push_back(with_experts());
  for (const RunPlan& right : plans) {
    Json json = Json::parse(to_text(right));
    std::vector<Json::json_pointer> places;
    each_number(json, Json::json_pointer(), places);
    for (std::size_t i = 0; i < places.size(); i += kEvery) {
      const Json was = json[places[i]];
      for (const Json& number : numbers) {
        json[places[i]] = number;
        ASSERT_NO_THROW(refused += why(json).empty() ? 0 : 1)
            << right.name << " " << places[i] << ": " << number;
      }
      json[places[i]] = was;
    }
  }
  EXPECT_GT(refused, 1000U / kEvery);
}

TEST(ProgramFile, WithADeviceOutOfRangeIsRefused) {
  for (const RunPlan& right : plans_of_all_kinds()) {
    const Json json = Json::parse(to_text(right));
    // The last one is device 0 where bits are cut off.
    const Json devices[] = {json["order"].size(), 65536, 2147483647, 2147483648, -1, 4294967296};
    for (const char* end : {"source", "destination"}) {
      for (const Json& device : devices) {
        Json more = json;  // one that no message uses
        more["channels"].push_back(json["channels"][0]);
        more["channels"].back()[end] = device;
        ASSERT_NE(why(more), "") << right.name << " " << end << " " << device;
      }
    }
    for (const Json& device : devices) {
      Json moved = json;
      moved["program"]["placement"]["position"][0] = device;
      ASSERT_NE(why(moved), "") << right.name << " " << device;
    }
  }
}

TEST(ProgramFile, WithAChannelTwiceIsRefused) {
  Json json = Json::parse(to_text(plan()));
  json["channels"].push_back(json["channels"][0]);
  EXPECT_NE(why(json).find("stands twice"), std::string::npos) << why(json);
}

TEST(ProgramFile, SaysWhenItsDevicesStep) {
  for (const StepSync sync : {StepSync::device, StepSync::global, StepSync::post_validation}) {
    RigSpec spec{"zb-h1", {3, 4, 2}};
    spec.step_sync = sync;
    const RunPlan read = parse_run_plan(to_text(plan_of(spec)), "p.json");
    EXPECT_EQ(read.program.step_sync, sync);
  }
}

TEST(ProgramFile, WithoutAWayForThePartialNormIsRefused) {
  RigSpec spec{"1f1b", {3, 4, 1}};
  spec.step_sync = StepSync::post_validation;
  Json json = Json::parse(to_text(plan_of(spec)));
  ASSERT_EQ(why(json), "");
  json["channels"][0]["source"] = 2;  // instead of 0, to 1
  EXPECT_NE(why(json).find("the partial norm has no forward channel from 0 to 1"),
            std::string::npos)
      << why(json);
}

TEST(ProgramFile, MayAskAnotherStageOfItsOwnDevice) {
  // Two stages on one device, the backward of each split: gradients go on before W.
  RunPlan two = plan_of({"1f1b", {1, 1, 1, false, 0}});
  Json json = Json::parse(to_text(two));
  json["program"]["placement"]["position"] = {0, 0};
  json["costs"].push_back(json["costs"][0]);
  json["ops"] = 7;
  json["order"][0] = "0F0 1F0 1I0 0I0 0W0 1W0";
  const RunPlan read = parse_run_plan(json.dump(), "p.json");
  RunOptions options;
  options.settings.deadline_s = 30;
  const RecordedRun run = run_alone(read, options);
  ASSERT_TRUE(run.complete) << run.stopped_because;
  EXPECT_TRUE(run.weights_equal.value_or(false));
}

TEST(ProgramFile, MayUseMessagesInAnotherOrderThanTheyAreSent) {
  // Device 0 sends 0F0 2F0 0F1 2F1 on one channel, device 1 uses 2F0 after 0F1.
  RigSpec spec{"looped-bfs", {.depth = 2, .microbatches_per_update = 2, .chunks = 2}};
  Json json = Json::parse(to_text(plan_of(spec)));
  json["order"] = {"0F0 2F0 0F1 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"};
  const RunPlan read = parse_run_plan(json.dump(), "p.json");
  for (const RunOptions& options : {virtual_clock(), RunOptions{}}) {
    const RecordedRun run = run_alone(read, options);
    ASSERT_TRUE(run.complete) << run.stopped_because;
    EXPECT_TRUE(run.weights_equal.value_or(false));
  }
}

}  // namespace
}  // namespace penstock::run_plan_file_test
