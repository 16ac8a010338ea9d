// SPDX-License-Identifier: Apache-2.0
#include "models/stage_costs.hpp"

#include "models/cost/exchanges.hpp"
#include "models/cost/kept.hpp"
#include "models/cost/seconds.hpp"
#include "models/cost/sharding.hpp"
#include "models/matrix_optimizers.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

namespace penstock {
namespace {

std::int64_t whole(double bytes) { return std::llround(bytes); }

/// The kinds of layers that a model's stages have, the usual one first. The model must outlive it.
class LayerKinds {
 public:
  struct Kind {
    LayerKind kind;
    bool wide;  ///< products all in the model's type (Megatron-LM's --first-last-layers-bf16)
    const TransformerSpec& model;
    Layer layer;
  };

  LayerKinds(const TransformerSpec& model, const ExpertParallel& expert)
      : model_(model), in_own_type_(model.in_own_type()) {
    const ProductTypes& types = model.product_types;
    for (const bool wide : {false, true}) {
      if (wide && types.first_wide + types.last_wide == 0) continue;
      const auto add = [&](LayerKind kind) {
        const TransformerSpec& of = wide ? in_own_type_ : model;
        kinds_.push_back({kind, wide, of, Layer(of, kind, expert)});
      };
      add(model.usual_kind());
      if (model.experts && model.expert_layers(0, model.num_layers) < model.num_layers)
        add(LayerKind::dense);
      if (model.mtp_layers > 0 && !wide) add(LayerKind::prediction);
    }
  }
  LayerKinds(const LayerKinds&) = delete;  // kinds refer to it
  LayerKinds& operator=(const LayerKinds&) = delete;

  const TransformerSpec& model() const { return model_; }
  const std::vector<Kind>& all() const { return kinds_; }

  /// Returns how many a stage has of each kind.
  std::vector<LayerCount> counts(const LayerSpan& stage, const Recomputation& recompute) const {
    const int further = stage.last ? model_.mtp_layers : 0;
    const int in_full = recompute.recomputed(stage.layers + further);
    std::vector<LayerCount> counts(kinds_.size());
    if (kinds_.size() == 1) {
      counts[0] = {stage.layers, in_full};
      return counts;
    }
    const ProductTypes& types = model_.product_types;
    for (int i = 0; i < stage.layers + further; ++i) {
      const bool predicts = i >= stage.layers;
      const bool wide = !predicts && ((stage.first && i < types.first_wide) ||
                                      (stage.last && stage.layers - i <= types.last_wide));
      LayerCount& count = counts[place_of(
          predicts ? LayerKind::prediction : model_.kind_of(stage.begin + i), wide)];
      ++count.layers;
      count.in_full += i < in_full ? 1 : 0;
    }
    return counts;
  }

 private:
  std::size_t place_of(LayerKind kind, bool wide) const {
    for (std::size_t i = 0; i < kinds_.size(); ++i)
      if (kinds_[i].kind == kind && kinds_[i].wide == wide) return i;
    return 0;
  }

  const TransformerSpec& model_;
  TransformerSpec in_own_type_;
  std::vector<Kind> kinds_;
};

/// Parameters per GPU of what stages are made of.
class PartParameters {
 public:
  PartParameters(const LayerKinds& kinds, const TensorParallel& tensor)
      : embedding_(kinds.model().embedding_parameters(tensor)),
        head_(kinds.model().head_parameters(tensor)),
        copied_(kinds.model().copied_parameters(tensor)) {
    for (const LayerKinds::Kind& kind : kinds.all()) {
      layers_.push_back(kind.layer.parameters(tensor));
      experts_.push_back(kind.layer.expert_parameters());
      narrow_.push_back(kind.layer.narrow(tensor));
    }
  }

  std::int64_t of_kind(std::size_t kind) const { return layers_[kind]; }
  std::int64_t largest_unit(const LayerSpan& stage, const std::vector<LayerCount>& counts) const {
    std::int64_t largest = std::max(stage.first ? embedding_ : 0, stage.last ? head_ : 0);
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (counts[i].layers > 0) largest = std::max(largest, layers_[i]);
    return largest;
  }
  std::int64_t of_stage(const LayerSpan& stage, const std::vector<LayerCount>& counts) const {
    return sum(layers_, counts) + (stage.first ? embedding_ : 0) + (stage.last ? head_ : 0) -
           (stage.first && stage.last ? copied_ : 0);
  }
  std::int64_t of_experts(const std::vector<LayerCount>& counts) const {
    return sum(experts_, counts);
  }
  /// Returns the sum over the layers of what `of` returns of their narrow parameters.
  template <class Of>
  double narrow(const std::vector<LayerCount>& counts, const Of& of) const {
    double total = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) total += counts[i].layers * of(narrow_[i]);
    return total;
  }

 private:
  static std::int64_t sum(const std::vector<std::int64_t>& of,
                          const std::vector<LayerCount>& counts) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) total += counts[i].layers * of[i];
    return total;
  }

  std::int64_t embedding_, head_, copied_;
  std::vector<std::int64_t> layers_, experts_;  // of a layer of each kind
  std::vector<LayerNarrow> narrow_;
};

/// What stages of one job cost on one device, whatever layers they have.
class StageModel {
 public:
  StageModel(const LayerKinds& kinds, const DeviceSpec& device, const StageCostOptions& options,
             std::size_t stage)
      : kinds_(kinds),
        sharding_(options.sharding),
        shards_(options.sharding.optimizer_shards()),
        parameters_(kinds, options.tensor) {
    for (const LayerKinds::Kind& kind : kinds.all())
      jobs_.emplace_back(kind.model, kind.layer, device, options, stage);
    for (const StageJob& job : jobs_) seconds_.emplace_back(job);
  }
  StageModel(const StageModel&) = delete;  // seconds_ refers to jobs_
  StageModel& operator=(const StageModel&) = delete;

  StageCosts costs(const LayerSpan& stage) const {
    const std::vector<LayerCount> counts = counts_of(stage);
    StageCosts c;
    const StageFlops flops = flops_of(stage, counts);
    c[OpKind::forward].flops = flops.forward;
    c[OpKind::backward].flops = flops.backward;
    c[OpKind::backward_input].flops = flops.backward - flops.weight;
    c[OpKind::backward_weight].flops = flops.weight;
    c[OpKind::backward].again_flops = c[OpKind::backward_input].again_flops = flops.again;
    set_parameters(c, stage, counts);
    const StageSeconds seconds = seconds_of(stage, counts);
    c[OpKind::forward].seconds = seconds.forward;
    c[OpKind::backward].seconds = seconds.backward;
    c[OpKind::backward_input].seconds = seconds.input;
    c[OpKind::backward_weight].seconds = seconds.weight;
    c.step_s = optimizer_s(c, stage, counts);
    const double output = job().layer.input_bytes(job().b, job().tensor);
    c.output_bytes = whole(job().gathers_messages() ? output / job().tensor.degree : output);
    StageKinds of_stage;
    int layers = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      of_stage.push_back({jobs_[i], counts[i]});
      layers += counts[i].layers;
    }
    set_kept_bytes(of_stage, stage.first, stage.last, c);
    set_recipes(of_stage, stage.first, stage.last, mean_products(counts, layers), c);
    set_sharding(job(), sharding_,
                 {gathered_parameters(stage, counts), parameters_.largest_unit(stage, counts),
                  std::max(1, layers + (stage.first ? 1 : 0) + (stage.last ? 1 : 0))},
                 c);
    return c;
  }

  /// Returns the seconds of F + B alone, as `costs` has them.
  double compute_s(const LayerSpan& stage) const {
    const StageSeconds seconds = seconds_of(stage, counts_of(stage));
    return seconds.forward + seconds.backward;
  }

  /// Returns the seconds of B of a layer of the usual kind, and of one without experts.
  double layer_backward_s(LayerKind kind) const {
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      if (kinds_.all()[i].kind == kind)
        return seconds_[i]
            .of({1, job().recompute.recomputed(1)}, false, false,
                weight_bytes(parameters_.of_kind(i)))
            .backward;
    return 0;
  }

 private:
  /// Returns the job of the usual kind of layers.
  const StageJob& job() const { return jobs_.front(); }
  std::vector<LayerCount> counts_of(const LayerSpan& stage) const {
    return kinds_.counts(stage, job().recompute);
  }

  StageFlops flops_of(const LayerSpan& stage, const std::vector<LayerCount>& counts) const {
    StageFlops sum = stage_flops(job(), counts[0], stage.last);
    for (std::size_t i = 1; i < jobs_.size(); ++i) {
      const StageFlops more = stage_flops(jobs_[i], counts[i], false);
      sum.forward += more.forward;
      sum.backward += more.backward;
      sum.again += more.again;
      sum.weight += more.weight;
    }
    return sum;
  }

  StageSeconds seconds_of(const LayerSpan& stage, const std::vector<LayerCount>& counts) const {
    std::int64_t others = 0;  // parameters of layers of other kinds
    for (std::size_t i = 1; i < jobs_.size(); ++i)
      others += counts[i].layers * parameters_.of_kind(i);
    StageSeconds sum = seconds_[0].of(counts[0], stage.first, stage.last,
                                      weight_bytes(parameters_.of_stage(stage, counts) - others));
    for (std::size_t i = 1; i < jobs_.size(); ++i) {
      if (counts[i].layers == 0) continue;
      const StageSeconds more = seconds_[i].of(
          counts[i], false, false, weight_bytes(counts[i].layers * parameters_.of_kind(i)));
      sum.forward += more.forward;
      sum.backward += more.backward;
      sum.input += more.input;
      sum.weight += more.weight;
    }
    return sum;
  }

  /// Returns what a layer's products take forward, the mean over a stage's layers.
  LayerProducts mean_products(const std::vector<LayerCount>& counts, int layers) const {
    if (layers == counts[0].layers)
      return {seconds_[0].attention_s(), seconds_[0].products_s(), seconds_[0].experts_s()};
    LayerProducts mean;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      mean.attention_s += counts[i].layers * seconds_[i].attention_s() / layers;
      mean.products_s += counts[i].layers * seconds_[i].products_s() / layers;
      mean.experts_s += counts[i].layers * seconds_[i].experts_s() / layers;
    }
    return mean;
  }

  std::int64_t weight_bytes(std::int64_t parameters) const {
    return whole(static_cast<double>(parameters) * job().model.bytes.weights);
  }

  void set_parameters(StageCosts& c, const LayerSpan& stage,
                      const std::vector<LayerCount>& counts) const {
    const ParameterBytes& bytes = job().model.bytes;
    const std::int64_t parameters = parameters_.of_stage(stage, counts);
    const auto n = static_cast<double>(parameters);
    // Narrow weights are held by rows and by columns.
    const bool alone = job().model.product_types.narrow_parameters;
    const auto instead = [&](const LayerNarrow& of) {
      return alone ? bytes.weights * of.parameters : 0;
    };
    // Further experts have a place beside a GPU's own; the states of all are with their owners.
    const std::int64_t copies = job().expert.copies;
    const std::int64_t copied = copies > 0 ? parameters_.of_experts(counts) * copies *
                                                 job().expert.degree / job().model.experts->count
                                           : 0;
    c.weight_bytes = weight_bytes(parameters + copied) +
                     whole(parameters_.narrow(counts, [&](const LayerNarrow& of) {
                       return 2 * of.bytes - instead(of);
                     }));
    c.gradient_bytes = whole((n + static_cast<double>(copied)) * bytes.gradients);
    c.optimizer_bytes = whole(shard_of(n * bytes.optimizer, stage, counts));
    c.version_bytes = whole(n * bytes.version);
    const double gathered =
        n * bytes.weights +
        (alone ? parameters_.narrow(counts,
                                    [&](const LayerNarrow& of) { return of.bytes - instead(of); })
               : 0);
    const bool both = shards_ > 1 && sharding_.gathers_in_reduction();
    c.reduced_bytes = whole(both ? (n * bytes.reduced + gathered) / 2 : n * bytes.reduced);
    const auto of_experts = static_cast<double>(parameters_.of_experts(counts));
    if (of_experts > 0)
      c.expert_reduced_bytes = whole(static_cast<double>(c.reduced_bytes) * of_experts / n);
  }

  /// Returns the parameters that a stage gathers: those of experts, of which fewer GPUs have the
  /// same, as so many of the others' as take as long.
  std::int64_t gathered_parameters(const LayerSpan& stage,
                                   const std::vector<LayerCount>& counts) const {
    const std::int64_t all = parameters_.of_stage(stage, counts);
    const std::int64_t of_experts = parameters_.of_experts(counts);
    if (of_experts == 0 || shards_ == 1) return all;
    const auto moved = [](double shards) { return (shards - 1) / shards; };  // by each GPU
    const double part = moved(sharding_.expert_shards()) / moved(shards_);
    return all - whole((1 - part) * static_cast<double>(of_experts));
  }

  /// Returns what one of those has who divide what a stage has `all` of, alike of each parameter.
  double shard_of(double all, const LayerSpan& stage, const std::vector<LayerCount>& counts) const {
    const auto of_experts = static_cast<double>(parameters_.of_experts(counts));
    if (of_experts == 0) return all / shards_;
    const auto n = static_cast<double>(parameters_.of_stage(stage, counts));
    return all * ((n - of_experts) / shards_ + of_experts / sharding_.expert_shards()) / n;
  }

  double optimizer_s(const StageCosts& c, const LayerSpan& stage,
                     const std::vector<LayerCount>& counts) const {
    const StackSpec& stack = job().stack;
    const auto parameters = static_cast<double>(parameters_.of_stage(stage, counts));
    // Narrow weights are made of wide ones, or their other copy is, once an update.
    const bool alone = job().model.product_types.narrow_parameters;
    const double cast = parameters_.narrow(counts, [&](const LayerNarrow& of) {
      return alone ? 2 * of.bytes : job().model.bytes.weights * of.parameters + 2 * of.bytes;
    });
    // Adam reads and writes its state, reads the gradient and writes the weights.
    return stack.iteration_overhead_s + seconds_[0].streaming_s(cast) +
           seconds_[0].streaming_s(
               stack.optimizer_traffic > 0
                   ? shard_of(stack.optimizer_traffic * parameters, stage, counts)
                   : shard_of(static_cast<double>(c.gradient_bytes + c.weight_bytes), stage,
                              counts) +
                         2 * static_cast<double>(c.optimizer_bytes));
  }

  const LayerKinds& kinds_;
  std::deque<StageJob> jobs_;  // of each kind
  std::deque<LayerSeconds> seconds_;
  Sharding sharding_;
  int shards_;
  PartParameters parameters_;
};

void set_matrix_optimizer(const LayerKinds& kinds, const LayerSpan& stage, std::size_t index,
                          const DeviceSpec& device, const StageCostOptions& options,
                          StageCosts& costs) {
  if (!OptimizerSpec{options.optimizer}.of_matrices()) return;
  const std::vector<LayerCount> counts = kinds.counts(stage, {});
  std::vector<LayerMatrix> matrices;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i].layers == 0) continue;
    const LayerKinds::Kind& kind = kinds.all()[i];
    const auto of_kind =
        layer_matrices(kind.model, kind.layer, options.tensor, options.expert, counts[i].layers);
    matrices.insert(matrices.end(), of_kind.begin(), of_kind.end());
  }
  const MatrixStep step(matrices, device, options.tensor, options.sharding,
                        options.matrix_exchange.at(index));
  if (options.optimizer == OptimizerSpec::Kind::muon) use_muon(costs, kinds.model(), step);
  if (options.optimizer == OptimizerSpec::Kind::basis_rotation)
    use_basis_rotation(costs, kinds.model(), step);
}

}  // namespace

std::vector<LayerSpan> spans_of_stages(const std::vector<int>& layers) {
  std::vector<LayerSpan> stages;
  int begin = 0;
  for (const int count : layers) {
    stages.push_back({begin, count, stages.empty(), stages.size() + 1 == layers.size()});
    begin += count;
  }
  return stages;
}

std::vector<StageCosts> stage_costs(const TransformerSpec& model, const DeviceSpec& device,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options) {
  return stage_costs(model, std::vector<DeviceSpec>(layers.size(), device), layers, options);
}

StageCosts stage_costs_of(const TransformerSpec& model, const DeviceSpec& device,
                          const std::vector<int>& layers, std::size_t stage,
                          const StageCostOptions& options) {
  const LayerKinds kinds(model, options.expert);
  return StageModel(kinds, device, options, stage).costs(spans_of_stages(layers)[stage]);
}

struct StageCoster::Parts {
  Parts(const TransformerSpec& m, const DeviceSpec& d, const StageCostOptions& o)
      : model(m), device(d), options(o) {}

  TransformerSpec model;
  DeviceSpec device;
  StageCostOptions options;
  LayerKinds kinds{model, options.expert};
  StageModel stages{kinds, device, options, 0};
};

StageCoster::StageCoster(const TransformerSpec& model, const DeviceSpec& device,
                         const StageCostOptions& options)
    : parts_(std::make_unique<const Parts>(model, device, options)) {}

StageCoster::~StageCoster() = default;

StageCosts StageCoster::costs(const LayerSpan& stage) const {
  StageCosts costs = parts_->stages.costs(stage);
  set_matrix_optimizer(parts_->kinds, stage, 0, parts_->device, parts_->options, costs);
  return costs;
}

std::vector<StageCosts> stage_costs(const TransformerSpec& model,
                                    const std::vector<DeviceSpec>& devices,
                                    const std::vector<int>& layers,
                                    const StageCostOptions& options) {
  const LayerKinds kinds(model, options.expert);
  std::vector<StageCosts> costs;
  for (const LayerSpan& stage : spans_of_stages(layers)) {
    const std::size_t i = costs.size();
    costs.push_back(StageModel(kinds, devices[i], options, i).costs(stage));
    set_matrix_optimizer(kinds, stage, i, devices[i], options, costs.back());
  }
  return costs;
}

std::int64_t stage_parameters(const TransformerSpec& model, const LayerSpan& layers,
                              const TensorParallel& tensor, const ExpertParallel& expert) {
  const LayerKinds kinds(model, expert);
  return PartParameters(kinds, tensor).of_stage(layers, kinds.counts(layers, {}));
}

std::int64_t stage_expert_parameters(const TransformerSpec& model, const LayerSpan& layers,
                                     const ExpertParallel& expert) {
  const LayerKinds kinds(model, expert);
  return PartParameters(kinds, {}).of_experts(kinds.counts(layers, {}));
}

std::vector<LayerGradient> stage_gradients(const TransformerSpec& model, const LayerSpan& layers,
                                           const PartBackward& times, const TensorParallel& tensor,
                                           const ExpertParallel& expert) {
  const auto gradient = [&](std::int64_t parameters, double backward_s) {
    return LayerGradient{static_cast<double>(parameters) * model.bytes.reduced, backward_s};
  };
  std::vector<LayerGradient> parts;
  std::int64_t body = layers.first ? model.embedding_parameters(tensor) : 0;
  if (layers.first) parts.push_back(gradient(body, times.embedding_s));
  std::int64_t of_kind[2] = {};  // of a layer without experts, with them
  for (const bool experts : {false, true})
    of_kind[experts] =
        Layer(model, experts ? model.usual_kind() : LayerKind::dense, expert).parameters(tensor);
  for (int i = 0; i < layers.layers; ++i) {
    const bool experts = model.has_experts(layers.begin + i);
    parts.push_back(
        gradient(of_kind[experts], (i < times.recomputed ? times.recomputed_s : times.layer_s) +
                                       (model.experts && !experts ? times.dense_s : 0)));
    body += of_kind[experts];
  }
  if (layers.last)
    parts.push_back(gradient(stage_parameters(model, layers, tensor, expert) - body, times.head_s));
  return parts;
}

std::vector<std::vector<LayerGradient>> stage_gradients(const TransformerSpec& model,
                                                        const std::vector<DeviceSpec>& devices,
                                                        const std::vector<int>& layers,
                                                        const StageCostOptions& options) {
  StageCostOptions kept = options;
  kept.recompute = Recompute::none;
  const LayerKinds kinds(model, options.expert);
  std::vector<std::vector<LayerGradient>> stages;
  for (const LayerSpan& at : spans_of_stages(layers)) {
    const std::size_t i = stages.size();
    const StageModel stage(kinds, devices[i], options, i);
    const auto layer_s = [](const StageModel& of, LayerKind kind) {
      return of.layer_backward_s(kind);
    };
    PartBackward times{
        .layer_s = layer_s(stage, model.usual_kind()),
        .head_s = stage.costs({.begin = at.end(), .last = true})[OpKind::backward].seconds};
    if (model.experts) times.dense_s = layer_s(stage, LayerKind::dense) - times.layer_s;
    const int again = options.recompute.at(i).recomputed(layers[i]);
    if (again > 0 && again < layers[i]) {
      times.recomputed = again;
      times.recomputed_s = times.layer_s;
      times.layer_s = layer_s(StageModel(kinds, devices[i], kept, i), model.usual_kind());
    }
    stages.push_back(stage_gradients(model, at, times, options.tensor, options.expert));
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
  const LayerKinds kinds(model, options.expert);
  std::deque<StageModel> models;
  for (std::size_t i = 0; i < devices.size(); ++i)
    models.emplace_back(kinds, devices[i], options, i);
  const int stages = static_cast<int>(devices.size());
  const int dense = model.experts ? model.experts->first_dense : 0;
  const auto time = [&](int layers, int stage) {
    const int width = replicas.empty() ? 1 : replicas[static_cast<std::size_t>(stage)];
    const LayerSpan of{stage == 0 ? 0 : dense, layers, stage == 0, stage + 1 == stages};
    return models[static_cast<std::size_t>(stage)].compute_s(of) / width;
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
