// SPDX-License-Identifier: Apache-2.0
// Points of a sweep per second of CPU time, everything included: a 175B model on A100s, 8 stages x
// 64 microbatches, `split: balanced`, a fixed global batch, recompute on and off; and the whole
// sweep of stages 1..64 x microbatch sizes 1..64 over six schedules. Points that differ in costs
// only share a program: `new_programs` has none of those. Two workers against one is a ratio of
// wall clocks: it says something on a machine that nobody else uses. The GPUs of a node are joined
// pairwise: behind the ports of a switch both directions of a pipeline meet, which `exact` refuses.
#include "base/clock.hpp"
#include "scenarios/scenario.hpp"
#include "sweep/columns.hpp"
#include "sweep/evaluate.hpp"
#include "sweep/workers.hpp"
#include "tests/rig.hpp"

#include <benchmark/benchmark.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

constexpr std::array<const char*, 6> kSchedules = {
    "gpipe", "1f1b", "pipedream", "pipedream-2bw", "interleaved-1f1b", "zb-h1"};
constexpr int kGlobalBatch = 64;

/// The scenario as a file, for as long as the process lives.
class ScenarioFile {
 public:
  ScenarioFile()
      : path_(std::filesystem::temp_directory_path() /
              ("penstock_sweep_bench_" + std::to_string(::getpid()) + ".yaml")) {
    std::ofstream(path_) << "model: gpt3-175b\nstack: none\n"
                            "cluster: {base: dgx-a100, nodes: 8, intra: {attachment: pairs}}\n"
                            "schedule: 1f1b\n"
                            "pipeline: {stages: 8, microbatches: 64, split: balanced}\n";
  }
  ~ScenarioFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

const std::string& scenario_file() {
  static const ScenarioFile kFile;
  static const std::string kPath = kFile.path();
  return kPath;
}

/// PipeDream updates after every microbatch: its global batch is a number of updates.
Point point_of(const std::string& schedule, int stages, int size, bool recompute,
               int batch = kGlobalBatch) {
  const std::string microbatches = std::to_string(batch / size);
  const bool each = schedule == "pipedream";
  return {0,
          0,
          {{"schedule", schedule},
           {"pipeline.stages", std::to_string(stages)},
           {"pipeline.microbatch_size", std::to_string(size)},
           {"pipeline.microbatches", each ? "1" : microbatches},
           {"batches", each ? microbatches : "1"},
           {"pipeline.recompute", recompute ? "full" : "none"}}};
}

/// Evaluates the points in turn, one an iteration.
void visit(benchmark::State& state, const std::vector<Point>& points,
           const std::string& scenario = scenario_file(),
           EngineChoice engine = EngineChoice::exact) {
  const Evaluator evaluator({scenario}, {}, engine);
  std::size_t next = 0;
  std::array<std::int64_t, std::size(kStatusNames)> ended{};
  for (auto _ : state) {
    const Row row = evaluator.row(points[next]);
    ++ended[static_cast<std::size_t>(row.status)];
    next = (next + 1) % points.size();
  }
  if (ended[static_cast<std::size_t>(Row::Status::failed)] > 0)
    return state.SkipWithError("a point failed");
  state.counters["points/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
  const auto share = [&](Row::Status status) {
    return static_cast<double>(ended[static_cast<std::size_t>(status)]) /
           static_cast<double>(state.iterations());
  };
  state.counters["refused"] = share(Row::Status::refused);
  state.counters["infeasible"] = share(Row::Status::infeasible);
}

/// One schedule at 8 stages x 64 microbatches.
void exact_8x64(benchmark::State& state, const std::string& schedule) {
  visit(state, {point_of(schedule, 8, 1, false), point_of(schedule, 8, 1, true)});
}

std::vector<Point> mix() {
  std::vector<Point> points;
  for (const char* schedule : kSchedules) {
    for (const bool recompute : {false, true})
      points.push_back(point_of(schedule, 8, 1, recompute));
  }
  return points;
}

void exact_8x64_mix(benchmark::State& state) { visit(state, mix()); }

/// 8, 16 ... 120 microbatches, 64 on average.
void exact_8x64_new_programs(benchmark::State& state) {
  std::vector<Point> points;
  for (int microbatches = 8; microbatches <= 120; microbatches += 8) {
    for (const char* schedule : kSchedules)
      points.push_back(point_of(schedule, 8, 1, microbatches % 16 == 0, microbatches));
  }
  visit(state, points);
}

/// Stages and sizes that are powers of two.
void exact_whole_sweep(benchmark::State& state) {
  std::vector<Point> points;
  for (const char* schedule : kSchedules) {
    for (int stages = 1; stages <= 64; stages *= 2) {
      for (int size = 1; size <= 64; size *= 2) {
        for (const bool recompute : {false, true})
          points.push_back(point_of(schedule, stages, size, recompute));
      }
    }
  }
  visit(state, points);
}

/// Wall-clock seconds of the mix, many times over.
double sweep_seconds(const Evaluator& evaluator, int workers) {
  constexpr std::uint64_t kRows = 6'000;
  const std::vector<Point> points = mix();
  std::uint64_t begun = 0, rows = 0;
  const auto start = std::chrono::steady_clock::now();
  penstock::visit([&](const Point& point) { return evaluator.row(point); },
                  [&]() -> std::optional<Point> {
                    if (begun == kRows) return std::nullopt;
                    Point next = points[begun % points.size()];
                    next.number = begun++;
                    return next;
                  },
                  [&](Row&&) { ++rows; }, {.jobs = workers});
  invariant(rows == kRows, "bench: rows are missing");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Llama-3-70B on 64 H100 whatever the division: NICs and ports are shared by messages, collectives
/// and reductions. Two neighbours of the list share a program.
void llama_64_gpus(benchmark::State& state) {
  std::vector<Point> points;
  for (int size = 1; size <= 4; size *= 2) {
    for (int tensor = 1; tensor <= 8; tensor *= 2) {
      for (int stages = 1; stages <= 16 && tensor * stages <= 64; stages *= 2)
        for (const char* recompute : {"none", "full"})
          points.push_back({0,
                            0,
                            {{"pipeline.split", "balanced"},
                             {"pipeline.sequence_parallel", tensor > 1 ? "true" : "false"},
                             {"pipeline.recompute", recompute},
                             {"pipeline.microbatch_size", std::to_string(size)},
                             {"pipeline.tensor", std::to_string(tensor)},
                             {"pipeline.stages", std::to_string(stages)},
                             {"pipeline.width", std::to_string(64 / tensor / stages)}}});
    }
  }
  visit(state, points, (std::filesystem::path(data_folder()) / "scenarios/llama-3-70b-h100.yaml"),
        EngineChoice::automatic);
}

/// How many times as fast two workers are, the best of so many runs of each.
void exact_two_workers(benchmark::State& state) {
  const Evaluator evaluator({scenario_file()}, {}, EngineChoice::exact);
  double one_s = 1e9, two_s = 1e9;
  for (auto _ : state) {
    one_s = std::min(one_s, sweep_seconds(evaluator, 1));
    two_s = std::min(two_s, sweep_seconds(evaluator, 2));
  }
  state.counters["one_s"] = one_s;
  state.counters["two_s"] = two_s;
  state.counters["ratio"] = one_s / two_s;
}

/// With simgrid, each simulation in a child of this process.
void simgrid_8x64_mix(benchmark::State& state) {
  const Evaluator evaluator({scenario_file()}, {}, EngineChoice::simgrid);
  std::size_t next = 0;
  for (auto _ : state) {
    const double before = process_cpu_seconds();
    const Row row = evaluator.row(point_of(kSchedules.at(next), 8, 1, true));
    if (row.status >= Row::Status::refused) return state.SkipWithError(row.why.c_str());
    next = (next + 1) % kSchedules.size();
    state.SetIterationTime(process_cpu_seconds() - before);
  }
  state.counters["points/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(exact_8x64, gpipe, "gpipe")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(exact_8x64, 1f1b, "1f1b")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(exact_8x64, pipedream, "pipedream")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(exact_8x64, 2bw, "pipedream-2bw")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(exact_8x64, interleaved, "interleaved-1f1b")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(exact_8x64, zb_h1, "zb-h1")->Unit(benchmark::kMicrosecond);
BENCHMARK(exact_8x64_mix)->Unit(benchmark::kMicrosecond);
BENCHMARK(exact_8x64_new_programs)->Unit(benchmark::kMicrosecond);
BENCHMARK(llama_64_gpus)->Unit(benchmark::kMicrosecond)->Iterations(2 * 114);
BENCHMARK(exact_two_workers)->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK(exact_whole_sweep)->Unit(benchmark::kMicrosecond)->Iterations(2 * 588);
BENCHMARK(simgrid_8x64_mix)->Unit(benchmark::kMicrosecond)->UseManualTime()->Iterations(60);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
