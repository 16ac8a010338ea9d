#include "validate/sailor.hpp"

#include "base/error.hpp"
#include "models/collectives.hpp"
#include "schedules/lowering.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

/// One stage on the GPUs of one replica.
struct StageShape {
  const SailorReplica& gpus;
  const std::vector<int>& layers;
};

bool is_embedding(int layer) { return layer == 0; }
bool is_block(int layer, const SailorData& data) {
  return layer >= 1 && layer <= data.model.num_layers;
}
bool is_head(int layer, const SailorPlan& plan) { return layer == plan.layers() - 1; }

const SailorProfile& profile_of(const SailorData& data, const std::string& gpu) {
  return data.profiles.at(gpu);
}

LayerTimes stage_times(const StageShape& stage, int microbatch_size, const SailorData& data) {
  LayerTimes sum;
  const SailorProfile& profile = profile_of(data, stage.gpus.gpu);
  for (const int layer : stage.layers) {
    const LayerTimes one = profile.times(microbatch_size, stage.gpus.tensor, layer);
    sum.forward_s += one.forward_s;
    sum.backward_s += one.backward_s;
    sum.update_s += one.update_s;
  }
  return sum;
}

double parameters_of(const StageShape& stage, const SailorPlan& plan, const SailorData& data) {
  const TensorParallel tensor{stage.gpus.tensor, false};
  std::int64_t sum = 0;
  for (const int layer : stage.layers) {
    if (is_embedding(layer)) sum += data.model.embedding_parameters(tensor);
    if (is_block(layer, data)) sum += data.model.layer_parameters(tensor);
    if (is_head(layer, plan)) sum += data.model.head_parameters(tensor);
  }
  return static_cast<double>(sum);
}

/// What one pipeline takes, and how its stages differ.
class PipelineModel {
 public:
  PipelineModel(const SailorPlan& plan, const SailorPipeline& pipeline, const SailorData& data,
                const SailorParameters& parameters)
      : plan_(plan), pipeline_(pipeline), data_(data), parameters_(parameters) {
    for (int s = 0; s < pipeline.depth(); ++s) add_stage(s);
  }

  SailorPrediction prediction() {
    const double pace = slowest_pace(stage_s_, plan_.width(), parameters_.speed_spread);
    for (StageCosts& c : costs_) {
      c.forward_s *= pace;
      c.backward_s *= pace;
    }
    SailorPrediction out{iteration_s(), reduction_s_, update_s_, max_bytes()};
    if (plan_.width() > 1) out.reduction_s += (1 - 1 / pace) * out.iteration_s;
    return out;
  }

 private:
  void add_stage(int s) {
    const auto index = static_cast<std::size_t>(s);
    LayerTimes slowest;
    double reduction_s = 0;
    for (const SailorReplica& gpus : pipeline_.replicas[index]) {
      const StageShape stage{gpus, pipeline_.layers[index]};
      const LayerTimes times = stage_times(stage, plan_.microbatch_size, data_);
      slowest.forward_s = std::max(slowest.forward_s, times.forward_s);
      slowest.backward_s = std::max(slowest.backward_s, times.backward_s);
      slowest.update_s = std::max(slowest.update_s, parameters_.update_share * times.update_s);
      reduction_s = std::max(reduction_s, all_reduce_s(stage));
    }
    StageCosts costs;
    costs.forward_s = slowest.forward_s;
    costs.backward_s = slowest.backward_s;
    costs.step_s = parameters_.reduction_s + reduction_s + slowest.update_s;
    costs_.push_back(costs);
    stage_s_.push_back(slowest.forward_s + slowest.backward_s);
    reduction_s_ = std::max(reduction_s_, parameters_.reduction_s + reduction_s);
    update_s_ = std::max(update_s_, slowest.update_s);
  }

  double all_reduce_s(const StageShape& stage) const {
    const int members = plan_.width();
    if (members == 1) return 0;
    const double bytes = data_.model.bytes.reduced * parameters_of(stage, plan_, data_);
    return ring_all_reduce_s(
        members, bytes, 0,
        data_.network.bytes_per_s(stage.gpus.gpu, stage.gpus.tensor, bytes / members));
  }

  double message_s(const SailorReplica& gpus) const {
    const double bytes = data_.model.layer_input_bytes(plan_.microbatch_size);
    return parameters_.message_latency_s +
           bytes / (parameters_.message_share *
                    data_.network.bytes_per_s(gpus.gpu, gpus.tensor, bytes));
  }

  /// A message and the one that comes back between stages s and s + 1, at the slower end's rate.
  double exchange_s(std::size_t s) const {
    double slowest = 0;
    for (const std::size_t end : {s, s + 1}) {
      for (const SailorReplica& gpus : pipeline_.replicas[end])
        slowest = std::max(slowest, message_s(gpus));
    }
    return 2 * slowest;
  }

  double iteration_s() const {
    ScheduleShape shape;
    shape.depth = static_cast<std::uint32_t>(pipeline_.depth());
    shape.microbatches_per_update = static_cast<std::uint32_t>(plan_.microbatches());
    const Program program = lower(*find_schedule("1f1b"), shape, {.transfers = Transfers::coupled});
    const DependencyTable table(program.ops, program.placement, program.microbatches());
    Cluster cluster;
    cluster.devices_per_node = pipeline_.depth();
    cluster.link = LinkSpec{};
    std::vector<int> gpus(static_cast<std::size_t>(pipeline_.depth()));
    std::iota(gpus.begin(), gpus.end(), 0);
    Traffic traffic(program, cluster, one_gpu_each(gpus));
    for (std::uint32_t c = 0; c < traffic.messages().size(); ++c) {
      const Transfer& message = traffic[c];
      const int first = std::min(message.source, message.destination);
      traffic.set_private(c, exchange_s(static_cast<std::size_t>(first)),
                          std::numeric_limits<double>::infinity());
    }
    return simulate_exact({program, table, costs_, traffic}).makespan_s;
  }

  std::int64_t max_bytes() const {
    double most = 0;
    for (int s = 0; s < pipeline_.depth(); ++s) {
      const auto index = static_cast<std::size_t>(s);
      for (const SailorReplica& gpus : pipeline_.replicas[index])
        most = std::max(most, stage_bytes({gpus, pipeline_.layers[index]}, pipeline_.depth() - s));
    }
    return std::llround(most);
  }

  double stage_bytes(const StageShape& stage, int from_end) const {
    const TransformerSpec& model = data_.model;
    const TensorParallel tensor{stage.gpus.tensor, false};
    const double size = plan_.microbatch_size;
    const auto blocks = static_cast<double>(
        std::ranges::count_if(stage.layers, [&](int l) { return is_block(l, data_); }));
    const auto& b = model.bytes;
    double bytes = parameters_.context_bytes +
                   (b.weights + b.gradients + b.optimizer) * parameters_of(stage, plan_, data_);
    bytes += std::min(plan_.microbatches(), from_end) * blocks *
             model.layer_activation_bytes(size, Recompute::none, tensor);
    const auto s = static_cast<double>(model.seq_length);
    if (blocks > 0)
      bytes += parameters_.score_copies * model.element_bytes() * size * s * s *
               static_cast<double>(model.num_attention_heads) / tensor.degree;
    if (is_head(stage.layers.back(), plan_))
      bytes += parameters_.logits_bytes * size * s * static_cast<double>(model.vocab_rows(tensor));
    return bytes;
  }

  const SailorPlan& plan_;
  const SailorPipeline& pipeline_;
  const SailorData& data_;
  const SailorParameters& parameters_;
  std::vector<StageCosts> costs_;
  std::vector<double> stage_s_;
  double reduction_s_ = 0, update_s_ = 0;
};

void require_layers(const SailorPlan& plan, const SailorData& data) {
  for (const std::string& gpu : plan.gpus()) {
    const auto profile = data.profiles.find(gpu);
    invariant(profile != data.profiles.end(), "a plan is predicted without its GPUs' profiles");
    if (profile->second.layers() != plan.layers())
      throw InputError(
          plan.file, fmt::format("has {} layers, but the profile of {} on {} has {}", plan.layers(),
                                 data.model.name, gpu, profile->second.layers()));
  }
  if (plan.layers() < data.model.num_layers + 2)
    throw InputError(plan.file,
                     fmt::format("has {} layers; {} has {} blocks, an embedding and a head",
                                 plan.layers(), data.model.name, data.model.num_layers));
}

}  // namespace

double slowest_pace(const std::vector<double>& stage_s, int width, double spread) {
  const double longest = *std::ranges::max_element(stage_s);
  if (spread <= 0) return 1;
  const auto chance = [&](double pace) {
    double all = 1;
    for (const double s : stage_s)
      all *= std::pow(normal_cdf((pace * longest / s - 1) / spread), width);
    return all;
  };
  double low = 1, high = 1 + 10 * spread;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (chance(middle) < 0.5 ? low : high) = middle;
  }
  return high;
}

SailorPrediction predict(const SailorPlan& plan, const SailorData& data,
                         const SailorParameters& parameters) {
  require_layers(plan, data);
  SailorPrediction out;
  for (const SailorPipeline& pipeline : plan.pipelines) {
    const SailorPrediction one = PipelineModel(plan, pipeline, data, parameters).prediction();
    out.iteration_s = std::max(out.iteration_s, one.iteration_s);
    out.reduction_s = std::max(out.reduction_s, one.reduction_s);
    out.update_s = std::max(out.update_s, one.update_s);
    out.max_bytes = std::max(out.max_bytes, one.max_bytes);
  }
  return out;
}

bool is_sailor_calibration(const SailorPlan& plan, const std::string& model) {
  // Depth, width, microbatch size, batch; all of OPT-350 on GH-96 with tensor degree 4.
  static constexpr std::array<std::array<int, 4>, 15> kRows = {{{1, 1, 1, 1},
                                                                {1, 1, 1, 32},
                                                                {1, 2, 2, 32},
                                                                {1, 4, 4, 128},
                                                                {1, 16, 8, 1024},
                                                                {1, 32, 8, 1024},
                                                                {2, 1, 8, 32},
                                                                {2, 2, 1, 64},
                                                                {2, 4, 8, 512},
                                                                {2, 8, 8, 1024},
                                                                {2, 16, 8, 1024},
                                                                {4, 1, 1, 64},
                                                                {4, 2, 8, 512},
                                                                {4, 4, 8, 1024},
                                                                {4, 8, 8, 1024}}};
  const std::array<int, 4> row = {plan.depth(), plan.width(), plan.microbatch_size,
                                  plan.batch_size};
  const bool same_machine = model == "OPT-350" && plan.gpus() == std::set<std::string>{"GH-96"} &&
                            plan.pipelines.front().replicas.front().front().tensor == 4;
  return same_machine && std::ranges::find(kRows, row) != kRows.end();
}

}  // namespace penstock
