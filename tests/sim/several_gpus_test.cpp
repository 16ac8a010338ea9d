// SPDX-License-Identifier: Apache-2.0
// Devices of several GPUs: tensor ranks that all-reduce during ops, replicas that split
// microbatches, and replicas on different devices. By hand, and both engines against each other.
#include "tests/rig.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::several_gpus_test {
namespace {

/// GPUs with one port each, 1 byte per second.
Cluster ports(int gpus) {
  Cluster c;
  c.devices_per_node = gpus;
  c.attachment = Attachment::port;
  c.intra = {.latency_s = 0, .bytes_per_s = 1};
  return c;
}

/// A private link between every two GPUs.
Cluster pairs(int gpus, double latency_s, double bytes_per_s) {
  Cluster c = ports(gpus);
  c.attachment = Attachment::pairs;
  c.intra = {.latency_s = latency_s, .bytes_per_s = bytes_per_s};
  return c;
}

struct GpusOfDevices {
  std::vector<std::vector<int>> gpus;  // by device
  int tensor;
};

struct OnGpus : Rig {
  OnGpus(const RigSpec& spec, Cluster on, const GpusOfDevices& gpus) : Rig(spec) {
    cluster = std::move(on);
    Mesh mesh;
    mesh.size(Axis::tensor) = gpus.tensor;
    mesh.gpus = gpus.gpus;
    traffic = std::make_unique<Traffic>(program, cluster, mesh, spec.reduction,
                                        collectives_of(spec.costs));
  }
  /// The op of a device, by its place in the device's list, or the message it waits for.
  std::uint32_t op(int device, std::uint32_t i) const { return program.ops.begin(device) + i; }
};

/// Times of both engines must be these; `exact` only where it can.
void expect_both(const OnGpus& run, const std::function<void(const Timeline&)>& check) {
  ASSERT_EQ(why_not_exact(run.input()), "");
  check(simulate_exact(run.input()));
  const std::vector<double> exact = flatten(simulate_exact(run.input()));
  for (const bool flows : {false, true}) {
    const std::vector<double> other = run_simgrid(run, {.every_message_a_flow = flows});
    ASSERT_EQ(other.size(), exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i)
      EXPECT_NEAR(other[i], exact[i], 1e-9 * std::max(1.0, exact[0])) << i << " flows " << flows;
  }
}

StageCosts costs_with(const Recipe& recipe, std::int64_t output_bytes) {
  StageCosts c = unit_costs(1, 1);
  c.ops[0].recipe = c.ops[1].recipe = recipe;
  c.output_bytes = output_bytes;
  return c;
}

TEST(TensorRanks, AnOpIsComputingAndItsRings) {
  // Ring of 4: 6 latencies of 0.1 and 2 * 3/4 of 8 bytes at 2 per second, in each of 3 calls.
  const StageCosts c = costs_with(all_reduces(24, 3), 0);
  const OnGpus run({.shape = {1, 1, 1}, .costs = {c}}, pairs(4, 0.1, 2), {{{0, 1, 2, 3}}, 4});
  expect_both(run, [&](const Timeline& t) {
    EXPECT_NEAR(t.op(run.op(0, 0)).length_s(), 1 + 3 * (6 * 0.1 + 1.5 * 8 / 2), 1e-12);
  });
}

TEST(TensorRanks, AnOpWaitsForItsGathersAndThenScatters) {
  // Half a ring of 4 each: 3 latencies of 0.1 and 3/4 of the bytes at 2 per second. Five gathers of
  // 4 bytes and three scatters of 8 in one go, or in three.
  for (const int times : {1, 3}) {
    const Recipe recipe{
        {{.lane = Lane::exchange, .what = Collective::all_gather, .calls = 5, .bytes = 20},
         {.after = 0, .share = 1},
         {.lane = Lane::exchange,
          .what = Collective::reduce_scatter,
          .after = 1,
          .calls = 3,
          .bytes = 24}},
        times};
    const StageCosts c = costs_with(recipe, 0);
    const OnGpus run({.shape = {1, 1, 1}, .costs = {c}}, pairs(4, 0.1, 2), {{{0, 1, 2, 3}}, 4});
    expect_both(run, [&](const Timeline& t) {
      EXPECT_NEAR(t.op(run.op(0, 0)).length_s(), 1 + 8 * 3 * 0.1 + 0.75 * (20 + 24) / 2, 1e-12);
    });
    for (const Collective what : {Collective::all_gather, Collective::reduce_scatter}) {
      const std::uint32_t ring = run.traffic->collective_of(0, {Axis::tensor, what});
      EXPECT_EQ((*run.traffic)[ring].what, what);
    }
  }
}

TEST(TensorRanks, EachSendsToItsOwn) {
  // 4 bytes from 0 to 2 and from 1 to 3, on links of their own.
  const StageCosts c = costs_with({}, 4);
  const OnGpus run({.shape = {2, 1, 1}, .costs = {c, c}}, pairs(4, 0.5, 2), {{{0, 1}, {2, 3}}, 2});
  expect_both(run, [&](const Timeline& t) {
    EXPECT_NEAR(t.message(run.op(1, 0)).length_s(), 4 / 2.0 + 0.5, 1e-12);
  });
  EXPECT_EQ(run.traffic->messages()[0].phases[0].flows.size(), 2U);
}

TEST(TensorRanks, ShareTheNicOfTheirNode) {
  const StageCosts c = costs_with({}, 4);
  Cluster two = pairs(2, 0, 100);
  two.nodes = 2;
  two.inter = {.latency_s = 0, .bytes_per_s = 1};
  const OnGpus run({.shape = {2, 1, 1}, .costs = {c, c}}, two, {{{0, 1}, {2, 3}}, 2});
  expect_both(run, [&](const Timeline& t) {
    EXPECT_NEAR(t.message(run.op(1, 0)).length_s(), 8, 1e-12);
    for (std::size_t l = 0; l < run.traffic->links().size(); ++l) {
      const bool nic = run.traffic->links()[l].name.find("nic") != std::string::npos;
      EXPECT_EQ(t.peak_flows[l], nic ? 2U : 1U) << run.traffic->links()[l].name;
    }
  });
}

TEST(TensorRanks, ContendWithMessagesThatLeaveMeanwhile) {
  // Device 0 = GPUs 0 and 1: F computes 1 s, then each GPU sends the other 1 byte, then 2 bytes to
  // device 1. F0 [0, 2], message 0 from 2. F1 computes until 3, when message 0 has 1 byte left and
  // shares the ports with the exchange: both end at 5. The same on the receiving side with message
  // 1 from 5 on: F0 of device 1 computes until 6, both end at 8.
  const StageCosts c = costs_with(all_reduces(1, 1), 2);
  const OnGpus run({.schedule = "gpipe", .shape = {2, 2, 1}, .costs = {c, c}}, ports(4),
                   {{{0, 1}, {2, 3}}, 2});
  EXPECT_NE(why_not_exact(run.input()).find("tensor-parallel all-reduces of device 0"),
            std::string::npos)
      << why_not_exact(run.input());
  const Timeline t = simulate_simgrid(run.input());
  const std::vector<double> got{t.op(run.op(0, 0)).end_s,      t.op(run.op(0, 1)).end_s,
                                t.message(run.op(1, 0)).end_s, t.op(run.op(1, 0)).start_s,
                                t.op(run.op(1, 0)).end_s,      t.message(run.op(1, 1)).end_s,
                                double(t.peak_flows[0])};
  const std::vector<double> wanted{2, 5, 5, 5, 8, 8, 2};
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-9) << i;
}

TEST(TensorRanks, ReduceTheirGradientsSideBySide) {
  // Two stages' replicas would reduce alone; two ranks of one stage share the nodes' NICs: each
  // ring moves 2 (n-1)/n = 1 times 6 bytes over each NIC of 1 byte per second, two rings take 12.
  StageCosts c = costs_with({}, 0);
  c.reduced_bytes = 6;
  Cluster two = pairs(2, 0, 100);
  two.nodes = 2;
  two.inter = {.latency_s = 0, .bytes_per_s = 1};
  const OnGpus run({.shape = {1, 1, 1}, .width = 2, .costs = {c}, .reduction = {.priced = false}},
                   two, {{{0, 1}, {2, 3}}, 2});
  expect_both(run,
              [&](const Timeline& t) { EXPECT_NEAR(t.op(run.op(0, 2)).length_s(), 12, 1e-12); });
}

TEST(DividedReplicas, SendThePartsTheirSamplesOverlapIn) {
  // 2 senders, 3 receivers: sender 0 has samples [0, 1/2), receiver 1 takes [1/3, 2/3).
  const StageCosts c = costs_with({}, 6);
  const OnGpus run({.shape = {2, 1, 1}, .costs = {c, c}, .reduces_within = true}, ports(5),
                   {{{0, 1}, {2, 3, 4}}, 1});
  const auto& flows = run.traffic->messages()[0].phases[0].flows;
  ASSERT_EQ(flows.size(), 4U);
  const double shares[] = {1.0 / 3, 1.0 / 6, 1.0 / 6, 1.0 / 3};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(flows[i].bytes, shares[i], 1e-12) << i;
  // Each sender's port carries half of the 6 bytes, in parts of 2 and 1. At first all four flows
  // get 1/2 a second (the middle receiver's port is shared, too): after 2 s the parts of 1 are
  // gone, those of 2 have 1 left and then a whole port.
  expect_both(
      run, [&](const Timeline& t) { EXPECT_NEAR(t.message(run.op(1, 0)).length_s(), 3, 1e-12); });
}

TEST(DividedReplicas, ReduceWithinTheirDevice) {
  StageCosts c = costs_with({}, 0);
  c.reduced_bytes = 6;
  c.step_s = 0.5;
  const OnGpus run(
      {.shape = {1, 2, 1}, .costs = {c}, .reduction = {.priced = false}, .reduces_within = true},
      pairs(3, 0.25, 2), {{{0, 1, 2}}, 1});
  // F F B B (1 s each), 4 latencies and 4/3 of 6 bytes at 2, the step.
  expect_both(run, [&](const Timeline& t) {
    EXPECT_NEAR(t.makespan_s, 4 + 4 * 0.25 + 8 / 2.0 + 0.5, 1e-12);
  });
}

TEST(DividedReplicas, MayStepBesideTheReductionOfTheBatchBefore) {
  StageCosts c = costs_with({}, 0);
  c.reduced_bytes = 6;
  const OnGpus run({.schedule = "pipedream-2bw",
                    .shape = {1, 4, 3},
                    .costs = {c},
                    .reduction = {.priced = false},
                    .detached = true,
                    .reduces_within = true},
                   pairs(2, 0, 2), {{{0, 1}}, 1});
  // 8 s per batch, 3 s per reduction, which only the last batch waits for.
  expect_both(run, [&](const Timeline& t) { EXPECT_NEAR(t.makespan_s, 24 + 3, 1e-12); });
}

TEST(UnlikeDevices, EachReplicaHasItsOwnTimes) {
  Rig run({.schedule = "gpipe", .shape = {1, 3, 1}, .width = 2});
  UnlikeDevices unlike;
  unlike.kind = {0, 1};
  unlike.costs = {{unit_costs(1, 2)}, {unit_costs(2, 5)}};
  SimulationInput input = run.input();
  input.unlike = &unlike;
  const Timeline t = simulate_exact(input);
  const auto end = [&](int d, std::uint32_t i) { return t.op(run.program.ops.begin(d) + i).end_s; };
  EXPECT_EQ(end(0, 5), 3 * 1 + 3 * 2);
  EXPECT_EQ(end(1, 5), 3 * 2 + 3 * 5);
  EXPECT_EQ(end(0, 6), 21) << "the reduction waits for the slow one";
  const auto simgrid = flatten(simulate_simgrid(input));
  EXPECT_EQ(simgrid, flatten(t));
}

TEST(SeveralGpusOfADevice, BothEnginesAgreeOnRandomOnes) {
  constexpr std::int64_t kMega = 1'000'000;  // simgrid's flows are whole parts of a byte
  std::mt19937 random(20261121);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const std::vector<std::string> schedules{"gpipe", "1f1b", "pipedream-2bw", "model-parallel"};
  int compared = 0, in_turn = 0;
  for (int trial = 0; trial < 120; ++trial) {
    // On ports of its GPUs a device's collectives and its reduction take turns.
    const bool on_ports = trial >= 60;
    const int tensor = pick(1, 3), depth = pick(1, 4);
    const bool divided = pick(0, 1) == 1;
    RigSpec spec;
    spec.schedule = schedules[static_cast<std::size_t>(pick(0, 3))];
    spec.shape = {static_cast<std::uint32_t>(depth), static_cast<std::uint32_t>(depth + pick(0, 3)),
                  static_cast<std::uint32_t>(pick(1, 3)), false, 0};
    spec.width = divided ? 1 : pick(1, 3);
    spec.transfers = static_cast<Transfers>(pick(0, on_ports ? 0 : 3));
    spec.reduces_within = divided;
    spec.reduction.priced = false;
    for (int s = 0; s < depth; ++s) {
      StageCosts c = unit_costs(pick(1, 9) / 4.0, pick(1, 9) / 3.0);
      for (OpCost& op : c.ops) {
        const std::int64_t bytes = pick(0, 900) * kMega;
        op.recipe = all_reduces(bytes, pick(1, 3));
      }
      c.output_bytes = pick(0, 500) * kMega;
      c.reduced_bytes = pick(0, 2000) * kMega;
      c.step_s = pick(0, 2) / 8.0;
      spec.costs.push_back(c);
    }
    int next = 0;
    std::vector<std::vector<int>> gpus(static_cast<std::size_t>(depth * spec.width));
    for (auto& device : gpus) {
      device.resize(static_cast<std::size_t>(tensor * (divided ? pick(1, 3) : 1)));
      std::iota(device.begin(), device.end(), next);
      next += static_cast<int>(device.size());
    }
    Cluster cluster = pairs(next, pick(0, 3) / 16.0, static_cast<double>(pick(50, 500) * kMega));
    if (on_ports) cluster.attachment = Attachment::port;
    if (pick(0, 2) == 0)  // as a library was measured, faster or slower than its links say
      cluster.measured = {{Collective::all_reduce,
                           2,
                           {pick(0, 3) / 16.0, pick(1, 6) / (800.0 * kMega), pick(4, 10) / 10.0}}};
    const OnGpus run(spec, cluster, {gpus, tensor});
    if (!why_not_exact(run.input()).empty()) continue;  // a ring of two beside another's link
    SCOPED_TRACE(trial);
    expect_both(run, [](const Timeline& t) { EXPECT_GT(t.makespan_s, 0); });
    ++(on_ports && tensor > 1 && (spec.width > 1 || divided) ? in_turn : compared);
  }
  EXPECT_GT(compared, 30);
  EXPECT_GT(in_turn, 10);
}

TEST(OneReduction, StandsInLineAtFifoLinksOfItsOwn) {
  // Everybody pushes to the server through its port: 3 flows of 4 bytes at 1 byte per second take
  // 12 either way, but each also has a port of its own, so the order matters and only simgrid
  // knows.
  StageCosts c = costs_with({}, 0);
  c.reduced_bytes = 4;
  Cluster star = ports(4);
  star.intra.fifo = true;
  const RigSpec spec{.shape = {1, 1, 1},
                     .width = 4,
                     .costs = {c},
                     .reduction = {.algorithm = ReductionAlgorithm::server, .priced = false}};
  const OnGpus run(spec, star, {{{0}, {1}, {2}, {3}}, 1});
  EXPECT_NE(
      why_not_exact(run.input())
          .find("the flows of the gradient reduction of stage 0 share the link 'gpu0 in' (fifo)"),
      std::string::npos)
      << why_not_exact(run.input());
  const auto ends = run_simgrid(run);
  EXPECT_NEAR(ends.at(0), 2 + 12 + 12, 1e-9);
}

}  // namespace
}  // namespace penstock::several_gpus_test
