// SPDX-License-Identifier: Apache-2.0
#include "validate/sailor.hpp"

#include "base/error.hpp"
#include "base/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr double kUpdateShare = 1.0 / 3;
constexpr double kScoreCopies = 3, kLogitsBytes = 14;
constexpr double kExchange = 4;  // fp32, and one direction after the other

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

/// What a stage takes and holds, per microbatch where that matters; bytes of a rank.
struct StageNumbers {
  double forward_s = 0, backward_s = 0, update_s = 0;
  double parameters = 0, activation = 0, workspace = 0;

  void take_larger(const StageNumbers& other) {
    for (const auto part :
         {&StageNumbers::forward_s, &StageNumbers::backward_s, &StageNumbers::update_s,
          &StageNumbers::parameters, &StageNumbers::activation, &StageNumbers::workspace})
      this->*part = std::max(this->*part, other.*part);
  }
};

StageNumbers numbers_of(const StageShape& stage, const SailorPlan& plan, const SailorData& data) {
  const TransformerSpec& model = data.model;
  const TensorParallel tensor{stage.gpus.tensor, false};
  const double size = plan.microbatch_size;
  const auto s = static_cast<double>(model.seq_length);
  const auto blocks = static_cast<double>(
      std::ranges::count_if(stage.layers, [&](int l) { return is_block(l, data); }));
  const LayerTimes times = stage_times(stage, plan.microbatch_size, data);
  StageNumbers out{times.forward_s, times.backward_s, times.update_s};
  out.parameters = parameters_of(stage, plan, data);
  out.activation = blocks * model.layer_activation_bytes(size, Recompute::none, tensor);
  if (blocks > 0)
    out.workspace += kScoreCopies * model.element_bytes() * size * s * s *
                     static_cast<double>(model.num_attention_heads) / tensor.degree;
  if (is_head(stage.layers.back(), plan))
    out.workspace += kLogitsBytes * size * s * static_cast<double>(model.vocab_rows(tensor));
  return out;
}

/// Of each stage, over all pipelines and replicas.
std::vector<StageNumbers> slowest_stages(const SailorPlan& plan, const SailorData& data) {
  std::vector<StageNumbers> stages(static_cast<std::size_t>(plan.depth()));
  for (const SailorPipeline& pipeline : plan.pipelines)
    for (std::size_t s = 0; s < stages.size(); ++s)
      for (const SailorReplica& gpus : pipeline.replicas[s])
        stages[s].take_larger(numbers_of({gpus, pipeline.layers[s]}, plan, data));
  return stages;
}

/// What the slowest NIC delivers of messages between stages or, where there are none, of the parts
/// of gradients that go round.
double bytes_per_s(const SailorPlan& plan, const SailorData& data, double message_bytes,
                   const std::vector<StageNumbers>& stages) {
  const double bytes = plan.depth() > 1
                           ? message_bytes
                           : data.model.bytes.reduced * stages[0].parameters / plan.width();
  double slowest = std::numeric_limits<double>::infinity();
  for (const SailorPipeline& pipeline : plan.pipelines)
    for (const auto& replicas : pipeline.replicas)
      for (const SailorReplica& gpus : replicas)
        slowest = std::min(slowest, data.network.bytes_per_s(gpus.gpu, gpus.tensor, bytes));
  return slowest;
}

std::string list_of(const std::vector<StageNumbers>& stages, double StageNumbers::*part,
                    double factor, const char* unit) {
  std::vector<std::string> values;
  for (const StageNumbers& stage : stages)
    values.push_back(std::string_view(unit) == "B"
                         ? fmt::format("{} B", std::llround(factor * stage.*part))
                         : fmt::format("{} {}", factor * stage.*part, unit));
  return fmt::format("[{}]", fmt::join(values, ", "));
}

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

std::string sailor_scenario(const SailorPlan& plan, const SailorData& data) {
  require_layers(plan, data);
  const std::vector<StageNumbers> stages = slowest_stages(plan, data);
  const double message = kExchange * data.model.layer_input_bytes(plan.microbatch_size);
  const auto& b = data.model.bytes;
  const auto gpus = plan.gpus();
  std::string text = fmt::format("name: {}\nmodel:\n", Json(plan.name).dump());
  const auto add = [&](const char* key, double StageNumbers::*part, double factor,
                       const char* unit) {
    text += fmt::format("  {}: {}\n", key, list_of(stages, part, factor, unit));
  };
  add("forward", &StageNumbers::forward_s, 1, "s");
  add("backward", &StageNumbers::backward_s, 1, "s");
  add("step", &StageNumbers::update_s, kUpdateShare, "s");
  text += fmt::format("  output: {} B\n", std::llround(message));
  add("parameters", &StageNumbers::parameters, b.weights, "B");
  add("gradients", &StageNumbers::parameters, b.gradients, "B");
  add("optimizer", &StageNumbers::parameters, b.optimizer, "B");
  add("activation", &StageNumbers::activation, 1, "B");
  add("workspace", &StageNumbers::workspace, 1, "B");
  text += fmt::format(
      "cluster:\n  devices: {}\n  device: {{name: {}}}\n  link: {{bandwidth: {} B/s}}\n"
      "stack: deepspeed-profiled\nschedule: 1f1b\ntransfers: coupled\n"
      "pipeline:\n  stages: {}\n  width: {}\n  microbatch_size: {}\n  microbatches: {}\n"
      "  reduction: {{algorithm: formula}}\n",
      plan.depth() * plan.width(), Json(fmt::format("{}", fmt::join(gpus, " and "))).dump(),
      bytes_per_s(plan, data, message, stages), plan.depth(), plan.width(), plan.microbatch_size,
      plan.microbatches());
  return text;
}

}  // namespace penstock
