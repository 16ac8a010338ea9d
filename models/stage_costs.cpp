// SPDX-License-Identifier: Apache-2.0
#include "models/stage_costs.hpp"

#include "models/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

// Kernels the host launches for one layer: norms, matrix products, attention, bias and activation,
// dropout and residual; the backward about twice as many (Megatron-LM without fused attention).
constexpr double kForwardKernels = 20;
constexpr double kBackwardKernels = 40;

constexpr std::int64_t kTensorCoreMultiple = 8;  // elements of 16 bits, on every side of a product

/// What host and GPU take together; each hides nearly all of the shorter one. What the GPU
/// exchanges with others hides the host, too, and is counted by itself.
double joined(double gpu_s, double host_s, double exchange_s) {
  if (host_s <= 0) return gpu_s;
  gpu_s += exchange_s;
  const double longer = std::max(gpu_s, host_s), ratio = std::min(gpu_s, host_s) / longer;
  return longer * std::pow(1 + ratio * ratio * ratio * ratio, 0.25) - exchange_s;
}

struct OpTimes {
  double forward_s = 0, input_s = 0, weight_s = 0;
};

std::int64_t whole(double bytes) { return std::llround(bytes); }

/// Parameters per GPU of what stages are made of.
struct PartParameters {
  std::int64_t layer, embedding, head, tied;

  PartParameters(const TransformerSpec& model, const TensorParallel& tensor)
      : layer(model.layer_parameters(tensor)),
        embedding(model.embedding_parameters(tensor)),
        head(model.head_parameters(tensor)),
        tied(model.tie_embeddings ? model.vocab_rows(tensor) * model.hidden_size : 0) {}

  std::int64_t of_layers(int layers, bool first, bool last) const {
    return layers * layer + (first ? embedding : 0) + (last ? head : 0) -
           (first && last ? tied : 0);
  }
};

class StageModel {
 public:
  StageModel(const TransformerSpec& model, const DeviceSpec& device,
             const StageCostOptions& options, std::size_t stage)
      : model_(model),
        device_(device),
        b_(options.microbatch_size / options.context),
        context_(options.context),
        recompute_(options.recompute.at(stage)),
        tensor_(options.tensor),
        shards_(options.optimizer_shards),
        stack_(options.stack),
        tensor_link_(options.tensor_link),
        parameters_(model, tensor_),
        layer_flops_(model.layer_forward_flops(b_)),
        layer_weight_flops_(model.layer_weight_flops(b_)),
        layer_again_flops_(recompute_layer_flops()),
        head_flops_(model.head_forward_flops(b_, tensor_)),
        repeated_s_(repeated_s()) {
    const auto peak = device.peak_flops_per_s.find(model.compute_type);
    peak_ = peak == device.peak_flops_per_s.end() ? 1e12 : peak->second;
    rate_ = peak_ * device.efficiency_at(static_cast<double>(model.hidden_size) /
                                         std::sqrt(tensor_.degree));
    if (!stack_.takes_layers_apart()) return;
    layer_times_ = layer_times(false);
    again_times_ = layer_times(true);
    head_times_ = head_times();
  }

  StageCosts costs(int layers, bool first, bool last) const {
    StageCosts c;
    const Flops flops = flops_of(layers, last);
    c[OpKind::forward].flops = flops.forward;
    c[OpKind::backward].flops = flops.backward;
    c[OpKind::backward_input].flops = flops.backward - flops.weight;
    c[OpKind::backward_weight].flops = flops.weight;
    c[OpKind::backward].again_flops = c[OpKind::backward_input].again_flops = flops.again;
    add_parameters(c, layers, first, last);
    const Times times = times_of(flops, layers, first, last, c.weight_bytes);
    c[OpKind::forward].seconds = times.forward_s;
    c[OpKind::backward].seconds = times.backward_s;
    c[OpKind::backward_input].seconds = times.input_s;
    c[OpKind::backward_weight].seconds = times.weight_s;
    c.step_s = optimizer_s(c);
    add_activations(c, layers, last);
    if (tensor_.degree > 1 || context_ > 1) add_traffic(c, layers, first, last);
    return c;
  }

  /// F + B alone, as `costs` has them.
  double compute_s(int layers, bool first, bool last) const {
    const std::int64_t weights = weight_bytes(parameters_.of_layers(layers, first, last));
    const Times times = times_of(flops_of(layers, last), layers, first, last, weights);
    return times.forward_s + times.backward_s;
  }

 private:
  struct Flops {
    double forward, backward, again, weight;
  };
  struct Times {
    double forward_s, backward_s, input_s, weight_s;
  };

  std::int64_t weight_bytes(std::int64_t parameters) const {
    return whole(static_cast<double>(parameters) * model_.bytes.weights);
  }

  void add_parameters(StageCosts& c, int layers, bool first, bool last) const {
    const std::int64_t parameters = parameters_.of_layers(layers, first, last);
    const auto n = static_cast<double>(parameters);
    c.weight_bytes = weight_bytes(parameters);
    c.gradient_bytes = whole(n * model_.bytes.gradients);
    c.optimizer_bytes = whole(n * model_.bytes.optimizer / shards_);
    c.version_bytes = whole(n * model_.bytes.version);
    const double gathered = (model_.bytes.reduced + model_.bytes.weights) / 2;
    c.reduced_bytes = whole(n * (shards_ > 1 ? gathered : model_.bytes.reduced));
  }

  double recompute_layer_flops() const {
    switch (recompute_.granularity) {
      case Recompute::none: return 0;
      case Recompute::selective: return model_.layer_attention_flops(b_);
      case Recompute::full: return layer_flops_;
    }
    return 0;
  }

  bool selective() const { return recompute_.granularity == Recompute::selective; }
  /// Of a stage's layers, those of which something is computed again.
  int layers_again(int layers) const {
    return selective() ? layers : recompute_.recomputed(layers);
  }

  Flops flops_of(int layers, bool last) const {
    const double head = last ? head_flops_ : 0;
    const double forward = layers * layer_flops_ / tensor_.degree + head;
    return {forward, 2 * forward, layers_again(layers) * layer_again_flops_ / tensor_.degree,
            layers * layer_weight_flops_ / tensor_.degree + head};
  }

  bool gathers_messages() const { return tensor_.divided_messages && !tensor_.sequence; }

  double streaming_s(double bytes) const {
    if (device_.memory_bytes_per_s <= 0) return 0;
    return bytes / (device_.memory_bytes_per_s * device_.memory_efficiency);
  }

  /// What every GPU does of a layer although t share it, beyond the 1/t that the efficiency of
  /// whole layers contains.
  double repeated_s() const {
    if (tensor_.sequence) return 0;
    return (1 - 1.0 / tensor_.degree) * streaming_s(model_.layer_elementwise_bytes(b_));
  }

  /// Never below the launches of its kernels, nor below reading the weights once.
  double op_time(double flops, double kernels, double read_s, double repeated = 0) const {
    return std::max({flops / rate_ + repeated, kernels * device_.launch_s, read_s});
  }

  double per_token_s(double bytes) const {
    return streaming_s(bytes * b_ * static_cast<double>(model_.seq_length));
  }

  double matrix_rate() const {
    return peak_ *
           (device_.matrix_efficiency > 0 ? device_.matrix_efficiency : stack_.matrix_efficiency);
  }

  double head_rate() const {
    const bool aligned = model_.vocab_rows(tensor_) % kTensorCoreMultiple == 0;
    return aligned || stack_.misaligned_head <= 0 ? matrix_rate() : peak_ * stack_.misaligned_head;
  }

  double attention_rate() const {
    const bool aligned = model_.head_size() % kTensorCoreMultiple == 0;
    if (!aligned && stack_.misaligned_attention > 0) return peak_ * stack_.misaligned_attention;
    if (device_.attention_efficiency > 0) return peak_ * device_.attention_efficiency;
    return stack_.attention_efficiency > 0 ? peak_ * stack_.attention_efficiency : matrix_rate();
  }

  /// Flash attention of a causal model leaves out what is masked.
  double masked_share() const { return model_.flash_attention && model_.form().causal ? 0.5 : 0; }

  /// The FLOPs of a layer's attention that no kernel executes.
  double masked_flops() const {
    return masked_share() * model_.layer_attention_flops(b_) / tensor_.degree;
  }

  /// The time of a layer's attention products, forward.
  double attention_s() const {
    const double rate = stack_.takes_layers_apart() ? attention_rate() : rate_;
    return (1 - masked_share()) * model_.layer_attention_flops(b_) / (tensor_.degree * rate);
  }

  double operands_s(double bytes) const {
    return stack_.operand_traffic > 0 ? stack_.operand_traffic * streaming_s(bytes) : 0;
  }

  /// `bytes`: of elements of 16 bits.
  double traffic_s(double bytes) const {
    const double size = model_.element_bytes() / 2;
    return per_token_s(size * bytes * static_cast<double>(model_.hidden_size)) / tensor_.degree +
           repeated_s_;
  }

  /// Of a layer's output among the tensor ranks, as far as the host's launches hide under it.
  double all_reduce_s() const {
    return ring_all_reduce_s(tensor_.degree, model_.layer_input_bytes(b_), tensor_link_.latency_s,
                             tensor_link_.bytes_per_s);
  }

  double accumulation_s(std::int64_t parameters) const {
    return streaming_s(stack_.accumulation * static_cast<double>(parameters));
  }

  /// A layer by its parts, with the host's launches (see models/stack.hpp). `in_full`: recomputed.
  OpTimes layer_times(bool in_full) const {
    const double matrices = layer_weight_flops_ / (tensor_.degree * matrix_rate()) +
                            operands_s(model_.layer_operand_bytes(b_, tensor_));
    const double again = in_full ? 1 : 0;
    const double host = tensor_.degree > 1 ? stack_.tensor_host_s : 0;
    const double host_back = (stack_.backward_host_s + host) / 2;
    const double back = traffic_s(stack_.backward_traffic) / 2;
    OpTimes t{matrices + attention_s() + traffic_s(stack_.forward_traffic), 0, 0};
    double input = matrices + 2 * attention_s() + back + again * t.forward_s;
    // Megatron-LM runs core attention again whichever kernel it is, also where that frees nothing.
    if (selective()) input += attention_s();
    const double exchange = model_.form().tensor_sums() * all_reduce_s();
    t.input_s =
        joined(input, host_back + again * (stack_.forward_host_s + host), (1 + again) * exchange);
    t.weight_s = joined(matrices + back + accumulation_s(parameters_.layer), host_back,
                        tensor_.sequence && !keeps_gathered() ? exchange / 2 : 0);
    t.forward_s = joined(t.forward_s, stack_.forward_host_s + host, exchange);
    return t;
  }

  /// Of the LM head; its parameters' gradients are the embedding's where both are one.
  OpTimes head_times() const {
    const double matrix =
        head_flops_ / head_rate() + operands_s(model_.head_operand_bytes(b_, tensor_));
    const double logits =
        per_token_s(stack_.logits_traffic * static_cast<double>(model_.vocab_rows(tensor_)));
    return {matrix + logits, matrix + logits, matrix + accumulation_s(parameters_.head)};
  }

  Times times_of_parts(int layers, bool first, bool last) const {
    const OpTimes head = last ? head_times_ : OpTimes{};
    const double embedding = first ? accumulation_s(parameters_.embedding) : 0;
    const int again = recompute_.recomputed(layers);
    const double input_s =
        (layers - again) * layer_times_.input_s + again * again_times_.input_s + head.input_s;
    const double weight_s = layers * layer_times_.weight_s + head.weight_s + embedding;
    return {layers * layer_times_.forward_s + head.forward_s, input_s + weight_s, input_s,
            weight_s};
  }

  double optimizer_s(const StageCosts& c) const {
    const double parameters =
        model_.bytes.weights > 0 ? static_cast<double>(c.weight_bytes) / model_.bytes.weights : 0;
    // Adam reads and writes its state, reads the gradient and writes the weights.
    return stack_.iteration_overhead_s +
           streaming_s(stack_.optimizer_traffic > 0
                           ? stack_.optimizer_traffic * parameters / shards_
                           : static_cast<double>(c.gradient_bytes + c.weight_bytes) / shards_ +
                                 2 * static_cast<double>(c.optimizer_bytes));
  }

  Times times_of(const Flops& flops, int layers, bool first, bool last,
                 std::int64_t weights) const {
    if (stack_.takes_layers_apart()) return times_of_parts(layers, first, last);
    const double read_s = streaming_s(static_cast<double>(weights));
    const double again = kForwardKernels * layers_again(layers);
    const double repeated = layers * repeated_s_;
    const double repeated_back = repeated + recompute_.recomputed(layers) * repeated_s_;
    const double half = kBackwardKernels / 2 * layers;
    const double forward = flops.forward - layers * masked_flops();
    const double backward =
        flops.backward + flops.again - (2 * layers + layers_again(layers)) * masked_flops();
    return {op_time(forward, kForwardKernels * layers, read_s, repeated),
            op_time(backward, kBackwardKernels * layers + again, read_s, repeated_back),
            op_time(backward - flops.weight, half + again, read_s, repeated_back),
            op_time(flops.weight, half, read_s)};
  }

  bool keeps_gathered() const { return stack_.kept_per_hidden > 0 && !stack_.gathers_again; }

  /// Scores and probabilities of a layer's attention, which flash attention does not keep.
  double probability_bytes() const {
    return model_.layer_activation_bytes(b_, Recompute::none, tensor_) -
           model_.layer_activation_bytes(b_, Recompute::selective, tensor_);
  }

  /// Activations of a layer, by the stack where it says what its kernels keep (with flash
  /// attention, in 16 bits).
  double kept_bytes(Recompute recompute) const {
    if (recompute == Recompute::full || stack_.kept_per_hidden <= 0)
      return model_.layer_activation_bytes(b_, recompute, tensor_);
    const double size = model_.element_bytes() / 2;
    // What no rank divides: inputs of norms and of what follows them; with sequence parallelism one
    // gathered input, where linear layers keep it for W instead of gathering it again.
    const double inputs = tensor_.sequence ? (keeps_gathered() ? 1 : 0) : 4;
    const double whole_on_each = size * (2 * inputs + stack_.kept_whole);
    const double h = static_cast<double>(model_.hidden_size);
    const double divided =
        (size * stack_.kept_per_hidden - whole_on_each) * h +
        size * stack_.kept_per_column * static_cast<double>(model_.ffn_hidden_size);
    return b_ * static_cast<double>(model_.seq_length) *
               (divided / tensor_.degree + whole_on_each * h) +
           (recompute == Recompute::none ? probability_bytes() : 0) + beyond_family_bytes();
  }

  /// What a layer keeps more than one of its family, whose layers a stack's numbers are of.
  double beyond_family_bytes() const {
    if (!model_.own_form && !model_.head_dim) return 0;
    TransformerSpec usual = model_;
    usual.own_form.reset();
    usual.head_dim.reset();
    return model_.layer_activation_bytes(b_, Recompute::selective, tensor_) -
           usual.layer_activation_bytes(b_, Recompute::selective, tensor_);
  }

  double kept_logits_bytes() const {
    const double fp32 = model_.logits_bytes(b_, tensor_);
    return stack_.logits_kept > 0 ? fp32 / 4 * stack_.logits_kept : fp32;
  }

  /// Activations that the backward makes again at once, beyond the inputs that are kept.
  double recomputed_bytes(int layers) const {
    if (layers == 0) return 0;
    if (selective()) return kept_bytes(Recompute::none) - kept_bytes(Recompute::selective);
    if (!recompute_.in_full()) return 0;
    return recompute_.group(layers) * kept_bytes(Recompute::none) - kept_bytes(Recompute::full);
  }

  void add_activations(StageCosts& c, int layers, bool last) const {
    const int again = recompute_.recomputed(layers);
    const int group = recompute_.group(layers);
    // Whole groups, and one of what remains.
    const double inputs = (again + group - 1) / group * kept_bytes(Recompute::full);
    const double kept = kept_bytes(selective() ? Recompute::selective : Recompute::none);
    const double input = model_.held_input_bytes(b_, tensor_);
    const double logits = last ? kept_logits_bytes() + input : 0;
    // The LM head's W reads its input and the gradient of the logits, whatever layers recompute.
    const double gradient = model_.logits_bytes(b_, tensor_) / 4 * model_.element_bytes();
    const double head = last ? std::min(kept_logits_bytes(), gradient) + input : 0;
    const double logits_workspace = last ? model_.logits_workspace_bytes(b_, tensor_) : 0;
    // Sequence parallelism gathers the input of one matrix at a time and does not keep it.
    const double gathered = tensor_.sequence ? model_.layer_input_bytes(b_) : 0;
    c.output_bytes = whole(gathers_messages() ? input / tensor_.degree : input);
    c.activation_bytes = whole((layers - again) * kept + inputs + logits);
    c.activation_after_input_bytes = std::min(
        c.activation_bytes, whole((layers - again) * model_.layer_after_input_bytes(b_, tensor_) +
                                  (recompute_.in_full() ? inputs : 0) + head));
    // A layer that runs without keeping its activations still makes them, one layer at a time; the
    // backward those of a group.
    const double recomputed = recomputed_bytes(layers);
    const double made = std::min(recomputed, kept_bytes(Recompute::none));
    // What comes round next arrives while attention is computed, in the backward with its gradient.
    const double next = context_ > 1 && layers > 0 ? passed_bytes() : 0;
    c.forward_workspace_bytes = whole(std::max(made, logits_workspace) + gathered + next);
    c.backward_workspace_bytes =
        whole(std::max(recomputed, logits_workspace) + gathered + 2 * next);
  }

  /// Keys and values that a rank passes on, of a layer.
  double passed_bytes() const {
    return 2 * model_.element_bytes() * b_ * static_cast<double>(model_.seq_length) *
           static_cast<double>(model_.kv_size()) / tensor_.degree;
  }

  /// What the tensor ranks exchange during an op.
  struct Exchanges {
    struct Sum {
      std::int64_t bytes = 0;
      int calls = 0;
    };
    ByCollective<Sum> sums{};

    void add_calls(Collective what, std::int64_t bytes, int calls) {
      Sum& sum = sums[static_cast<std::size_t>(what)];
      sum.bytes += bytes * calls;
      sum.calls += calls;
    }
    void add_exchanges(const Exchanges& other) {
      for (const Collective what : kCollectives) {
        const Sum& more = other.sums[static_cast<std::size_t>(what)];
        sums[static_cast<std::size_t>(what)].bytes += more.bytes;
        sums[static_cast<std::size_t>(what)].calls += more.calls;
      }
    }
    int most_calls() const { return std::ranges::max_element(sums, {}, &Sum::calls)->calls; }
  };

  /// Holds what the context ranks pass on while attention is computed for so many layers: so many
  /// times what each of them has of a layer, in so many rounds.
  struct RingAttention {
    int under = 0, passed = 0, calls = 0;
  };

  /// Returns the recipe of an op that computes for so many seconds. The rings go round one after
  /// the other.
  Recipe recipe(int layers, double compute_s, const std::vector<RingAttention>& rings,
                const Exchanges& tensor) const {
    Recipe r;
    const auto append = [&](const Segment& segment) {
      r.segments.push_back(segment);
      return static_cast<std::int8_t>(r.segments.size() - 1);
    };
    const auto exchange = [&](Collective what, std::int8_t after) {
      const auto& [bytes, calls] = tensor.sums[static_cast<std::size_t>(what)];
      if (calls == 0) return Segment::kNone;
      return append(
          {.lane = Lane::exchange, .what = what, .after = after, .calls = calls, .bytes = bytes});
    };
    const bool rings_go = context_ > 1 && layers > 0 && !rings.empty();
    r.times = rings_go ? layers : tensor.most_calls();
    if (r.times == 0) return {};
    std::int8_t before = exchange(Collective::all_gather, Segment::kNone);
    std::int8_t window = Segment::kNone;
    double hiding = 0;
    for (const RingAttention& ring : rings) {
      if (!rings_go || ring.calls == 0) continue;
      const double attention =
          compute_s > 0 ? std::min(1.0, ring.under * attention_s() / compute_s) : 0;
      const double share = attention * (context_ - 1) / context_;
      hiding += share;
      const std::int8_t next = append({.after = before, .share = share});
      before = append({.lane = Lane::exchange,
                       .axis = Axis::context,
                       .what = Collective::all_gather,
                       .after = window,
                       .calls = ring.calls,
                       .bytes = whole(ring.passed * passed_bytes() * context_)});
      window = next;
    }
    const std::int8_t computed = append({.after = before, .share = 1 - hiding});
    exchange(Collective::reduce_scatter, computed);
    exchange(Collective::all_reduce, computed);
    return r;
  }

  /// Adds what layers exchange of x, twice each (once where attention and MLP are summed together):
  /// before and after what is computed, or both at once.
  void add_passes(Exchanges& exchanges, std::int64_t x, int layers) const {
    const int calls = model_.form().tensor_sums() * layers;
    if (tensor_.sequence) {
      exchanges.add_calls(Collective::all_gather, x, calls);
      exchanges.add_calls(Collective::reduce_scatter, x, calls);
    } else {
      exchanges.add_calls(Collective::all_reduce, x, calls);
    }
  }

  /// See the head of stage_costs.hpp.
  void add_traffic(StageCosts& c, int layers, bool first, bool last) const {
    const std::int64_t x = whole(model_.layer_input_bytes(b_));
    const std::int64_t numbers = whole(4 * b_ * static_cast<double>(model_.seq_length));
    const bool sequence = tensor_.sequence;
    const Collective reduces = sequence ? Collective::reduce_scatter : Collective::all_reduce;
    const int passes = layers + recompute_.recomputed(layers);  // of layers, those made again twice
    Exchanges forward, input, weight;
    if (tensor_.degree > 1) {
      add_passes(forward, x, layers);
      add_passes(input, x, passes);
      if (sequence && !keeps_gathered())
        weight.add_calls(Collective::all_gather, x, model_.form().tensor_sums() * layers);
      if (gathers_messages() && !first) forward.add_calls(Collective::all_gather, x, 1);
      if (gathers_messages() && !last) input.add_calls(Collective::all_gather, x, 1);
      if (first) forward.add_calls(reduces, x, 1);
      if (last) forward.add_calls(Collective::all_reduce, numbers, 3);
      if (last) input.add_calls(reduces, x, 1);
      if (last && sequence) forward.add_calls(Collective::all_gather, x, 1);
      // The gradient that reaches the embedding, and the input of the LM head.
      const int gathers = sequence ? (first ? 1 : 0) + (last ? 1 : 0) : 0;
      weight.add_calls(Collective::all_gather, x, gathers);
    }
    Exchanges whole_backward = input;
    whole_backward.add_exchanges(weight);
    // Attention that is computed again goes round again, before that of I.
    const int again = layers_again(layers);
    const RingAttention there{layers, layers, layers}, once_more{again, again, again},
        back{2 * layers, 2 * layers, layers};
    const auto set = [&](OpKind kind, const Exchanges& exchanges,
                         const std::vector<RingAttention>& rings) {
      c[kind].recipe = recipe(layers, c[kind].seconds, rings, exchanges);
    };
    set(OpKind::forward, forward, {there});
    set(OpKind::backward, whole_backward, {once_more, back});
    set(OpKind::backward_input, input, {once_more, back});
    set(OpKind::backward_weight, weight, {});
  }

  const TransformerSpec& model_;
  const DeviceSpec& device_;
  double b_;
  int context_;
  Recomputation recompute_;
  TensorParallel tensor_;
  int shards_;
  const StackSpec& stack_;
  LinkSpec tensor_link_;
  // Of one layer and of the LM head, whatever stage they are in.
  PartParameters parameters_;
  double layer_flops_, layer_weight_flops_, layer_again_flops_, head_flops_, repeated_s_;
  OpTimes layer_times_, again_times_, head_times_;  // a layer's: kept, and recomputed in full
  double peak_ = 0, rate_ = 0;
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
  std::vector<StageCosts> costs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const StageModel stage(model, devices[i], options, i);
    costs.push_back(stage.costs(layers[i], i == 0, i + 1 == layers.size()));
  }
  return costs;
}

std::int64_t stage_parameters(const TransformerSpec& model, int layers, bool first, bool last,
                              const TensorParallel& tensor) {
  return PartParameters(model, tensor).of_layers(layers, first, last);
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
  std::vector<std::vector<LayerGradient>> stages;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const StageModel stage(model, devices[i], options, i);
    PartBackward times{.layer_s = stage.costs(1, false, false)[OpKind::backward].seconds,
                       .head_s = stage.costs(0, false, true)[OpKind::backward].seconds};
    const int again = options.recompute.at(i).recomputed(layers[i]);
    if (again > 0 && again < layers[i]) {
      times.recomputed = again;
      times.recomputed_s = times.layer_s;
      times.layer_s =
          StageModel(model, devices[i], kept, i).costs(1, false, false)[OpKind::backward].seconds;
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
  std::vector<StageModel> models;
  for (std::size_t i = 0; i < devices.size(); ++i)
    models.emplace_back(model, devices[i], options, i);
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
