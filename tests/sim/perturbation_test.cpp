// SPDX-License-Identifier: Apache-2.0
// Disturbed runs against hand computation, and both engines against each other.
#include "tests/random_shape.hpp"
#include "tests/rig.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace penstock::perturbation_test {
namespace {

constexpr double kGB = 1e9;

std::vector<StageCosts> with_output(std::uint32_t p, std::int64_t bytes) {
  std::vector<StageCosts> costs(p, unit_costs());
  for (StageCosts& c : costs) c.output_bytes = bytes;
  return costs;
}

/// A rig with what disturbs it.
struct Disturbed {
  Disturbed(const RigSpec& rig_spec, const PerturbationSpec& spec) : rig(rig_spec) {
    disturb(spec);
  }
  void disturb(const PerturbationSpec& spec, std::uint32_t run = 0) {
    perturbation = perturbation_of(spec, rig.program.ops.devices(), *rig.traffic);
    perturbation.run = run;
  }
  SimulationInput input() const {
    SimulationInput in = rig.input();
    in.perturbation = &perturbation;
    return in;
  }
  Timeline exact() const { return simulate_exact(input()); }
  std::vector<double> simgrid(const SimgridOptions& options = {}) const {
    const Timeline simgrid = simulate_simgrid(input(), options), fluid = simulate_fluid(input());
    const std::vector<double> times = flatten(simgrid), others = flatten(fluid);
    for (std::size_t i = 0; i < times.size(); ++i)
      EXPECT_NEAR(others[i], times[i], 1e-9 * std::max(1.0, times[0])) << i;
    EXPECT_EQ(fluid.stalled_because, simgrid.stalled_because);
    return times;
  }
  /// Arrival of microbatch k's activations at the last of two stages.
  double arrival(std::uint32_t k) const { return simgrid().at(4 + 4 * rig.table.forward(1, k)); }

  Rig rig;
  Perturbation perturbation;
};

LinkChange change(const std::string& link, double from_s, double until_s, double share) {
  LinkChange c;
  c.link = link;
  c.from_s = from_s;
  c.until_s = until_s;
  c.share = share;
  return c;
}

// Devices
// ------------------------------------------------------------------------------------------

TEST(PiecewiseRate, EndsWhereTheIntegralOfTheSpeedIsTheWork) {
  PiecewiseRate speed;
  EXPECT_EQ(speed.end_of(2, 3), 5);
  speed.scale(1, 3, 0.5);
  EXPECT_EQ(speed.end_of(0, 1), 1);
  EXPECT_EQ(speed.end_of(0, 2), 3);  // 1 s at full, 2 s at half speed
  EXPECT_EQ(speed.end_of(0, 2.5), 3.5);
  EXPECT_EQ(speed.end_of(2, 0.25), 2.5);
  EXPECT_EQ(speed.end_of(5, 1), 6);
  speed.scale(2, kForever, 0.5);  // overlaps multiply
  EXPECT_EQ(speed.at(2.5), 0.25);
  EXPECT_EQ(speed.at(4), 0.5);
  EXPECT_EQ(speed.end_of(1, 1), 3.5);  // 0.5 by 2, 0.25 by 3, the rest at half
}

TEST(PiecewiseRate, WorkWaitsWhileTheShareIsZero) {
  PiecewiseRate share;
  share.scale(1, 4, 0);
  EXPECT_EQ(share.end_of(0, 2), 5);
  EXPECT_EQ(share.end_of(2, 0), 2);
  share.scale(6, kForever, 0);
  EXPECT_EQ(share.end_of(5, 2), kForever);
}

TEST(Perturbation, ASlowDeviceTakesItsFactor) {
  // GPipe, p = 2, m = 3, F = 1, B = 2, device 1 at 1.5: F 1.5, B 3. Device 1: 1 + 3 * 1.5 + 3 * 3 =
  // 14.5, then device 0's last B of 2.
  const Disturbed slow({.schedule = "gpipe", .shape = {2, 3, 1}}, {.slow_devices = {{1, 1.5}}});
  EXPECT_DOUBLE_EQ(slow.exact().makespan_s, 16.5);
  EXPECT_DOUBLE_EQ(slow.simgrid().at(0), 16.5);
}

TEST(Perturbation, AThrottledDeviceIsSlowerForAWhileOnly) {
  // One device: F 1, B 2, three times = 9 s of work; half speed from 2 to 6: 2 s lost.
  const Disturbed throttled({.shape = {1, 3, 1}}, {.throttle = {{0, 2, 6, 0.5}}});
  const Timeline t = throttled.exact();
  EXPECT_DOUBLE_EQ(t.makespan_s, 11);
  // F0 0-1, B0: 1 s by 2, the second takes 2 s; F1 4-6, B1 6-8.
  EXPECT_DOUBLE_EQ(t.op(throttled.rig.table.backward(0, 0)).end_s, 4);
  EXPECT_DOUBLE_EQ(t.op(throttled.rig.table.forward(0, 1)).end_s, 6);
  EXPECT_DOUBLE_EQ(t.op(throttled.rig.table.backward(0, 1)).end_s, 8);
  EXPECT_DOUBLE_EQ(throttled.simgrid().at(0), 11);
}

TEST(Perturbation, StepsAreSlowedDownAndReductionsAreNot) {
  std::vector<StageCosts> costs(1, unit_costs());
  costs[0].reduce_grad_s = 4;
  costs[0].step_s = 1;
  const Disturbed slow({.shape = {1, 1, 1}, .width = 2, .costs = costs},
                       {.slow_devices = {{0, 2}}});
  const Timeline t = slow.exact();
  // Device 0: F 2, B 4; both reduce 6-10; steps of 2 s and 1 s.
  EXPECT_DOUBLE_EQ(t.makespan_s, 12);
  EXPECT_DOUBLE_EQ(slow.simgrid().at(0), 12);
  const std::uint32_t last = slow.rig.program.ops.end(1) - 1;
  EXPECT_DOUBLE_EQ(t.op(last).end_s, 11);
}

// Jitter
// -------------------------------------------------------------------------------------------

struct Moments {
  double mean = 0, deviation = 0, lowest = 1e9, highest = 0;
};

Moments moments(const Jitter& jitter) {
  constexpr std::uint32_t kRuns = 10, kDevices = 20, kOps = 1000;
  constexpr double n = double{kRuns} * kDevices * kOps;
  Moments m;
  double squares = 0;
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    for (std::uint32_t device = 0; device < kDevices; ++device) {
      for (std::uint32_t op = 0; op < kOps; ++op) {
        const double f = jitter.factor(run, device, op);
        m.mean += f / n;
        squares += f * f / n;
        m.lowest = std::min(m.lowest, f);
        m.highest = std::max(m.highest, f);
      }
    }
  }
  m.deviation = std::sqrt(squares - m.mean * m.mean);
  return m;
}

TEST(Jitter, HasMeanOneAndTheSpreadAsDeviationWhateverTheDistribution) {
  using enum Jitter::Distribution;
  for (const auto distribution : {normal, lognormal, uniform}) {
    for (const double spread : {0.01, 0.05, 0.25}) {
      const Moments m = moments({.spread = spread, .distribution = distribution, .seed = 3});
      // 200,000 draws: the mean's own deviation is spread / 447, that of the deviation half of it.
      EXPECT_NEAR(m.mean, 1, 5 * spread / 447);
      EXPECT_NEAR(m.deviation, spread, 8 * spread / 447);
      if (distribution == uniform) {
        EXPECT_GE(m.lowest, 1 - std::sqrt(3.0) * spread);
        EXPECT_LE(m.highest, 1 + std::sqrt(3.0) * spread);
      }
    }
  }
}

TEST(Jitter, NormalFactorsAreNormal) {
  const Jitter jitter{.spread = 0.1, .seed = 11};
  int within_one = 0, below_p5 = 0;
  constexpr int n = 100'000;
  for (std::uint32_t op = 0; op < n; ++op) {
    const double z = (jitter.factor(0, 0, op) - 1) / 0.1;
    within_one += std::abs(z) < 1;
    below_p5 += z < -1.6448536;
  }
  EXPECT_NEAR(within_one / double{n}, 0.682689, 0.006);  // 4 deviations
  EXPECT_NEAR(below_p5 / double{n}, 0.05, 0.003);
}

TEST(Jitter, IsTheSameForASeedAndAnotherForEveryCounter) {
  const Jitter a{.spread = 0.1, .seed = 1}, again = a, b{.spread = 0.1, .seed = 2};
  EXPECT_EQ(a.factor(3, 4, 5), again.factor(3, 4, 5));
  EXPECT_NE(a.factor(3, 4, 5), b.factor(3, 4, 5));
  EXPECT_NE(a.factor(3, 4, 5), a.factor(4, 3, 5));
  EXPECT_NE(a.factor(3, 4, 5), a.factor(3, 5, 4));
  EXPECT_NE(a.factor(0, 0, 0), a.factor(0, 0, 1));
}

TEST(Jitter, ChangesEveryOpByItsFactor) {
  const Jitter jitter{.spread = 0.1, .seed = 5};
  Disturbed run({.schedule = "model-parallel", .shape = {2, 2, 1}}, {.jitter = jitter});
  run.disturb({.jitter = jitter}, 7);
  // Model parallel: one op after the other, so the makespan is the sum.
  double sum = 0;
  for (std::uint32_t d = 0; d < 2; ++d) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Op& op = run.rig.program.ops.of_device(static_cast<int>(d))[i];
      sum += (op.kind == OpKind::forward ? 1 : 2) * jitter.factor(7, d, i);
    }
  }
  EXPECT_NEAR(run.exact().makespan_s, sum, 1e-12);
  EXPECT_EQ(run.exact().makespan_s, run.exact().makespan_s);
  EXPECT_NEAR(run.simgrid().at(0), sum, 1e-12);
}

PerturbationSpec random_perturbation(std::mt19937_64& random, int devices, double length_s) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  PerturbationSpec spec;
  if (pick(0, 3) != 0)
    spec.jitter = Jitter{.spread = real(0, 0.3),
                         .distribution = static_cast<Jitter::Distribution>(pick(0, 2)),
                         .seed = static_cast<std::uint64_t>(pick(0, 1000))};
  for (int i = pick(0, 2); i > 0; --i)
    spec.slow_devices.push_back({pick(0, devices - 1), real(0.5, 3)});
  for (int i = pick(0, 4); i > 0; --i) {
    const double from = real(0, length_s);
    spec.throttle.push_back({pick(0, devices - 1), from,
                             pick(0, 3) == 0 ? kForever : from + real(0.01, 0.5) * length_s,
                             real(0.05, 1)});
  }
  return spec;
}

TEST(Perturbation, EnginesAgreeOn200RandomDisturbedRuns) {
  std::mt19937_64 random(20260704);
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  };
  int changed = 0;
  for (int i = 0; i < fewer(200);) {
    RigSpec spec;
    const Schedule& schedule = random_schedule(random);
    spec.schedule = schedule.name;
    spec.shape = random_shape(schedule, random, 8, 16);
    spec.width = static_cast<int>(pick(1, 2));
    spec.transfers = random_transfers(schedule, spec.shape, random);
    for (std::uint32_t s = 0; s < stages_of(schedule, spec.shape); ++s) {
      StageCosts c = unit_costs(pick(1, 20) / 10.0, pick(1, 40) / 10.0);
      c.step_s = pick(0, 5) / 10.0;
      c.reduce_grad_s = pick(0, 5) / 10.0;
      c.output_bytes = pick(0, 1000);
      spec.costs.push_back(c);
    }
    spec.link = {.latency_s = pick(0, 3) / 10.0, .bytes_per_s = 500};
    Disturbed run(spec, {});
    if (!check(run.rig.program, run.rig.table).empty()) continue;  // a deadlock under `coupled`
    const double alone = run.exact().makespan_s;
    run.disturb(random_perturbation(random, run.rig.program.ops.devices(), alone), pick(0, 5));
    SCOPED_TRACE(spec.schedule + " run " + std::to_string(i));
    ASSERT_EQ(why_not_exact(run.input()), "");
    const auto a = flatten(run.exact()), b = run.simgrid({.every_message_a_flow = i % 2 == 0});
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < a.size(); ++k)
      ASSERT_LE(std::abs(a[k] - b[k]), 1e-12 * std::max(std::abs(a[k]), std::abs(b[k]))) << k;
    changed += a[0] != alone;
    ++i;
  }
  EXPECT_GT(changed, fewer(150) - 1);
}

// Links
// --------------------------------------------------------------------------------------------

/// Stage 0 sends 4 GB at 1 s over 1 GB/s: alone it arrives at 5.
RigSpec one_message() {
  return {.schedule = "gpipe",
          .shape = {2, 1, 1},
          .costs = with_output(2, static_cast<std::int64_t>(4 * kGB)),
          .link = {.latency_s = 0.25, .bytes_per_s = kGB}};
}

double arrival_with(const std::vector<LinkChange>& links) {
  return Disturbed(one_message(), {.links = links}).arrival(0);
}

TEST(LinkChange, OfAFlowAloneTheBytesAreTheIntegralOfTheBandwidth) {
  EXPECT_NEAR(arrival_with({change("0->1 F", 10, kForever, 0.5)}), 5.25, 1e-9);
  // Degrades for good at 2: 1 GB by then, 3 GB at a quarter.
  EXPECT_NEAR(arrival_with({change("0->1 F", 2, kForever, 0.25)}), 14.25, 14e-9);
  // And recovers at 6: 1 GB more by then, the last 2 at full bandwidth.
  EXPECT_NEAR(arrival_with({change("0->1 F", 2, 6, 0.25)}), 8.25, 8e-9);
  // Starts degraded: 0.5 GB from 1 to 2 at a half, then full.
  EXPECT_NEAR(arrival_with({change("0->1 F", 0, 2, 0.5)}), 5.75, 5e-9);
  // Two overlapping changes multiply: 2-4 at a half, 3-4 at a quarter of it.
  EXPECT_NEAR(arrival_with({change("0->1 F", 2, 4, 0.5), change("0->1 F", 3, 4, 0.25)}),
              4 + (4 - 1 - 0.5 - 0.125) + 0.25, 6e-9);
  // The other direction is another link.
  EXPECT_NEAR(arrival_with({change("1->0 B", 2, 6, 0.25)}), 5.25, 5e-9);
}

TEST(LinkChange, FlowsOverALinkThatFailsStallAndResume) {
  EXPECT_NEAR(arrival_with({change("0->1 F", 2, 6, 0)}), 9.25, 9e-9);
  EXPECT_NEAR(arrival_with({change("0->1 F", 0, 3, 0)}), 7.25, 7e-9);  // departs while it is down
  EXPECT_NEAR(arrival_with({change("0->1 F", 2, 3, 0), change("0->1 F", 4, 6, 0)}), 8.25, 8e-9);
  // Down, back at a half, then in full: 1 GB by 2, 1 GB from 4 to 6, 2 GB more.
  EXPECT_NEAR(arrival_with({change("0->1 F", 2, 4, 0), change("0->1 F", 4, 6, 0.5)}), 8.25, 8e-9);
}

TEST(LinkChange, OfRandomProfilesTheArrivalIsTheIntegral) {
  std::mt19937_64 random(99);
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int i = 0; i < 100; ++i) {
    std::vector<LinkChange> links;
    for (int k = 0; k < 5; ++k) {
      const double from = real(0, 8);
      links.push_back(change("0->1 F", from, from + real(0.1, 3), k % 2 == 0 ? 0 : real(0.1, 1)));
    }
    const Disturbed run(one_message(), {.links = links});
    const double right = run.perturbation.link_share[0].end_of(1, 4) + 0.25;
    EXPECT_NEAR(run.arrival(0), right, 1e-9 * right) << i;
  }
}

/// `flows` pipelines of two stages over one NIC of 1 GB/s out of node 0; 4 GB each, at 1 s.
Disturbed over_a_nic(int flows, const std::vector<LinkChange>& links) {
  RigSpec spec = one_message();
  spec.width = flows;
  Disturbed run(spec, {});
  run.rig.cluster.link.reset();
  run.rig.cluster.nodes = 2;
  run.rig.cluster.devices_per_node = flows;
  run.rig.cluster.inter = {.latency_s = 0.25, .bytes_per_s = kGB};
  std::vector<int> gpus;
  for (int r = 0; r < flows; ++r) {
    gpus.push_back(r);
    gpus.push_back(flows + r);
  }
  run.rig.traffic = std::make_unique<Traffic>(run.rig.program, run.rig.cluster, one_gpu_each(gpus));
  run.disturb({.links = links});
  return run;
}

TEST(LinkChange, FairFlowsShareWhatThereIs) {
  const auto arrivals = [](const Disturbed& run, int flows) {
    const auto flat = run.simgrid();
    std::vector<double> at;
    for (int r = 0; r < flows; ++r)
      at.push_back(flat.at(4 + 4 * run.rig.table.forward(1, static_cast<std::uint32_t>(r))));
    return at;
  };
  for (const int flows : {2, 3, 8}) {
    const double n = flows;
    // 4n GB in all, 1 GB of them by 2; then half: 2(4n - 1) s.
    for (const double at :
         arrivals(over_a_nic(flows, {change("node0 nic0 out", 2, kForever, 0.5)}), flows))
      EXPECT_NEAR(at, 2 + 2 * (4 * n - 1) + 0.25, 1e-9 * at);
    // Half for 4 s, then in full: 2 s later than undisturbed.
    for (const double at :
         arrivals(over_a_nic(flows, {change("node0 nic0 out", 2, 6, 0.5)}), flows))
      EXPECT_NEAR(at, 1 + 4 * n + 2 + 0.25, 1e-9 * at);
    // Nothing for 4 s, on the far side.
    for (const double at : arrivals(over_a_nic(flows, {change("node1 nic0 in", 2, 6, 0)}), flows))
      EXPECT_NEAR(at, 1 + 4 * n + 4 + 0.25, 1e-9 * at);
  }
}

TEST(LinkChange, WhatAStalledFlowLeavesTheOthersTake) {
  // Two flows over a trunk of 1 GB/s; device 0's own link of 1 GB/s is down from 2 to 4. By 2 both
  // have 0.5 GB; flow 1 alone 2-4 (2.5 GB), both share from 4: flow 1 needs 1.5 more = 7, flow 0
  // has 2 GB then and 2 more alone = 9.
  RigSpec spec = one_message();
  spec.width = 2;
  Disturbed run(spec, {});
  NetworkGraph graph{{"a", "b"}, {{4, 5, {.latency_s = 0.25, .bytes_per_s = kGB}, kGB}}};
  for (const auto& [device, end] : {std::pair{0, 4}, {1, 5}, {2, 4}, {3, 5}})
    graph.edges.push_back({device, end, {.bytes_per_s = kGB}, kGB});
  run.rig.cluster.link.reset();
  run.rig.cluster.network = std::move(graph);
  run.rig.connect();
  run.disturb({.links = {change("0->a", 2, 4, 0)}});
  const auto flat = run.simgrid();
  EXPECT_NEAR(flat.at(4 + 4 * run.rig.table.forward(1, 0)), 9.25, 9e-9);
  EXPECT_NEAR(flat.at(4 + 4 * run.rig.table.forward(1, 1)), 7.25, 7e-9);
}

TEST(LinkChange, AFifoLinkServesItsLineAfterItHasRecovered) {
  // Three microbatches of 4 GB on one channel, ready at 1, 2, 3; nothing moves from 2 to 10.
  RigSpec spec = one_message();
  spec.shape.microbatches_per_update = 3;
  spec.link.fifo = true;
  const Disturbed run(spec, {.links = {change("0->1 F", 2, 10, 0)}});
  EXPECT_NEAR(run.arrival(0), 13.25, 1e-8);
  EXPECT_NEAR(run.arrival(1), 17.25, 1e-8);
  EXPECT_NEAR(run.arrival(2), 21.25, 1e-8);
}

TEST(LinkChange, ALinkThatNeverRecoversEndsTheRunWithAReason) {
  const Disturbed run(one_message(), {.links = {change("0->1 F", 2, kForever, 0)}});
  const Timeline t = simulate_simgrid(run.input());
  EXPECT_EQ(t.stalled_because,
            "the link '0->1 F' fails and never recovers, and messages from device 0 to device 1 "
            "wait for it");
  EXPECT_EQ(t.makespan_s, 1);
  EXPECT_EQ(t.op(run.rig.table.forward(1, 0)).length_s(), 0);
  // After its last message it may fail.
  EXPECT_NEAR(arrival_with({change("0->1 F", 6, kForever, 0)}), 5.25, 5e-9);
}

TEST(LinkChange, BetweenNamesEveryLinkOfTwoEnds) {
  LinkChange both;
  both.between[0] = "1";
  both.between[1] = "0";
  both.share = 0.5;
  const Disturbed run({.shape = {3, 4, 1}, .link = {.bytes_per_s = 1}}, {.links = {both}});
  std::vector<std::string> slow;
  for (std::size_t l = 0; l < run.rig.traffic->links().size(); ++l) {
    if (!run.perturbation.link_share[l].constant())
      slow.push_back(run.rig.traffic->links()[l].name);
  }
  EXPECT_EQ(slow, (std::vector<std::string>{"0->1 F", "1->0 B"}));
}

TEST(LinkChange, IsRefusedByExactAndForLinksThatAreNotThere) {
  const Disturbed run({.shape = {2, 2, 1}, .link = {.bytes_per_s = 1}},
                      {.links = {change("0->1 F", 0, 1, 0.5)}});
  EXPECT_NE(why_not_exact(run.input()).find("perturbations.links"), std::string::npos);
  const auto said = [](const LinkSpec& link, const LinkChange& c) -> std::string {
    try {
      Disturbed({.shape = {2, 2, 1}, .link = link}, {.links = {c}});
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(said({.bytes_per_s = 1}, change("0->1 G", 0, 1, 0))
                .find("no link of this run is called '0->1 G'; did you mean '0->1 F'? (there are "
                      "0->1 F, 1->0 B)"),
            std::string::npos);
  EXPECT_NE(said({}, change("0->1 F", 0, 1, 0)).find("has no bandwidth that could change"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::perturbation_test
