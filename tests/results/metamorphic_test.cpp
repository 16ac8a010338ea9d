// SPDX-License-Identifier: Apache-2.0
// Relations that hold between two runs whatever the truth is: what comparing engines with each
// other cannot find. Random models, software, devices, degrees, schedules and number types; a few
// hundred cases of each relation, thousands with PENSTOCK_THOROUGH.
#include "base/error.hpp"
#include "results/fields.hpp"
#include "results/simulation.hpp"
#include "tests/effort.hpp"
#include "tests/random_shape.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace penstock::metamorphic_test {
namespace {

const int kCases = fewer(1000);

/// A job by its shape. Rates and latencies are written out, so that they can be scaled.
struct Job {
  std::string model, schedule = "1f1b", recompute = "none", precision = "mixed-bf16";
  std::string device, stack;  ///< shipped ones; no stack: the device's curve
  int nodes = 1, stages = 1, chunks = 1, tensor = 1, width = 1;
  std::int64_t microbatch_size = 1, microbatches = 1;
  bool sequence_parallel = false, distributed_optimizer = false;
  std::string split = "balanced";
  double compute = 1, memory = 1, links = 1, hosts = 1;  ///< times as fast
};

/// The device with its rates times `job.compute` and `job.memory`.
std::string device_text(const Job& job) {
  const DeviceSpec device = load_device(job.device);
  std::vector<std::string> peaks;
  for (const auto& [type, flops] : device.peak_flops_per_s)
    peaks.push_back(fmt::format("{}: {} TFLOP/s", type, job.compute * flops / 1e12));
  return fmt::format("{{base: {}, peak: {{{}}}, memory_bandwidth: {} GB/s, launch: {} us}}",
                     job.device, fmt::join(peaks, ", "),
                     job.memory * device.memory_bytes_per_s / 1e9,
                     device.launch_s * 1e6 / job.hosts);
}

/// The software with its hosts `job.hosts` times as fast, its links' latencies `job.links`.
std::string stack_text(const Job& job) {
  if (job.stack.empty()) return "{name: neutral}";
  const StackSpec s = load_stack(job.stack);
  std::string text = fmt::format(
      "{{base: {}, forward_host: {} us, backward_host: {} us, tensor_host: {} us, "
      "iteration_overhead: {} us",
      job.stack, s.forward_host_s * 1e6 / job.hosts, s.backward_host_s * 1e6 / job.hosts,
      s.tensor_host_s * 1e6 / job.hosts, s.iteration_overhead_s * 1e6 / job.hosts);
  if (s.link_latency_s)
    text += fmt::format(", link_latency: {} us", *s.link_latency_s * 1e6 / job.links);
  if (s.node_latency_s)
    text += fmt::format(", node_latency: {} us", *s.node_latency_s * 1e6 / job.links);
  return text + "}";
}

std::string text_of(const Job& job) {
  return fmt::format(
      "model: {{{}, precision: {}}}\n"
      "cluster:\n"
      "  device: {}\n"
      "  nodes: {}\n"
      "  devices_per_node: 8\n"
      "  intra: {{attachment: switch, bandwidth: {} GB/s, latency: {} us}}\n"
      "  inter: {{bandwidth: {} GB/s, latency: {} us, nics: 8}}\n"
      "stack: {}\n"
      "schedule: {}\n"
      "pipeline:\n"
      "  stages: {}\n"
      "  chunks: {}\n"
      "  tensor: {}\n"
      "  width: {}\n"
      "  microbatch_size: {}\n"
      "  microbatches: {}\n"
      "  recompute: {}\n"
      "  sequence_parallel: {}\n"
      "  distributed_optimizer: {}\n"
      "  split: {}\n"
      "batches: 2\n",
      job.model, job.precision, device_text(job), job.nodes, 450 * job.links, 4 / job.links,
      50 * job.links, 10 / job.links, stack_text(job), job.schedule, job.stages, job.chunks,
      job.tensor, job.width, job.microbatch_size, job.microbatches, job.recompute,
      job.sequence_parallel, job.distributed_optimizer, job.split);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return random_between(random_, low, high);
  }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> of) {
    return *(of.begin() + between(0, static_cast<std::uint32_t>(of.size() - 1)));
  }
  Job job();

 private:
  std::mt19937_64 random_;
};

Job Random::job() {
  Job job;
  const int heads = 8 * one_of({1, 2, 4});
  job.tensor = one_of({1, 1, 2, 4, 8});
  job.stages = one_of({1, 2, 2, 3, 4, 8});
  job.width = one_of({1, 1, 2, 4});
  job.schedule = one_of<const char*>(
      {"1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v", "looped-bfs", "eager-1f1b", "v-half"});
  const Schedule& schedule = *find_schedule(job.schedule);
  job.chunks = static_cast<int>(schedule.chunks.usual);
  const int layers = job.stages * job.chunks * one_of({1, 2, 3}) + one_of({0, 0, 1});
  job.model = fmt::format(
      "family: {}, num_layers: {}, hidden_size: {}, num_attention_heads: {}, num_query_groups: {}, "
      "ffn_hidden_size: {}, vocab_size: {}, seq_length: {}, tie_embeddings: {}, flash_attention: "
      "{}",
      one_of<const char*>({"gpt", "llama"}), layers, heads * one_of({64, 128}), heads,
      coin() ? heads : 8, 1024 * one_of({2, 4, 7}), 128 * between(64, 1002),
      one_of({512, 1024, 2048, 4096}), coin(), coin());
  job.precision = one_of<const char*>({"mixed-bf16", "mixed-bf16", "mixed-fp16", "fp32", "tf32"});
  job.device = one_of<const char*>({"a100-80", "h100", "b200"});
  job.stack = one_of<const char*>({"", "megatron", "nanotron", "megatron-deepspeed", "torchtitan",
                                   "deepspeed", "megatron-2022"});
  job.recompute = one_of<const char*>({"none", "none", "selective", "full"});
  job.microbatch_size = one_of({1, 2, 4});
  job.microbatches = static_cast<std::int64_t>(job.stages) * one_of({1, 2, 4});
  job.sequence_parallel = job.tensor > 1 && coin();
  job.distributed_optimizer = job.width > 1 && coin();
  job.nodes = (job.stages * job.tensor * job.width + 7) / 8;
  return job;
}

/// None where the scenario is refused.
std::optional<Simulation> simulated(const Job& job) {
  try {
    return simulate(parse_scenario(text_of(job), "random.yaml"), EngineChoice::automatic);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Calls `check` with random jobs that are accepted, and what they come to.
template <class Check>
void for_jobs(std::uint64_t seed, const Check& check) {
  int accepted = 0;
  for (int i = 0; i < kCases; ++i) {
    Random random(1'000'003 * seed + static_cast<std::uint64_t>(i));
    Job job = random.job();
    const auto is = simulated(job);
    if (!is) continue;
    ++accepted;
    SCOPED_TRACE(text_of(job));
    check(job, *is, random);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, kCases / 2) << "the others say nothing";
}

/// With its layers where they are: a balanced split would follow the times.
Job with_layers_of(Job job, const Simulation& s) {
  job.split = fmt::format("[{}]", fmt::join(s.scenario.layers, ", "));
  return job;
}

double time_s(const Simulation& s) { return iteration_time_s(s).value(); }

/// Without messages that wait, whose number follows the times.
std::vector<std::int64_t> peaks(const Simulation& s) {
  std::vector<std::int64_t> all;
  for (const DeviceResult& d : outline(s).devices)
    all.push_back(d.memory.use.total() -
                  d.memory.use.bytes[static_cast<std::size_t>(Owner::buffers)]);
  return all;
}

std::vector<std::int64_t> totals(const Simulation& s) {
  std::vector<std::int64_t> all;
  for (const DeviceResult& d : outline(s).devices) all.push_back(d.memory.use.total());
  return all;
}

TEST(Metamorphic, EverythingTwiceAsFastTakesHalfTheTime) {
  for_jobs(1, [](Job job, const Simulation& is, Random& random) {
    if (job.stack == "megatron") return;  // measured kernels have latencies of their own
    job.compute = job.memory = job.links = job.hosts = random.one_of({2.0, 4.0, 0.5});
    const auto faster = simulated(job);
    ASSERT_TRUE(faster);
    // Fluid rates are found by bisection of a step.
    EXPECT_NEAR(time_s(*faster) * job.compute / time_s(is), 1, is.engine == "exact" ? 1e-9 : 1e-6);
    EXPECT_EQ(peaks(*faster), peaks(is)) << "bytes depend on no rate";
  });
}

/// With shared links another order of messages may cost a little, as list schedules do (Graham's
/// anomalies); where no link is shared, an order that stays cannot take longer.
TEST(Metamorphic, NothingThatIsFasterMakesItSlower) {
  for_jobs(2, [](const Job& job, const Simulation& is, Random& random) {
    Job other = with_layers_of(job, is);
    double Job::*const rate =
        random.one_of({&Job::compute, &Job::memory, &Job::links, &Job::hosts});
    other.*rate = random.one_of({1.5, 2.0, 8.0});
    const auto faster = simulated(other);
    ASSERT_TRUE(faster);
    const double anomaly = is.engine == "exact" && faster->engine == "exact" ? 1e-9 : 0.02;
    EXPECT_LE(time_s(*faster), time_s(is) * (1 + anomaly));
  });
}

TEST(Metamorphic, MemoryGrowsWithTheMicrobatch) {
  for_jobs(3, [](Job job, const Simulation& is, Random& /*random*/) {
    job = with_layers_of(job, is);
    job.microbatch_size *= 2;
    const auto larger = simulated(job);
    ASSERT_TRUE(larger);
    const auto before = peaks(is), after = peaks(*larger);
    for (std::size_t d = 0; d < before.size(); ++d) EXPECT_GE(after[d], before[d]) << d;
  });
}

TEST(Metamorphic, RecomputationAddsNoMemoryAndSavesNoTime) {
  for_jobs(4, [](Job job, const Simulation& is, Random& /*random*/) {
    job = with_layers_of(job, is);
    std::vector<Simulation> runs;
    for (const char* recompute : {"none", "selective", "full"}) {
      job.recompute = recompute;
      auto run = simulated(job);
      ASSERT_TRUE(run);
      runs.push_back(std::move(*run));
    }
    const auto none = peaks(runs[0]), selective = peaks(runs[1]), full = peaks(runs[2]);
    const auto all_none = totals(runs[0]), all_selective = totals(runs[1]),
               all_full = totals(runs[2]);
    // Where other messages wait at the moment of the peak, the whole of it is what is less.
    for (std::size_t d = 0; d < none.size(); ++d) {
      EXPECT_TRUE(selective[d] <= none[d] || all_selective[d] <= all_none[d]) << d;
      EXPECT_TRUE(full[d] <= none[d] || all_full[d] <= all_none[d]) << d;
    }
    const double anomaly = runs[0].engine == "exact" ? 1e-9 : 0.02;
    EXPECT_GE(time_s(runs[1]), time_s(runs[0]) * (1 - anomaly));
    EXPECT_GE(time_s(runs[2]), time_s(runs[0]) * (1 - anomaly));
  });
}

/// Of the first replica, all stages together.
std::int64_t weights(const Simulation& s) {
  std::int64_t bytes = 0;
  for (const DeviceResult& d : outline(s).devices)
    if (s.program.placement.replica_of(d.device) == 0)
      bytes += d.memory.use.bytes[static_cast<std::size_t>(Owner::weights)];
  return bytes;
}

TEST(Metamorphic, StagesHoldTheSameWeightsHoweverTheyAreSplit) {
  for_jobs(5, [](Job job, const Simulation& is, Random& random) {
    if (job.stages == 1) return;  // a tied LM head is no copy there
    Job other = job;
    other.schedule = "1f1b";
    other.chunks = 1;
    other.stages = std::min(random.one_of({2, 3, 4}), is.scenario.transformer->num_layers);
    other.microbatches = 2L * other.stages;
    other.width = 1;
    other.distributed_optimizer = false;
    other.nodes = 8;
    const auto apart = simulated(other);
    ASSERT_TRUE(apart);
    EXPECT_EQ(weights(*apart), weights(is));
    const double parameters = static_cast<double>(is.scenario.transformer->parameters());
    EXPECT_EQ(parameters, static_cast<double>(apart->scenario.transformer->parameters()));
    EXPECT_GE(static_cast<double>(weights(is)) * job.tensor, parameters)
        << "every parameter is somewhere, in a byte or more";
  });
}

TEST(Metamorphic, TokensAreBatchTimesLengthOverTime) {
  for_jobs(6, [](const Job& job, const Simulation& is, Random& /*random*/) {
    const Result r = summarize(is);
    const double tokens = static_cast<double>(job.width * job.microbatches * job.microbatch_size) *
                          static_cast<double>(is.scenario.transformer->seq_length);
    EXPECT_NEAR(*r.tokens_per_s * time_s(is) / tokens, 1, 1e-12);
    EXPECT_NEAR(*r.tokens_per_s_per_gpu * job.width * job.stages * job.tensor / *r.tokens_per_s, 1,
                1e-12);
    const Json json = to_json(Summary{is.scenario, &is, &r});
    for (const Measure& measure : measures()) {
      const double value = measure.value({is.scenario, &is, &r});
      const Json* const found = json.find(measure.name);
      if (found == nullptr || found->is_array()) continue;  // in an object, or of devices
      EXPECT_TRUE(found->is_null() ? std::isnan(value) : found->get<double>() == value)
          << measure.name;
    }
  });
}

/// More of the same microbatches take no less time, and no less time each than the last stage's.
TEST(Metamorphic, MoreMicrobatchesTakeLonger) {
  for_jobs(7, [](Job job, const Simulation& is, Random& /*random*/) {
    job.microbatches *= 2;
    const auto longer = simulated(job);
    ASSERT_TRUE(longer);
    EXPECT_GE(time_s(*longer), time_s(is) * (1 - 1e-9));
    EXPECT_LE(time_s(*longer), 2.02 * time_s(is)) << "filling and draining come once";
  });
}

}  // namespace
}  // namespace penstock::metamorphic_test
