#include "validate/training_model.hpp"

#include "models/collectives.hpp"
#include "schedules/lowering.hpp"

#include <cmath>
#include <numeric>

namespace penstock {
namespace {

constexpr double kPeakFlops = 312e12;  // A100, fp16 with fp32 accumulation
constexpr int kVocabulary = 50257;     // GPT-2's
constexpr double kNodeGpus = 8;
constexpr double kOptimizerSPerParameter = 2.2e-11;  // Adam: ~32 bytes at 1.5 TB/s
constexpr int kElement = 2;                          // bytes, fp16

enum Index : std::size_t {
  gemm_efficiency,
  memory_bandwidth,
  launch,
  sharpness,
  collective_launch,
  head_efficiency,
  tensor_bandwidth,
  network_bandwidth,
  reduction_bandwidth,
  p2p_bandwidth,
  overhead,
  latency
};

constexpr std::array<TrainingParameterSpec, kTrainingParameters> kSpecs = {{
    {"gemm_efficiency", "", 0.75, 0.3, 0.95, "of the peak, large matrix products"},
    {"memory_bandwidth", "bytes/s", 1.5e12, 0.3e12, 2e12, "of element-wise work and operands"},
    {"launch_s", "s", 0.8e-3, 0.1e-3, 10e-3, "host time of a layer's forward; backward: 3 times"},
    {"sharpness", "", 4, 1.5, 30, "k of (device^k + host^k)^(1/k)"},
    {"collective_launch_s", "s", 8e-5, 1e-7, 2e-3, "host time of a tensor-parallel all-reduce"},
    {"head_efficiency", "", 0.5, 0.1, 0.95,
     "of the peak, LM head with unpadded vocabulary (t = 1)"},
    {"tensor_bandwidth", "bytes/s", 150e9, 40e9, 300e9, "ring among GPUs of a node"},
    {"network_bandwidth", "bytes/s", 60e9, 5e9, 100e9, "tensor-parallel ring across nodes"},
    {"reduction_bandwidth", "bytes/s", 100e9, 5e9, 600e9,
     "ring of gradients, per node across nodes; above the link's: part of it is hidden"},
    {"p2p_bandwidth", "bytes/s", 20e9, 2e9, 300e9, "between stages, per GPU"},
    {"iteration_s", "s", 5e-2, 1e-4, 3, "per iteration: data, gradient norm, logging"},
    {"latency_s", "s", 2e-5, 1e-7, 1e-3, "per hop of a tensor-parallel ring"},
}};

double larger_of(double device_s, double host_s, double k) {
  const double larger = std::max(device_s, host_s);
  return larger * std::pow(std::pow(device_s / larger, k) + std::pow(host_s / larger, k), 1 / k);
}

/// Times of one layer and of the LM head, per microbatch and GPU.
struct LayerTimes {
  double forward_s, backward_s, head_forward_s, head_backward_s;
};

LayerTimes layer_times(const TrainingRun& run, const TrainingParameters& parameters) {
  const auto& p = parameters.values;
  const double h = run.hidden, t = run.tensor, b = run.micro_batch, s = run.sequence;
  const double n = b * s;
  const double scores = b * run.heads * s * s / t;
  const double operands = kElement * (14 * n * h / t + 12 * h * h / t + 2 * scores);
  const double element_wise = kElement * (10 * n * h + 8 * n * h / t + 6 * scores);
  const double device = (24 * n * h * h + 4 * n * s * h) / t / (kPeakFlops * p[gemm_efficiency]) +
                        (operands / 2 + 0.7 * element_wise) / p[memory_bandwidth];
  const double ring = run.tensor > kNodeGpus ? p[network_bandwidth] : p[tensor_bandwidth];
  const double reduce =
      t > 1 ? 2 * (t - 1) / t * n * h * kElement / ring + p[latency] * (t - 1) : 0;
  const double launch_reduce = t > 1 ? p[collective_launch] : 0;
  const double head_rate = kPeakFlops * p[t > 1 ? gemm_efficiency : head_efficiency];
  const double head = 2 * n * h * kVocabulary / t / head_rate;
  const double logits = n * kVocabulary / t / p[memory_bandwidth];
  return {larger_of(device + 2 * reduce, p[launch] + 2 * launch_reduce, p[sharpness]),
          larger_of(3 * device + 4 * reduce, 3 * p[launch] + 4 * launch_reduce, p[sharpness]),
          head + 6 * logits, 2 * head + 12 * logits};
}

/// Gradients' all-reduce over the replicas, and the optimizer, for a GPU's share of a stage.
double update_s(const TrainingRun& run, const TrainingParameters& parameters, int layers,
                bool first, bool last) {
  const double h = run.hidden;
  double weights = 12 * h * h * layers;
  if (first) weights += (kVocabulary + double(run.sequence)) * h;
  if (last && !first) weights += kVocabulary * h;
  weights /= run.tensor;
  double bandwidth = parameters.values[reduction_bandwidth];
  const bool across_nodes = run.data * run.tensor > kNodeGpus;
  if (across_nodes) bandwidth /= std::min<double>(run.tensor, kNodeGpus);
  return ring_all_reduce_s(run.data, kElement * weights, 0, bandwidth) +
         weights * kOptimizerSPerParameter;
}

std::vector<StageCosts> stage_costs(const TrainingRun& run, const TrainingParameters& parameters,
                                    const ShapeFactors& factors) {
  const LayerTimes times = layer_times(run, parameters);
  std::vector<StageCosts> costs(static_cast<std::size_t>(run.pipeline));
  for (int s = 0; s < run.pipeline; ++s) {
    const int layers = run.layers / run.pipeline + (s < run.layers % run.pipeline ? 1 : 0);
    const bool last = s + 1 == run.pipeline;
    StageCosts& c = costs[static_cast<std::size_t>(s)];
    const double head = last ? factors.head : 0;
    c.forward_s = layers * factors.layer * times.forward_s + head * times.head_forward_s;
    c.backward_s = layers * factors.layer * times.backward_s + head * times.head_backward_s;
    c.step_s = update_s(run, parameters, layers, s == 0, last);
    c.output_bytes = std::int64_t{run.micro_batch} * run.sequence * run.hidden * kElement;
  }
  return costs;
}

Cluster private_links(int devices) {
  Cluster cluster;
  cluster.devices_per_node = devices;
  cluster.link = LinkSpec{};
  return cluster;
}

std::vector<int> numbered(int devices) {
  std::vector<int> gpus(static_cast<std::size_t>(devices));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

}  // namespace

std::span<const TrainingParameterSpec, kTrainingParameters> training_parameters() { return kSpecs; }

TrainingParameters TrainingParameters::nominal() {
  TrainingParameters out{};
  for (std::size_t i = 0; i < kTrainingParameters; ++i) out.values[i] = kSpecs[i].start;
  return out;
}

LayerShape shape_of(const TrainingRun& run) {
  return {run.hidden, run.sequence, run.heads, run.micro_batch, run.tensor};
}

struct TrainingModel::Pipeline {
  Pipeline(int depth, int microbatches)
      : program(lower(*find_schedule("1f1b"),
                      {static_cast<std::uint32_t>(depth), static_cast<std::uint32_t>(microbatches),
                       1, false, 0},
                      {Transfers::overlapped, StepSync::global})),
        table(program.ops, program.placement, program.microbatches()),
        traffic(program, private_links(depth), one_gpu_each(numbered(depth))) {}

  Program program;
  DependencyTable table;
  Traffic traffic;
};

TrainingModel::TrainingModel() = default;
TrainingModel::~TrainingModel() = default;

TrainingModel::Pipeline& TrainingModel::pipeline(const TrainingRun& run) {
  auto& place = pipelines_[{run.pipeline, run.microbatches()}];
  if (!place) place = std::make_unique<Pipeline>(run.pipeline, run.microbatches());
  return *place;
}

double TrainingModel::iteration_s(const TrainingRun& run, const TrainingParameters& parameters,
                                  const ShapeFactors& factors) {
  Pipeline& p = pipeline(run);
  for (std::uint32_t c = 0; c < p.traffic.messages().size(); ++c)
    p.traffic.set_private(c, 0, parameters.values[p2p_bandwidth]);
  const auto costs = stage_costs(run, parameters, factors);
  const double pipeline_s = simulate_exact({p.program, p.table, costs, p.traffic}).makespan_s;
  return pipeline_s + parameters.values[overhead];
}

}  // namespace penstock
