// SPDX-License-Identifier: Apache-2.0
#include "models/stage_costs.hpp"

#include "models/cost/exchanges.hpp"
#include "models/cost/kept.hpp"
#include "models/cost/seconds.hpp"
#include "models/cost/sharding.hpp"
#include "models/muon.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>

namespace penstock {
namespace {

/// Parameters per GPU of what stages are made of.
struct PartParameters {
  std::int64_t layer, embedding, head, tied;
  LayerNarrow narrow;  ///< of a layer's, in narrow types

  PartParameters(const TransformerSpec& model, const Layer& of, const TensorParallel& tensor)
      : layer(of.parameters(tensor)),
        embedding(model.embedding_parameters(tensor)),
        head(model.head_parameters(tensor)),
        tied(model.tie_embeddings ? model.vocab_rows(tensor) * model.hidden_size : 0),
        narrow(of.narrow(tensor)) {}

  std::int64_t largest_unit(int layers, bool first, bool last) const {
    return std::max({layers > 0 ? layer : 0, first ? embedding : 0, last ? head : 0});
  }
  std::int64_t of_layers(int layers, bool first, bool last) const {
    return layers * layer + (first ? embedding : 0) + (last ? head : 0) -
           (first && last ? tied : 0);
  }
};

std::int64_t whole(double bytes) { return std::llround(bytes); }

/// What stages of one job cost on one device, whatever layers they have.
class StageModel {
 public:
  StageModel(const TransformerSpec& model, const Layer& layer, const DeviceSpec& device,
             const StageCostOptions& options, std::size_t stage)
      : job_(model, layer, device, options, stage),
        sharding_(options.sharding),
        shards_(options.sharding.optimizer_shards()),
        parameters_(model, layer, options.tensor),
        seconds_(job_) {
    const ProductTypes& precision = model.product_types;
    if (precision.first_wide + precision.last_wide > 0)
      wide_ = std::make_unique<WideLayers>(model, device, options, stage);
  }
  StageModel(const StageModel&) = delete;  // seconds_ refers to job_
  StageModel& operator=(const StageModel&) = delete;

  StageCosts costs(int layers, bool first, bool last) const {
    StageCosts c;
    const StageFlops flops = stage_flops(job_, layers, last);
    c[OpKind::forward].flops = flops.forward;
    c[OpKind::backward].flops = flops.backward;
    c[OpKind::backward_input].flops = flops.backward - flops.weight;
    c[OpKind::backward_weight].flops = flops.weight;
    c[OpKind::backward].again_flops = c[OpKind::backward_input].again_flops = flops.again;
    set_parameters(c, layers, first, last);
    const std::int64_t read = weight_bytes(parameters_.of_layers(layers, first, last));
    const StageSeconds seconds = seconds_of(layers, first, last, read);
    c[OpKind::forward].seconds = seconds.forward;
    c[OpKind::backward].seconds = seconds.backward;
    c[OpKind::backward_input].seconds = seconds.input;
    c[OpKind::backward_weight].seconds = seconds.weight;
    c.step_s = optimizer_s(c, layers, first, last);
    const double output = job_.layer.input_bytes(job_.b, job_.tensor);
    c.output_bytes = whole(job_.gathers_messages() ? output / job_.tensor.degree : output);
    set_kept_bytes(job_, layers, first, last, c);
    c.activation_bytes += wide_layers(layers, first, last) * wide_activation_bytes();
    set_recipes(job_, layers, first, last, {seconds_.attention_s(), seconds_.products_s()}, c);
    set_sharding(
        job_, sharding_,
        {parameters_.of_layers(layers, first, last), parameters_.largest_unit(layers, first, last),
         std::max(1, layers + (first ? 1 : 0) + (last ? 1 : 0))},
        c);
    return c;
  }

  /// F + B alone, as `costs` has them.
  double compute_s(int layers, bool first, bool last) const {
    const std::int64_t weights = weight_bytes(parameters_.of_layers(layers, first, last));
    const StageSeconds seconds = seconds_of(layers, first, last, weights);
    return seconds.forward + seconds.backward;
  }

 private:
  /// Layers whose products are all in the model's type (Megatron-LM's --first-last-layers-bf16).
  struct WideLayers {
    TransformerSpec model;
    Layer layer;
    std::unique_ptr<StageModel> stage;

    WideLayers(const TransformerSpec& narrow, const DeviceSpec& device,
               const StageCostOptions& options, std::size_t at)
        : model(narrow.in_own_type()),
          layer(model),
          stage(std::make_unique<StageModel>(model, layer, device, options, at)) {}
  };

  int wide_layers(int layers, bool first, bool last) const {
    const ProductTypes& precision = job_.model.product_types;
    return std::min(layers, (first ? precision.first_wide : 0) + (last ? precision.last_wide : 0));
  }

  StageSeconds seconds_of(int layers, bool first, bool last, std::int64_t weight_bytes) const {
    const int wide = wide_layers(layers, first, last);
    if (wide == 0) return seconds_.of(layers, first, last, weight_bytes);
    StageSeconds sum = seconds_.of(layers - wide, first, last, 0);
    const StageSeconds more = wide_->stage->seconds_.of(wide, false, false, weight_bytes);
    sum.forward += more.forward;
    sum.backward += more.backward;
    sum.input += more.input;
    sum.weight += more.weight;
    return sum;
  }

  /// Returns what a wide layer keeps more than a narrow one.
  std::int64_t wide_activation_bytes() const {
    if (!wide_ || job_.recompute.in_full()) return 0;
    const LayerParts again = job_.selective() ? job_.recompute.parts : LayerParts();
    return whole(layer_bytes(wide_->stage->job_, again) - layer_bytes(job_, again));
  }

  std::int64_t weight_bytes(std::int64_t parameters) const {
    return whole(static_cast<double>(parameters) * job_.model.bytes.weights);
  }

  void set_parameters(StageCosts& c, int layers, bool first, bool last) const {
    const ParameterBytes& bytes = job_.model.bytes;
    const std::int64_t parameters = parameters_.of_layers(layers, first, last);
    const auto n = static_cast<double>(parameters);
    const LayerNarrow& narrow = parameters_.narrow;
    const int narrow_layers = layers - wide_layers(layers, first, last);
    // Narrow weights are held by rows and by columns.
    const bool alone = job_.model.product_types.narrow_parameters;
    const double instead = alone ? bytes.weights * narrow.parameters : 0;
    c.weight_bytes = weight_bytes(parameters) + whole(narrow_layers * (2 * narrow.bytes - instead));
    c.gradient_bytes = whole(n * bytes.gradients);
    c.optimizer_bytes = whole(n * bytes.optimizer / shards_);
    c.version_bytes = whole(n * bytes.version);
    const double gathered =
        n * bytes.weights + (alone ? narrow_layers * (narrow.bytes - instead) : 0);
    const bool both = shards_ > 1 && sharding_.gathers_in_reduction();
    c.reduced_bytes = whole(both ? (n * bytes.reduced + gathered) / 2 : n * bytes.reduced);
  }

  double optimizer_s(const StageCosts& c, int layers, bool first, bool last) const {
    const StackSpec& stack = job_.stack;
    const LayerNarrow& narrow = parameters_.narrow;
    const int narrow_layers = layers - wide_layers(layers, first, last);
    const auto parameters = static_cast<double>(parameters_.of_layers(layers, first, last));
    // Narrow weights are made of wide ones, or their other copy is, once an update.
    const bool alone = job_.model.product_types.narrow_parameters;
    const double cast =
        alone ? 2 * narrow.bytes : job_.model.bytes.weights * narrow.parameters + 2 * narrow.bytes;
    // Adam reads and writes its state, reads the gradient and writes the weights.
    return stack.iteration_overhead_s + seconds_.streaming_s(narrow_layers * cast) +
           seconds_.streaming_s(stack.optimizer_traffic > 0
                                    ? stack.optimizer_traffic * parameters / shards_
                                    : static_cast<double>(c.gradient_bytes + c.weight_bytes) /
                                              shards_ +
                                          2 * static_cast<double>(c.optimizer_bytes));
  }

  StageJob job_;
  Sharding sharding_;
  int shards_;
  PartParameters parameters_;
  LayerSeconds seconds_;
  std::unique_ptr<WideLayers> wide_;
};

}  // namespace

std::vector<StageCosts> stage_costs(const TransformerSpec& model, const DeviceSpec& device,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options) {
  return stage_costs(model, std::vector<DeviceSpec>(layers.size(), device), layers, options);
}

std::vector<StageCosts> stage_costs(const TransformerSpec& model,
                                    const std::vector<DeviceSpec>& devices,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options) {
  const Layer layer(model);
  std::vector<StageCosts> costs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const StageModel stage(model, layer, devices[i], options, i);
    costs.push_back(stage.costs(layers[i], i == 0, i + 1 == layers.size()));
    if (options.muon)
      use_muon(costs.back(), model, devices[i], layers[i], options.tensor,
               options.sharding.optimizer_shards());
  }
  return costs;
}

std::int64_t stage_parameters(const TransformerSpec& model, int layers, bool first, bool last,
                              const TensorParallel& tensor) {
  return PartParameters(model, Layer(model), tensor).of_layers(layers, first, last);
}

std::vector<LayerGradient> stage_gradients(const TransformerSpec& model, int layers, bool first,
                                           bool last, const PartBackward& times,
                                           const TensorParallel& tensor) {
  const auto gradient = [&](std::int64_t parameters, double backward_s) {
    return LayerGradient{static_cast<double>(parameters) * model.bytes.reduced, backward_s};
  };
  std::vector<LayerGradient> parts;
  if (first) parts.push_back(gradient(model.embedding_parameters(tensor), times.embedding_s));
  for (int i = 0; i < layers; ++i)
    parts.push_back(gradient(model.layer_parameters(tensor),
                             i < times.recomputed ? times.recomputed_s : times.layer_s));
  const std::int64_t body =
      layers * model.layer_parameters(tensor) + (first ? model.embedding_parameters(tensor) : 0);
  if (last)
    parts.push_back(
        gradient(stage_parameters(model, layers, first, last, tensor) - body, times.head_s));
  return parts;
}

std::vector<std::vector<LayerGradient>> stage_gradients(const TransformerSpec& model,
                                                        const std::vector<DeviceSpec>& devices,
                                                        const std::vector<int>& layers,
                                                        const StageCostOptions& options) {
  StageCostOptions kept = options;
  kept.recompute = Recompute::none;
  const Layer layer(model);
  std::vector<std::vector<LayerGradient>> stages;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const StageModel stage(model, layer, devices[i], options, i);
    PartBackward times{.layer_s = stage.costs(1, false, false)[OpKind::backward].seconds,
                       .head_s = stage.costs(0, false, true)[OpKind::backward].seconds};
    const int again = options.recompute.at(i).recomputed(layers[i]);
    if (again > 0 && again < layers[i]) {
      times.recomputed = again;
      times.recomputed_s = times.layer_s;
      times.layer_s = StageModel(model, layer, devices[i], kept, i)
                          .costs(1, false, false)[OpKind::backward]
                          .seconds;
    }
    stages.push_back(
        stage_gradients(model, layers[i], i == 0, i + 1 == layers.size(), times, options.tensor));
  }
  return stages;
}

std::vector<int> even_split(int layers, int stages) {
  if (layers % stages != 0) return {};
  return std::vector<int>(static_cast<std::size_t>(stages), layers / stages);
}

std::vector<int> balanced_split(const TransformerSpec& model, const DeviceSpec& device, int stages,
                                const StageCostOptions& options) {
  return balanced_split(model, std::vector<DeviceSpec>(static_cast<std::size_t>(stages), device),
                        options);
}

std::vector<int> balanced_split(const TransformerSpec& model,
                                const std::vector<DeviceSpec>& devices,
                                const StageCostOptions& options, const std::vector<int>& replicas,
                                const std::vector<std::uint32_t>& positions) {
  const Layer layer(model);
  std::deque<StageModel> models;
  for (std::size_t i = 0; i < devices.size(); ++i)
    models.emplace_back(model, layer, devices[i], options, i);
  const int stages = static_cast<int>(devices.size());
  const auto time = [&](int layers, int stage) {
    const int width = replicas.empty() ? 1 : replicas[static_cast<std::size_t>(stage)];
    return models[static_cast<std::size_t>(stage)].compute_s(layers, stage == 0,
                                                             stage + 1 == stages) /
           width;
  };
  return balanced_split(model.num_layers, stages, time, positions);
}

std::vector<int> balanced_split(int layers, int stages, const std::function<double(int, int)>& time,
                                std::vector<std::uint32_t> positions) {
  std::vector<int> split(static_cast<std::size_t>(stages), 0);
  if (positions.empty()) {
    positions.resize(split.size());
    std::iota(positions.begin(), positions.end(), 0U);
  }
  // Of each stage, and what one layer more would add.
  std::vector<double> now(split.size()), more(split.size());
  std::vector<double> device_s(split.size(), 0.0);
  const auto look_ahead = [&](std::size_t i) {
    more[i] = time(split[i] + 1, static_cast<int>(i)) - now[i];
  };
  for (std::size_t i = 0; i < split.size(); ++i) {
    now[i] = time(0, static_cast<int>(i));
    device_s[positions[i]] += now[i];
    look_ahead(i);
  }
  // A stage's layers are alike, so giving each further one to the device that stays fastest is
  // optimal; of those as fast, to the slowest: the faster ones stay as they are. Within a device,
  // to the chunk with the least to do.
  constexpr double kSame = 1e-12;
  const auto is_better_device = [&](std::size_t a, std::size_t b) {
    const double before_a = device_s[positions[a]], before_b = device_s[positions[b]];
    const double with_a = before_a + more[a], with_b = before_b + more[b];
    if (std::abs(with_a - with_b) > kSame * with_b) return with_a < with_b;
    return before_a > before_b * (1 + kSame);
  };
  constexpr std::size_t kNone = SIZE_MAX;
  std::vector<std::size_t> shortest(split.size());  // chunk of each device
  for (int given = 0; given < layers; ++given) {
    std::ranges::fill(shortest, kNone);
    for (std::size_t i = 0; i < split.size(); ++i) {
      std::size_t& chunk = shortest[positions[i]];
      if (chunk == kNone || now[i] < now[chunk] * (1 - kSame)) chunk = i;
    }
    std::size_t best = kNone;
    for (std::size_t i = 0; i < split.size(); ++i)
      if (shortest[positions[i]] == i && (best == kNone || is_better_device(i, best))) best = i;
    device_s[positions[best]] += more[best];
    now[best] += more[best];
    ++split[best];
    look_ahead(best);
  }
  return split;
}

}  // namespace penstock
