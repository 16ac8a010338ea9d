// SPDX-License-Identifier: Apache-2.0
// Replicas and mirrored stages on the host: they end with the weights of a sequential run, whatever
// reduces their gradients, and who forgets a gradient is noticed.
#include "hw/accounting.hpp"
#include "hw/math.hpp"
#include "hw/parameter_server.hpp"
#include "tests/hw/wrong_stage.hpp"
#include "tests/parameter_name.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <thread>

namespace penstock::replicas_test {
namespace {

// --- replicas

/// A schedule with so many replicas of each stage; nothing where it cannot be executed so.
std::optional<RunPlan> replicated(const std::string& name, int width) {
  RigSpec spec{name, shape_of(name, 3, 3, 2)};
  spec.shape.replicas = width;
  if (!find_schedule(name)->refuse(spec.shape).empty()) return std::nullopt;
  RunPlan plan = plan_of(spec);
  if (!why_not_executable(plan).empty()) return std::nullopt;
  return plan;
}

TEST(Replicas, OfEveryScheduleEndWithTheWeightsOfASequentialRun) {
  int executed = 0;
  for (const std::string& name : executed_schedules()) {
    for (const int width : {2, 3}) {
      std::optional<RunPlan> plan = replicated(name, width);
      if (!plan) continue;
      ++executed;
      EXPECT_EQ(run_alone(*plan, unpaced()).weights_equal, true) << name << " x " << width;
      make_transformer(*plan, Recompute::none);
      EXPECT_EQ(run_alone(*plan, unpaced()).weights_equal, true) << name << " x " << width;
    }
  }
  EXPECT_GT(executed, kAddressSanitized ? 5 : kBrief ? 20 : 60);
}

TEST(Replicas, ThatWaitForNoOtherAreRightInTheOrderInWhichTheyCame) {
  std::optional<RunPlan> plan = replicated("asp", 3);
  ASSERT_TRUE(plan);
  for (const bool real : {false, true}) {
    if (real) make_transformer(*plan, Recompute::none);
    const RecordedRun run = run_alone(*plan, unpaced());
    EXPECT_EQ(run.weights_equal, true);
    std::map<int, std::uint32_t>
        latest;  // by device: an update of its own lies between two versions
    for (const RecordedOp& recorded : run.ops) {
      if (recorded.op.kind != OpKind::forward) continue;
      EXPECT_LE(latest[recorded.device], recorded.weight_version.value_or(0));
      latest[recorded.device] = recorded.weight_version.value_or(0);
    }
    EXPECT_EQ(latest.size(), 3U);
    for (const auto& [device, version] : latest) EXPECT_GE(version, 1U) << device;
  }
  RunOptions options = unpaced();
  options.make_stage = wrong_at(0, losing([](std::uint32_t k) { return k == 5; }));
  EXPECT_EQ(run_alone(*plan, options).weights_equal, false);
}

/// An op that lasts until it is told to end.
class Gate : public EventState {
 public:
  explicit Gate(RunControl& control) : control_(control) {}
  void open() { open_ = true; }
  bool fired() override { return open_; }
  double time_s() override {
    for (; !open_; std::this_thread::yield()) control_.throw_if_stopped();
    return 0;
  }

 private:
  RunControl& control_;
  std::atomic<bool> open_{false};
};

TEST(Replicas, OfOtherProcessesAreServedWhileAnOpBesideTheServerGoesOn) {
  constexpr auto kKind = Transfer::Kind::reduction;
  const RunPlan plan = with_server_channels(replicated("asp", 2).value(), {1});
  RunControl control(5);
  SingleProcess alone;
  const auto backend = open_host_backend({plan, {}, control, alone, {0, 1}});
  const auto stage = make_stage(plan, 0, 4, false);
  ParameterServer server(plan, *stage, backend->device(0), backend->beside(0));
  backend->start();
  const auto gate = std::make_shared<Gate>(control);
  backend->device(0).wait(kComputeQueue, gate);
  auto served = std::async(std::launch::async, [&] { server.serve({1}, *backend, control); });
  Device& other = backend->device(1);
  SendingEnd& to = backend->sending(channel_between(plan, 1, 0, false, kKind));
  ReceivingEnd& from = backend->receiving(channel_between(plan, 0, 1, false, kKind));
  const std::int64_t bytes = 4 * stage->sizes().parameters;
  std::size_t steps = 0;
  for (const Op& op : plan.program.ops.of_device(1)) {
    if (op.kind != OpKind::step) continue;
    ++steps;
    Block* gradient = other.allocate(kComputeQueue, bytes);
    other.math().zero(bytes, {gradient});
    to.send(other.record(kComputeQueue), gradient, bytes, op);
    other.release(to.queue(), gradient);
    Block* weights = other.allocate(from.queue(), bytes);
    ASSERT_NO_THROW(from.receive(nullptr, weights, bytes, op).arrived->time_s());
    other.release(from.queue(), weights);
  }
  served.get();
  EXPECT_EQ(server.updates().size(), steps);
  EXPECT_GT(steps, 1U);
  EXPECT_FALSE(gate->fired());
  gate->open();
}

TEST(Replicas, SendGradientsInBucketsBesideTheLastBackward) {
  std::size_t number = 0;
  for (const char* name :
       {"1f1b", "pipedream-2bw", "pipedream", "zb-h1", "data-parallel", "timeprest",
        "interleaved-1f1b", "looped-bfs", "zb-v", "dualpipe", "chimera", "hanayo"}) {
    if (is_left_out(number++)) continue;
    std::optional<RunPlan> plan = replicated(name, 3);
    ASSERT_TRUE(plan) << name;
    for (const int parts : {2, 7, 40}) {
      divide_reduction(*plan, parts);
      EXPECT_EQ(run_alone(*plan, unpaced()).weights_equal, true) << name << " " << parts;
    }
    divide_reduction(*plan, 7);
    make_transformer(*plan, Recompute::none, 2);
    EXPECT_EQ(run_alone(*plan, unpaced()).weights_equal, true) << name;
  }
}

TEST(Replicas, ThatSendABucketTooEarlyAreNoticed) {
  if constexpr (kThreadSanitized) GTEST_SKIP() << "it is a race on purpose";
  std::optional<RunPlan> plan = replicated("1f1b", 2);
  ASSERT_TRUE(plan);
  divide_reduction(*plan, 2);
  RunOptions options = unpaced();
  const auto hasty = [](Stage&, Math& math, const StageBuffers& b, std::uint32_t) {
    if (!b.piece_done) return false;
    b.piece_done(0);
    // The part has left long before the backward adds to it.
    for (int i = 0; i < 200'000; ++i) math.zero(64, b.workspace);
    return false;
  };
  options.make_stage = wrong_at(
      1, [=](auto right) { return std::make_unique<WrongStage>(std::move(right), hasty); });
  EXPECT_EQ(run_alone(*plan, options).weights_equal, false);
  make_transformer(*plan, Recompute::none, 2);
  EXPECT_EQ(run_alone(*plan, options).weights_equal, false);
  divide_reduction(*plan, 1);  // then nobody listens
  EXPECT_EQ(run_alone(*plan, options).weights_equal, true);
}

TEST(Replicas, ThatForgetTheGradientOfOneAreNoticed) {
  for (const char* name : {"1f1b", "pipedream-2bw", "pipedream"}) {
    const std::optional<RunPlan> plan = replicated(name, 3);
    ASSERT_TRUE(plan);
    for (std::uint32_t lost = 0; lost < 3; ++lost) {
      RunOptions options = unpaced();
      options.make_stage = wrong_at(1, losing([=](std::uint32_t k) { return k % 3 == lost; }));
      EXPECT_EQ(run_alone(*plan, options).weights_equal, false) << name << " without " << lost;
    }
  }
}

/// All algorithms, over nodes of two, of one or of all devices.
TEST(Replicas, EndWithTheWeightsOfASequentialRunByEveryAlgorithm) {
  for (const int width : {2, 4, 5}) {
    std::optional<RunPlan> plan = replicated("data-parallel", width);
    ASSERT_TRUE(plan);
    for (const auto algorithm :
         {ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical, ReductionAlgorithm::tree,
          ReductionAlgorithm::server, ReductionAlgorithm::all_to_all}) {
      plan->reduction.algorithm = algorithm;
      plan->reduction.servers = 2;
      for (const int per_node : {1, 2, 8}) {
        plan->reduction.gpus.clear();
        plan->reduction.nodes.clear();
        for (int d = 0; d < width; ++d) {
          plan->reduction.gpus.push_back(width - 1 - d);
          plan->reduction.nodes.push_back((width - 1 - d) / per_node);
        }
        EXPECT_EQ(run_alone(*plan, unpaced()).weights_equal, true)
            << kReductionNames[static_cast<int>(algorithm)] << " of " << width << ", " << per_node
            << " a node";
      }
    }
  }
}

TEST(Replicas, OfUnevenStagesEndWithTheWeightsOfASequentialRun) {
  using Widths = std::vector<int>;
  std::size_t number = 0;
  for (const char* name : {"pipedream", "pipedream-2bw", "1f1b", "gpipe"}) {
    for (const Widths& widths : {Widths{2, 1}, Widths{1, 3}, Widths{3, 2, 1}, Widths{5, 1}}) {
      if (is_left_out(number++)) continue;
      RigSpec spec{name,
                   {static_cast<std::uint32_t>(widths.size()),
                    std::string_view(name) == "pipedream" ? 1U : 3U, 4}};
      spec.shape.replicas = PerStage<int>(widths);
      RunPlan plan = plan_of(spec);
      ASSERT_TRUE(why_not_executable(plan).empty());
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name;
      make_transformer(plan, Recompute::none);
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name;
      RunOptions options = unpaced();
      options.make_stage = wrong_at(0, losing([](std::uint32_t k) { return k == 3; }));
      EXPECT_EQ(run_alone(plan, options).weights_equal, false) << name;
    }
  }
}

TEST(Replicas, OfMirroredStagesEndWithTheWeightsOfASequentialRun) {
  for (const char* name : {"chimera", "dualpipe"}) {
    for (const int width : {2, 3}) {
      RigSpec spec{name, shape_of(name, 4, 8, 2)};
      spec.shape.replicas = width;
      RunPlan plan = plan_of(spec);
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name << " x " << width;
      RunOptions options = unpaced();
      options.make_stage = wrong_at(1, losing([](std::uint32_t k) { return k == 3; }));
      EXPECT_EQ(run_alone(plan, options).weights_equal, false) << name << " x " << width;
    }
  }
}

TEST(Replicas, OfTwoBufferedWeightsReduceBesideTheNextBatch) {
  for (const int width : {2, 3}) {
    RigSpec spec{"pipedream-2bw", {3, 3, 4}};
    spec.shape.replicas = width;
    spec.detached = true;
    RunPlan plan = plan_of(spec);
    ASSERT_TRUE(why_not_executable(plan).empty());
    EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << width;
    make_transformer(plan, Recompute::none);
    EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << width;
    RunOptions options = unpaced();
    options.make_stage = wrong_at(1, losing([](std::uint32_t k) { return k == 5; }));
    EXPECT_EQ(run_alone(plan, options).weights_equal, false) << width;
  }
}

TEST(Replicas, TakeTheMeanOfMoreMicrobatches) {
  // Two replicas of 2 microbatches make the update of one with 4, but for rounding.
  RunPlan one = plan_of({"1f1b", {3, 4, 3}});
  RigSpec spec{"1f1b", {3, 2, 3}};
  spec.shape.replicas = 2;
  const auto one_losses = run_alone(one, unpaced()).losses;
  const auto two_losses = run_alone(plan_of(spec), unpaced()).losses;
  ASSERT_EQ(one_losses.size(), two_losses.size());
  for (std::size_t k = 0; k < one_losses.size(); ++k)
    EXPECT_NEAR(two_losses[k].loss, one_losses[k].loss, 1e-5);
}

// --- mirrored
// ----------------------------------------------------

TEST(Mirrored, BothEndWithTheWeightsOfASequentialRunAndOneThatForgetsTheOthersGradientDoesNot) {
  const RunPlan plan = plan_of({"chimera", {4, 6, 3}});
  EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true);
  for (const bool reversed : {false, true}) {
    RunOptions options = unpaced();
    options.make_stage = wrong_at(
        1, losing([&](std::uint32_t k) { return plan.program.placement.reversed(k) == reversed; }));
    EXPECT_EQ(run_alone(plan, options).weights_equal, false);
  }
}

/// A plan without some of its ops, and the weights that it should have ended with.
std::optional<bool> equal_without(const RunPlan& right,
                                  const std::function<bool(int device, const Op&)>& left_out) {
  RunPlan wrong = right;
  wrong.program.ops = OpLists();
  for (int d = 0; d < right.program.ops.devices(); ++d) {
    for (const Op& op : right.program.ops.of_device(d)) {
      if (!left_out(d, op)) wrong.program.ops.add_op(op);
    }
    wrong.program.ops.end_device();
  }
  RunOptions options = unpaced();
  options.reference = &right;
  return run_alone(wrong, options).weights_equal;
}

TEST(Mirrored, ThatDoNotReduceAreNoticed) {
  for (const char* name : {"chimera", "dualpipe"}) {
    const RunPlan right = plan_of({name, shape_of(name, 4, 8, 2)});
    EXPECT_EQ(equal_without(right, [](int, const Op&) { return false; }), true);
    EXPECT_EQ(
        equal_without(right, [](int, const Op& op) { return op.kind == OpKind::reduce_grad; }),
        false);
  }
}

TEST(Mirrored, AreBothLookedAt) {
  const RunPlan right = plan_of({"chimera", {4, 4, 2}});
  for (const int forgets : {0, 3}) {
    EXPECT_EQ(equal_without(right,
                            [&](int device, const Op& op) {
                              return device == forgets && op.kind == OpKind::step &&
                                     op.microbatch == 1;
                            }),
              false);
  }
}

TEST(Mirrored, HaveTheLossOfEveryMicrobatchOnce) {
  const RecordedRun unidirectional = run_alone(plan_of({"1f1b", {4, 6, 1}}), unpaced());
  const RecordedRun bidirectional = run_alone(plan_of({"chimera", {4, 6, 1}}), unpaced());
  ASSERT_EQ(bidirectional.losses.size(), 6U);
  for (std::size_t k = 0; k < 6; ++k) {
    EXPECT_EQ(bidirectional.losses[k].microbatch, k);
    EXPECT_EQ(bidirectional.losses[k].loss, unidirectional.losses[k].loss);
  }
}

}  // namespace
}  // namespace penstock::replicas_test
