// SPDX-License-Identifier: Apache-2.0
// What is priced once, and the links shared in this process, against SimGrid that plays every flow.
#include "sim/lockstep.hpp"

#include "tests/effort.hpp"
#include "tests/links.hpp"
#include "tests/random_shape.hpp"
#include "tests/rig.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::lockstep_test {
namespace {

/// A job on a cluster: replicas of pipelines whose positions are GPUs of their own.
struct Job : Rig {
  Job(const RigSpec& spec, Cluster on, int tensor, int context, int expert = 0) : Rig(spec) {
    cluster = std::move(on);
    Mesh mesh;
    mesh.width = spec.width;
    mesh.expert = expert;
    mesh.routing = {.once_per_node = tensor > 1, .per_token = 4};
    mesh.size(Axis::tensor) = tensor;
    mesh.size(Axis::context) = context;
    int next = 0;
    for (int d = 0; d < program.placement.devices(); ++d) {
      auto& gpus = mesh.gpus.emplace_back(static_cast<std::size_t>(tensor * context));
      std::iota(gpus.begin(), gpus.end(), next);
      next += tensor * context;
    }
    traffic = std::make_unique<Traffic>(program, cluster, mesh, spec.reduction,
                                        collectives_of(spec.costs));
  }
};

/// Nodes of GPUs with a port each, and NICs of which several GPUs may share one.
Cluster nodes(int count, int gpus, int nics) {
  Cluster c;
  c.nodes = count;
  c.devices_per_node = gpus;
  c.attachment = Attachment::port;
  c.intra = wire(1e-6, 3e9);
  c.inter = wire(5e-6, 1e9);
  c.nics_per_node = c.fabric.most_nics = nics;
  return c;
}

void expect_as_simgrid(const SimulationInput& input) {
  const Timeline fluid = simulate_fluid(input), simgrid = simulate_simgrid(input);
  const std::vector<double> got = flatten(fluid), wanted = flatten(simgrid);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], 1e-9 * wanted[0]) << i;
  EXPECT_EQ(fluid.peak_flows, simgrid.peak_flows);
}

/// Of devices with several ranks along these axes.
StageCosts costs_of(std::mt19937_64& random, const std::vector<Axis>& axes) {
  const auto seconds = [&] { return std::uniform_real_distribution<double>(0.01, 0.1)(random); };
  const auto bytes = [&](std::uint32_t millions) {
    return std::int64_t{1'000'000} * random_between(random, 0, millions);
  };
  StageCosts c = unit_costs(seconds(), seconds());
  c[OpKind::backward_input].seconds = c[OpKind::backward].seconds * 0.75;
  c[OpKind::backward_weight].seconds =
      c[OpKind::backward].seconds - c[OpKind::backward_input].seconds;
  c.output_bytes = bytes(40);
  c.reduced_bytes = bytes(100);
  c.step_s = seconds();
  if (axes.empty()) return c;
  const auto axis = [&] {
    return axes[random_between(random, 0, static_cast<std::uint32_t>(axes.size() - 1))];
  };
  for (OpCost& op : c.ops) {
    Recipe& recipe = op.recipe;
    const int times = static_cast<int>(random_between(random, 1, 4));
    const auto exchange = [&](std::int8_t after, std::uint32_t millions) {
      return Segment{.lane = Lane::exchange,
                     .axis = axis(),
                     .what = kOfRanks[random_between(random, 0, kOfRanks.size() - 1)],
                     .after = after,
                     .calls = static_cast<int>(random_between(random, 1, 4)),
                     .bytes = bytes(millions),
                     .occupies = random_between(random, 0, 2) / 8.0};
    };
    switch (random_between(random, 0, 2)) {
      case 0: recipe = {{{.share = 1}, exchange(0, 20)}, times}; break;
      case 1:  // on two lanes
        recipe = {{{.share = 0.25},
                   exchange(0, 20),
                   {.share = 0.5},
                   exchange(2, 9),
                   {.after = 1, .share = 0.25}},
                  times};
        break;
      default: break;
    }
  }
  return c;
}

struct RandomJob {
  RigSpec spec;
  Cluster cluster;
  int tensor, context, expert;
};

RandomJob random_job(std::mt19937_64& random) {
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return random_between(random, low, high);
  };
  RandomJob job;
  const Schedule* schedule = &random_schedule(random);
  while (schedule->whole_model) schedule = &random_schedule(random);
  job.spec.schedule = schedule->name;
  job.spec.shape = random_shape(*schedule, random, 4, 8);
  job.spec.width = 1 << pick(0, 2);
  job.spec.reduces_within = job.spec.width == 1 && pick(0, 7) == 0;
  job.tensor = 1 << pick(0, 2);
  job.context = 1 << pick(0, 1);
  job.spec.transfers = random_transfers(*schedule, job.spec.shape, random);
  job.spec.detached = schedule->update == UpdateRule::double_buffer && pick(0, 1) == 1;
  if (schedule->flushes()) job.spec.step_sync = static_cast<StepSync>(pick(0, 2));
  job.spec.reduction = {.algorithm = static_cast<ReductionAlgorithm>(pick(0, 3)),
                        .priced = pick(0, 3) == 0};
  if (pick(0, 1) == 1) divide_reduction(job.spec);
  std::vector<Axis> axes;
  if (job.tensor > 1) axes.push_back(Axis::tensor);
  if (job.context > 1) axes.push_back(Axis::context);
  job.expert = 1 << pick(0, 5);
  while (job.expert > job.spec.width * job.tensor * job.context) job.expert /= 2;
  if (job.expert > 1) axes.push_back(Axis::expert);
  for (std::uint32_t s = 0; s < stages_of(*schedule, job.spec.shape); ++s) {
    job.spec.costs.push_back(costs_of(random, axes));
    if (schedule->whole_backward)
      job.spec.costs.back().backward_microbatches =
          static_cast<int>(job.spec.shape.microbatches_per_update);
  }
  const int gpus = 1 << pick(0, 3), count = static_cast<int>(job.spec.shape.depth) *
                                            job.spec.width * job.tensor * job.context;
  job.cluster = nodes((count + gpus - 1) / gpus, gpus, 1 << pick(0, 3));
  if (job.cluster.nics_per_node > gpus)
    job.cluster.nics_per_node = job.cluster.fabric.most_nics = gpus;
  if (pick(0, 7) == 0) job.cluster.inter.fifo = true;
  if (pick(0, 3) == 0)
    for (const Collective what : {Collective::all_reduce, Collective::all_gather})
      job.cluster.measured.push_back({what, 4, {0.01, pick(1, 9) / 2e9, pick(5, 10) / 10.0}});
  return job;
}

TEST(Lockstep, RandomJobsOnSharedLinksTakeAsLongAsInSimgrid) {
  std::mt19937_64 random(20261124);
  int shared = 0, folded = 0;
  for (int i = 0; shared < fewer(500); ++i) {
    const RandomJob job = random_job(random);
    SCOPED_TRACE(testing::Message() << i << ' ' << job.spec.schedule);
    const Job run(job.spec, job.cluster, job.tensor, job.context, job.expert);
    if (why_not_exact(run.input()).empty()) continue;
    ++shared;
    folded += Lockstep(run.input(), true).replicas() > 1 ? 1 : 0;
    expect_as_simgrid(run.input());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(folded, fewer(50)) << "replicas that are priced once";
}

TEST(Lockstep, RandomJobsOnLinksThatChangeTakeAsLongAsInSimgrid) {
  std::mt19937_64 random(20261125);
  for (int shared = 0; shared < fewer(100);) {
    const RandomJob job = random_job(random);
    SCOPED_TRACE(testing::Message() << shared << ' ' << job.spec.schedule);
    const Job run(job.spec, job.cluster, job.tensor, job.context, job.expert);
    SimulationInput input = run.input();
    if (why_not_exact(input).empty()) continue;
    ++shared;
    const auto& links = run.traffic->links();
    PerturbationSpec spec;
    for (std::uint32_t i = random_between(random, 1, 3); i > 0; --i) {
      LinkChange& change = spec.links.emplace_back();
      change.link =
          links[random_between(random, 0, static_cast<std::uint32_t>(links.size()) - 1)].name;
      change.from_s = random_between(random, 0, 1000) / 1013.0;
      change.until_s = change.from_s + random_between(random, 1, 1000) / 1019.0;
      change.share = random_between(random, 0, 3) / 4.0;
    }
    const Perturbation perturbation =
        perturbation_of(spec, run.program.ops.devices(), *run.traffic);
    input.perturbation = &perturbation;
    expect_as_simgrid(input);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace penstock::lockstep_test
