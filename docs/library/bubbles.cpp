// SPDX-License-Identifier: Apache-2.0
// How much each schedule leaves idle, where a forward takes 10 ms, a backward 20 ms and a message
// crosses links of 25 GB/s: penstock as a library (docs/library.md).
#include "base/error.hpp"
#include "program/check.hpp"
#include "schedules/lowering.hpp"
#include "sim/engine.hpp"
#include "traces/metrics.hpp"

#include <cstdio>
#include <numeric>

namespace ps = penstock;

namespace {

ps::StageCosts costs_of_a_stage() {
  ps::StageCosts costs;
  costs[penstock::OpKind::forward].seconds = 10e-3;
  costs[penstock::OpKind::backward].seconds = 20e-3;
  costs[penstock::OpKind::backward_input].seconds = 10e-3;
  costs[penstock::OpKind::backward_weight].seconds = 10e-3;
  costs.output_bytes = 64 << 20;
  return costs;
}

void simulate(const char* name, std::uint32_t stages, std::uint32_t microbatches) {
  const ps::Program program = ps::lower(*ps::find_schedule(name), {stages, microbatches}, {});
  const ps::DependencyTable table(program.ops, program.placement, program.microbatches());
  const std::vector<std::string> problems = ps::check(program, table);
  if (!problems.empty()) throw ps::InputError(name, problems.front());

  ps::Cluster cluster;
  cluster.devices_per_node = program.placement.devices();
  cluster.link = ps::LinkSpec{.latency_s = 10e-6, .bytes_per_s = 25e9};
  std::vector<int> gpus(static_cast<std::size_t>(program.placement.devices()));
  std::iota(gpus.begin(), gpus.end(), 0);
  const ps::Traffic traffic(program, cluster, ps::one_gpu_each(gpus), {});
  const std::vector<ps::StageCosts> costs(static_cast<std::size_t>(program.placement.stages()),
                                          costs_of_a_stage());
  const ps::Timeline timeline = ps::simulate_exact({program, table, costs, traffic});

  const ps::TimelineView view{program, table, timeline};
  double busy_s = 0;
  for (int d = 0; d < program.ops.devices(); ++d) busy_s += ps::device_metrics(view, d).busy_s;
  std::printf("%-8s %6.1f ms, idle %4.1f %%\n", name, timeline.makespan_s * 1e3,
              100 * (1 - busy_s / (timeline.makespan_s * program.ops.devices())));
}

}  // namespace

int main() try {
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) simulate(name, 4, 8);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
