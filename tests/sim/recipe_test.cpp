// SPDX-License-Identifier: Apache-2.0
// Ops as segments on lanes: what they fold to, by hand and against a player that knows nothing of
// lanes but who waits for whom; and both engines with recipes of several lanes.
#include "base/error.hpp"
#include "tests/rig.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>

namespace penstock::recipe_test {
namespace {

Segment computes(double share, std::int8_t after = Segment::kNone) {
  return {.lane = Lane::compute, .after = after, .share = share};
}

Segment exchanges(std::int64_t bytes, std::int8_t after = Segment::kNone) {
  return {.lane = Lane::exchange, .after = after, .bytes = bytes};
}

/// A byte takes a second, a call none.
double exposed(const Recipe& recipe, double compute_s) {
  return exposed_s(recipe, compute_s,
                   [](const Segment& s) { return static_cast<double>(s.bytes); });
}

TEST(Recipe, OfOneThingAfterTheOtherExposesAllOfItsExchange) {
  EXPECT_EQ(exposed(all_reduces(6, 3), 8), 6);
  EXPECT_EQ(exposed(all_reduces(6, 0), 8), 0) << "it never meets";
  EXPECT_EQ(exposed({}, 8), 0);
  EXPECT_TRUE(all_reduces(6, 3).serial());
}

TEST(Recipe, HidesAnExchangeUnderWhatIsComputedMeanwhile) {
  // Keys and values go on while attention is computed: after a quarter, under a half, then needed.
  const auto ring = [](std::int64_t bytes) {
    return Recipe{{computes(0.25), computes(0.5), exchanges(bytes, 0), computes(0.25, 2)}, 1};
  };
  EXPECT_FALSE(ring(1).serial());
  EXPECT_EQ(exposed(ring(3), 8), 0);
  EXPECT_EQ(exposed(ring(4), 8), 0);
  EXPECT_EQ(exposed(ring(7), 8), 3);
  // On their lane two exchanges stand in line: 2 + 5 under the 4 of the half.
  const Recipe two{{computes(0.5), exchanges(2), exchanges(5), computes(0.5, 2)}, 1};
  EXPECT_EQ(exposed(two, 8), 3);
}

struct RandomRecipe {
  std::mt19937 random{20261123};

  int pick(int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  }
  /// Bytes in millions, as simgrid's flows are whole parts of a byte.
  Recipe operator()() {
    Recipe recipe{{}, pick(1, 3)};
    const int segments = pick(2, 7);
    for (int i = 0; i < segments; ++i) {
      const bool computing = i == 0 || pick(0, 1) == 0;
      Segment s = computing ? computes(pick(1, 4)) : exchanges(pick(0, 900) * 1'000'000LL);
      const int before = pick(0, std::max(0, i - 1));
      const bool crosses =
          i > 0 && recipe.segments[static_cast<std::size_t>(before)].lane != s.lane;
      if (crosses && pick(0, 2) > 0) s.after = static_cast<std::int8_t>(before);
      if (!computing) {
        s.what = kOfRanks[static_cast<std::size_t>(pick(0, kOfRanks.size() - 1))];
        s.calls = pick(1, 4);
        s.occupies = pick(0, 3) / 8.0;
      }
      recipe.segments.push_back(s);
    }
    double sum = 0;
    for (const Segment& s : recipe.segments) sum += s.share;
    for (Segment& s : recipe.segments) s.share /= sum;
    return recipe;
  }
};

/// Goes from one end of a segment to the next, of all times one after the other.
double played_s(const Recipe& recipe, double compute_s, double s_per_byte) {
  double now = 0;
  for (int time = 0; time < recipe.times; ++time) {
    std::vector<double> left_s;  // of each segment
    for (const Segment& s : recipe.segments) {
      left_s.push_back(s.lane == Lane::compute
                           ? s.share * compute_s / recipe.times
                           : static_cast<double>(s.bytes) * s_per_byte / recipe.times);
    }
    std::vector<bool> done(left_s.size(), false);
    const auto runs = [&](std::size_t i) {
      const Segment& s = recipe.segments[i];
      if (done[i] || (s.after >= 0 && !done[static_cast<std::size_t>(s.after)])) return false;
      for (std::size_t j = 0; j < i; ++j)
        if (recipe.segments[j].lane == s.lane && !done[j]) return false;
      return true;
    };
    for (std::size_t ended = 0; ended < done.size();) {
      std::vector<std::size_t> running;
      double step_s = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < done.size(); ++i) {
        if (!runs(i)) continue;
        running.push_back(i);
        step_s = std::min(step_s, left_s[i]);
      }
      now += step_s;
      for (const std::size_t i : running) {
        left_s[i] -= step_s;
        if (left_s[i] > 0) continue;
        done[i] = true;
        ++ended;
      }
    }
  }
  return now;
}

TEST(Recipe, FoldsToWhatPlayingItTakes) {
  RandomRecipe next;
  int overlapping = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const Recipe recipe = next();
    const double compute_s = next.pick(1, 12) / 4.0, s_per_byte = next.pick(1, 9) * 1e-9;
    const double folded = compute_s + exposed_s(recipe, compute_s, [&](const Segment& s) {
                            return static_cast<double>(s.bytes) * s_per_byte;
                          });
    EXPECT_NEAR(folded, played_s(recipe, compute_s, s_per_byte), 1e-9 * folded) << trial;
    overlapping += recipe.serial() ? 0 : 1;
  }
  EXPECT_GT(overlapping, 250);
}

TEST(Recipe, OfTwoOpsThatRunTogetherIsOneAfterTheOther) {
  RandomRecipe next;
  int lanes = 0;
  for (int trial = 0; trial < 500; ++trial) {
    Recipe a = next(), b = next();
    b.times = a.times;
    if (trial % 5 == 0) a = {};
    const double a_s = next.pick(1, 12) / 4.0, b_s = next.pick(1, 12) / 4.0;
    const double apart =
        (a.segments.empty() ? a_s : played_s(a, a_s, 1e-9)) + played_s(b, b_s, 1e-9);
    const Recipe both = joined(a, a_s / (a_s + b_s), b);
    if (!a.in_turns() || !b.in_turns()) ++lanes;
    EXPECT_NEAR(played_s(both, a_s + b_s, 1e-9), apart, 1e-9 * apart) << trial;
  }
  EXPECT_GT(lanes, 400);
  EXPECT_EQ(joined(all_reduces(6, 3), 0.5, all_reduces(4, 1)), all_reduces(10, 4));
  EXPECT_EQ(joined({}, 0.5, all_reduces(4, 1)), all_reduces(4, 1));
  EXPECT_EQ(joined({}, 0.5, {}), Recipe{});
}

/// An F of 6 + 4 s and a B of 8 + 12 s, each with its experts behind an exchange of 4 s and before
/// another one: one after the other they take 46 s.
TEST(Recipe, OfTwoOpsWithExpertsOneComputesWhileTheOtherOneExchanges) {
  const auto tokens = [](std::int8_t after) {
    return Segment{.lane = Lane::exchange,
                   .axis = Axis::expert,
                   .what = Collective::all_to_all,
                   .after = after,
                   .calls = 1,
                   .bytes = 4};
  };
  const Recipe forward{{{.share = 0.6}, tokens(0), {.after = 1, .share = 0.4}, tokens(2)}, 1};
  const Recipe backward{
      {tokens(Segment::kNone), {.after = 0, .share = 0.4}, tokens(1), {.after = 2, .share = 0.6}},
      1};
  const auto seconds = [](const Segment& s) { return static_cast<double>(s.bytes); };
  EXPECT_DOUBLE_EQ(exposed_s(forward, 10, seconds), 8);
  EXPECT_DOUBLE_EQ(exposed_s(backward, 20, seconds), 8);
  const Recipe both = joined(forward, 10.0 / 30, backward);
  EXPECT_NEAR(exposed_s(both, 30, seconds), 0, 1e-9);
  EXPECT_NEAR(exposed_s(both, 3, seconds), 13, 1e-9);  // four exchanges, one after the other
}

/// Moves on in small steps; an exchange slows what computes beside it. Returns for how long
/// something computed.
double stepped_s(const Recipe& recipe, double compute_s, double s_per_byte, double step_s) {
  std::vector<double> left_s;
  for (const Segment& s : recipe.segments)
    left_s.push_back(s.exchanges() ? static_cast<double>(s.bytes) * s_per_byte
                                   : s.share * compute_s);
  double computed_s = 0;
  for (bool moves = true; moves;) {
    moves = false;
    std::array<bool, kLanes> taken{};
    std::array<std::size_t, kLanes> runs{};
    for (std::size_t i = 0; i < left_s.size(); ++i) {
      const Segment& s = recipe.segments[i];
      const auto lane = static_cast<std::size_t>(s.lane);
      if (left_s[i] <= 0 || taken[lane]) continue;
      taken[lane] = true;
      const bool waits = s.after >= 0 && left_s[static_cast<std::size_t>(s.after)] > 0;
      runs[lane] = waits ? left_s.size() : i;
    }
    const auto on = [&](Lane lane) {
      const auto l = static_cast<std::size_t>(lane);
      return taken[l] && runs[l] < left_s.size();
    };
    const auto at = [&](Lane lane) { return runs[static_cast<std::size_t>(lane)]; };
    double free = 1;
    if (on(Lane::exchange)) {
      free -= recipe.segments[at(Lane::exchange)].occupies;
      left_s[at(Lane::exchange)] -= step_s;
      moves = true;
    }
    if (on(Lane::compute)) {
      left_s[at(Lane::compute)] -= step_s * free;
      computed_s += step_s;
      moves = true;
    }
  }
  return computed_s;
}

TEST(Recipe, ComputesLongerBesideExchangesThatOccupyMultiprocessors) {
  const auto seconds = [](const Segment& s) { return static_cast<double>(s.bytes); };
  Segment exchange = exchanges(4);
  exchange.occupies = 0.25;
  const Recipe beside{{computes(1), exchange}, 1};
  EXPECT_DOUBLE_EQ(beside_exchanges_s(beside, 10, seconds), 11) << "4 s at three quarters";
  EXPECT_DOUBLE_EQ(beside_exchanges_s(beside, 1.5, seconds), 2) << "all of it";
  EXPECT_DOUBLE_EQ(beside_exchanges_s({{computes(1), exchanges(4)}, 1}, 10, seconds), 10);
  exchange.after = 0;
  EXPECT_DOUBLE_EQ(beside_exchanges_s({{computes(1), exchange}, 1}, 10, seconds), 10)
      << "behind it";
  RandomRecipe next;
  int slower = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Recipe recipe = next();
    const double compute_s = next.pick(1, 12) / 4.0, s_per_byte = next.pick(1, 9) * 1e-9;
    const double slowed_s = beside_exchanges_s(recipe, compute_s, [&](const Segment& s) {
      return static_cast<double>(s.bytes) * s_per_byte;
    });
    EXPECT_NEAR(slowed_s, stepped_s(recipe, compute_s, s_per_byte, 1e-4), 2e-3) << trial;
    slower += slowed_s > compute_s * 1.01 ? 1 : 0;
  }
  EXPECT_GT(slower, 60);
}

/// An exchange of tensor ranks before an op's attention holds the stream in which both compute; one
/// beside its products does not.
TEST(Recipe, OfTensorRanksHoldBothOpsOfAPair) {
  const auto exchanged = [](Axis axis, std::int8_t after, std::int64_t bytes) {
    return Segment{.lane = Lane::exchange,
                   .axis = axis,
                   .what = Collective::all_gather,
                   .after = after,
                   .calls = 1,
                   .bytes = bytes};
  };
  const auto left_s = [&](const Recipe& a) {
    return exposed_s(joined(a, 0.5, {{{.share = 1}}, 1}), 20,
                     [](const Segment& s) { return static_cast<double>(s.bytes); });
  };
  const auto held = [&](std::int64_t bytes) {
    return left_s({{exchanged(Axis::tensor, Segment::kNone, bytes),
                    {.after = 0, .share = 1},
                    exchanged(Axis::expert, 1, 4)},
                   1});
  };
  const auto beside = [&](std::int64_t bytes) {
    return left_s({{{.share = 1},
                    exchanged(Axis::tensor, Segment::kNone, bytes),
                    exchanged(Axis::expert, 0, 4)},
                   1});
  };
  EXPECT_DOUBLE_EQ(held(3) - held(0), 3);
  EXPECT_DOUBLE_EQ(beside(3) - beside(0), 0);
}

TEST(Recipe, OfMoreSegmentsThanEnginesHaveBitsIsABug) {
  Recipe many{{}, 1};
  for (std::size_t i = 0; i < Recipe::kMostSegments; ++i)
    many.segments.push_back(i % 2 == 0 ? computes(1.0 / 16) : exchanges(8));
  Recipe few{{computes(0.5), exchanges(8)}, 1};
  EXPECT_NO_THROW(joined(few, 0.5, few));
  EXPECT_THROW(joined(many, 0.5, few), InternalBug);
}

TEST(Recipe, OfSeveralLanesTakesAsLongInBothEngines) {
  RandomRecipe next;
  int compared = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const int depth = next.pick(1, 3), tensor = next.pick(2, 3);
    RigSpec spec;
    spec.schedule = next.pick(0, 1) == 0 ? "1f1b" : "zb-h1";
    spec.shape = {static_cast<std::uint32_t>(depth), static_cast<std::uint32_t>(depth + 1), 2,
                  false, 0};
    for (int s = 0; s < depth; ++s) {
      StageCosts c = unit_costs(next.pick(1, 9) / 4.0, next.pick(1, 9) / 3.0);
      for (OpCost& op : c.ops) op.recipe = next();
      c.output_bytes = next.pick(0, 500) * 1'000'000LL;
      spec.costs.push_back(c);
    }
    Rig rig(spec);
    rig.cluster = {};
    rig.cluster.devices_per_node = depth * tensor;
    rig.cluster.attachment = Attachment::pairs;
    rig.cluster.intra = {.latency_s = next.pick(0, 3) / 16.0,
                         .bytes_per_s = next.pick(50, 500) * 1e6};
    Mesh mesh;
    mesh.size(Axis::tensor) = tensor;
    mesh.gpus.resize(static_cast<std::size_t>(depth));
    for (int gpu = 0; gpu < depth * tensor; ++gpu)
      mesh.gpus[static_cast<std::size_t>(gpu / tensor)].push_back(gpu);
    rig.traffic = std::make_unique<Traffic>(rig.program, rig.cluster, mesh, rig.reduction,
                                            collectives_of(spec.costs));
    if (!why_not_exact(rig.input()).empty()) continue;  // a ring beside the messages' links
    ++compared;
    const std::vector<double> exact = flatten(simulate_exact(rig.input()));
    for (const bool flows : {false, true}) {
      const std::vector<double> other = run_simgrid(rig, {.every_message_a_flow = flows});
      ASSERT_EQ(other.size(), exact.size());
      for (std::size_t i = 0; i < exact.size(); ++i)
        ASSERT_NEAR(other[i], exact[i], 1e-9 * std::max(1.0, exact[0])) << trial << " " << flows;
    }
  }
  EXPECT_GT(compared, 30);
}

}  // namespace
}  // namespace penstock::recipe_test
