// SPDX-License-Identifier: Apache-2.0
#include "models/cost/seconds.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// Kernels the host launches for one layer: norms, matrix products, attention, bias and activation,
// dropout and residual; the backward about twice as many (Megatron-LM without fused attention).
constexpr double kForwardKernels = 20;
constexpr double kBackwardKernels = 40;

/// Norms, activations and additions read the gradient in the backward, too, and write one: of
/// SwiGLU 5 columns instead of 3, of a norm 3 instead of 2.
constexpr double kBackwardMoves = 1.6;

constexpr std::int64_t kTensorCoreMultiple = 8;  // elements of 16 bits, on every side of a product

/// Products in fp32 run on CUDA cores, which are so slow that operands and launches hardly show:
/// cuBLAS in strict fp32 reaches 18.9 of A100's 19.5 TFLOP/s at 4096 x 4096 x 4096 (17.74 are 94 %
/// of it: github.com/AG0708/sgBLAS, release v0.1.0), and a little less of other shapes.
constexpr double kCudaCoreEfficiency = 0.95;

/// The share of peak that large products reach where a device does not say it (product_share).
constexpr double kProductShare = 0.75;

/// What host and GPU take together; each hides nearly all of the shorter one. What the GPU
/// exchanges with others hides the host, too, and is counted by itself.
double joined(double gpu_s, double host_s, double exchange_s) {
  if (host_s <= 0) return gpu_s;
  gpu_s += exchange_s;
  const double longer = std::max(gpu_s, host_s), ratio = std::min(gpu_s, host_s) / longer;
  return longer * std::pow(1 + ratio * ratio * ratio * ratio, 0.25) - exchange_s;
}

}  // namespace

StageFlops stage_flops(const StageJob& job, const LayerCount& count, bool last) {
  const int t = job.tensor.degree;
  const double head = last ? job.model.head_forward_flops(job.b, job.tensor) : 0;
  const double forward =
      count.layers * (job.forward.product_flops + job.forward.attention_flops) / t + head;
  const double again = job.again.product_flops + job.again.attention_flops;
  return {forward, 2 * forward, job.layers_again(count) * again / t,
          count.layers * job.forward.product_flops / t + head};
}

LayerSeconds::LayerSeconds(const StageJob& job) : job_(job) {
  const auto peak = job.device.peak_flops_per_s.find(job.model.compute_type);
  peak_ = peak == job.device.peak_flops_per_s.end() ? 1e12 : peak->second;
  rate_ = peak_ * job.device.efficiency_at(static_cast<double>(job.model.hidden_size) /
                                           std::sqrt(job.tensor.degree));
  const auto share = job.device.product_share.find(job.model.compute_type);
  product_peak_ = peak_ * (share == job.device.product_share.end() ? kProductShare : share->second);
  repeated_s_ = repeated_s();
  if (!job.stack.takes_layers_apart()) return;
  kernels_ = kernel_layer(job);
  kept_ = layer_by_parts(false);
  again_ = layer_by_parts(true);
  head_ = head_by_parts();
}

double LayerSeconds::streaming_s(double bytes) const {
  const DeviceSpec& device = job_.device;
  if (device.memory_bytes_per_s <= 0) return 0;
  return bytes / (device.memory_bytes_per_s * device.memory_efficiency);
}

double LayerSeconds::per_token_s(double bytes) const {
  return streaming_s(bytes * job_.b * static_cast<double>(job_.model.seq_length));
}

/// What every GPU does of a layer although t share it, beyond the 1/t that the efficiency of
/// whole layers contains.
double LayerSeconds::repeated_s() const {
  if (job_.tensor.sequence) return 0;
  return (1 - 1.0 / job_.tensor.degree) * streaming_s(job_.layer.elementwise_bytes(job_.b));
}

double LayerSeconds::matrix_rate() const {
  if (job_.model.compute_type == "fp32") return peak_ * kCudaCoreEfficiency;
  const double measured = job_.device.matrix_efficiency;
  return peak_ * (measured > 0 ? measured : job_.stack.matrix_efficiency);
}

double LayerSeconds::head_rate() const {
  const bool aligned = job_.model.vocab_rows(job_.tensor) % kTensorCoreMultiple == 0;
  if (aligned || job_.model.compute_type == "fp32" || job_.stack.misaligned_head <= 0)
    return matrix_rate();
  return peak_ * job_.stack.misaligned_head;
}

double LayerSeconds::attention_rate() const {
  if (!job_.stack.takes_layers_apart()) return rate_;
  if (job_.model.compute_type == "fp32") return matrix_rate();  // no tensor cores either
  const bool aligned = job_.model.head_size() % kTensorCoreMultiple == 0;
  if (!aligned && job_.stack.misaligned_attention > 0)
    return peak_ * job_.stack.misaligned_attention;
  if (job_.device.attention_efficiency > 0) return peak_ * job_.device.attention_efficiency;
  return job_.stack.attention_efficiency > 0 ? peak_ * job_.stack.attention_efficiency
                                             : matrix_rate();
}

/// Flash attention of a causal model leaves out what is masked.
double LayerSeconds::masked_share() const {
  return job_.model.flash_attention && job_.model.form().causal ? 0.5 : 0;
}

double LayerSeconds::beside_exchanges() const {
  return job_.tensor.overlap && job_.tensor.degree > 1 ? 1 + job_.stack.beside_exchanges : 1;
}

/// Returns how much longer a class' products take in their type than they would in the model's.
double LayerSeconds::ratio_of(ProductClass products) const {
  return job_.device.product_ratio(job_.model.peak_of(products), job_.model.compute_type);
}

/// Returns the FLOPs of products in the model's type that take as long as these in theirs.
double LayerSeconds::weighted_flops(const LayerWork& work) const {
  double sum = 0;
  for (std::size_t c = 0; c < kProductClasses; ++c)
    if (work.class_flops[c] > 0)
      sum += work.class_flops[c] * ratio_of(static_cast<ProductClass>(c));
  return sum;
}

/// Returns how much longer a curve of whole layers takes for a rank's products than their type
/// does: that changes what products take at their share of peak, not what a layer loses elsewhere.
double LayerSeconds::changed_s(double flops, ProductClass products) const {
  const double ratio = ratio_of(products);
  return ratio == 1 ? 0 : (ratio - 1) * flops * std::min(1 / rate_, 1 / product_peak_);
}

double LayerSeconds::changed_s(const LayerWork& work) const {
  const int t = job_.tensor.degree;
  double sum = changed_s((1 - masked_share()) * work.attention_flops / t, ProductClass::attention);
  for (std::size_t c = 0; c < kProductClasses; ++c)
    sum += changed_s(work.class_flops[c] / t, static_cast<ProductClass>(c));
  return sum;
}

/// Returns what casts of the LM head's input take, or of its logits' gradient.
double LayerSeconds::head_casts_s(bool back) const {
  if (!job_.model.is_narrow(ProductClass::head)) return 0;
  const double bytes = (1 + job_.model.mtp_layers) * job_.layer.cast_bytes(ProductClass::head);
  return per_token_s(bytes * static_cast<double>(back ? job_.model.vocab_rows(job_.tensor)
                                                      : job_.model.hidden_size));
}

double LayerSeconds::attention_s(const LayerWork& work) const {
  if (kernels_ && kernels_->attention_s)
    return work.attention_flops > 0 ? *kernels_->attention_s : 0;
  const double flops = (1 - masked_share()) * work.attention_flops / job_.tensor.degree;
  if (!job_.stack.takes_layers_apart())
    return flops / rate_ + changed_s(flops, ProductClass::attention);
  return flops * ratio_of(ProductClass::attention) / attention_rate();
}

double LayerSeconds::products_s() const {
  if (job_.stack.takes_layers_apart()) return products_s(job_.forward);
  const int t = job_.tensor.degree;
  double seconds = job_.forward.product_flops / (t * rate_);
  for (std::size_t c = 0; c < kProductClasses; ++c)
    seconds += changed_s(job_.forward.class_flops[c] / t, static_cast<ProductClass>(c));
  return seconds;
}

double LayerSeconds::experts_s() const {
  constexpr auto kExperts = static_cast<std::size_t>(ProductClass::experts);
  const double flops = job_.forward.class_flops[kExperts];
  if (flops == 0) return 0;
  if (kernels_ && kernels_->experts_s > 0) return kernels_->experts_s;
  return products_s() * flops / job_.forward.product_flops;
}

double LayerSeconds::products_s(const LayerWork& work) const {
  const double seconds = kernels_
                             ? kernels_->forward_s * work.product_flops / job_.forward.product_flops
                             : weighted_flops(work) / (job_.tensor.degree * matrix_rate()) +
                                   operands_s(work.operand_bytes);
  return beside_exchanges() * seconds;
}

/// What a stack says passes memory is divided among a layer's modules as what they move is.
double LayerSeconds::modules_s(const LayerWork& work) const {
  const double share = work.moved_bytes / job_.forward.moved_bytes;
  return products_s(work) + attention_s(work) + share * moved_s(job_.stack.forward_traffic, 1) +
         streaming_s(work.cast_bytes);
}

double LayerSeconds::operands_s(double bytes) const {
  return job_.stack.operand_traffic > 0 ? job_.stack.operand_traffic * streaming_s(bytes) : 0;
}

/// `bytes`: of elements of 16 bits.
double LayerSeconds::traffic_s(double bytes) const {
  const double size = job_.model.element_bytes() / 2;
  return per_token_s(size * bytes * static_cast<double>(job_.model.hidden_size)) /
             job_.tensor.degree +
         repeated_s_;
}

/// Returns the seconds of a layer's traffic: what a stack says or, where it says nothing and has
/// measured kernels, what the modules move, `times` over.
double LayerSeconds::moved_s(double traffic, double times) const {
  if (kernels_ && traffic == 0) return times * streaming_s(job_.forward.moved_bytes);
  return traffic_s(traffic);
}

double LayerSeconds::accumulation_s(std::int64_t parameters) const {
  return streaming_s(job_.stack.accumulation * static_cast<double>(parameters));
}

/// A layer by its parts, with the host's launches (see models/stack.hpp). `in_full`: recomputed.
LayerSeconds::Parts LayerSeconds::layer_by_parts(bool in_full) const {
  const StackSpec& stack = job_.stack;
  const int t = job_.tensor.degree;
  const double matrices = products_s(job_.forward), attention = attention_s(job_.forward);
  const double host = t > 1 ? stack.tensor_host_s : 0;
  const double host_back = (stack.backward_host_s + host) / 2;
  const double back = moved_s(stack.backward_traffic, kBackwardMoves) / 2;
  const double forward = modules_s(job_.forward);
  // Megatron-LM runs core attention again whichever kernel it is, also where that frees nothing.
  const LayerWork again = in_full || job_.selective() ? job_.again : LayerWork{};
  KernelLayer k = kernels_.value_or(KernelLayer{});
  k.input_s = kernels_ ? beside_exchanges() * k.input_s : matrices;
  k.weight_s = kernels_ ? beside_exchanges() * k.weight_s : matrices;
  const double input = k.input_s + k.attention_backward_s.value_or(2 * attention) + back +
                       modules_s(again) + streaming_s(job_.forward.cast_back_bytes);
  // Among the tensor ranks, as far as the host's launches hide under it.
  const double x = job_.model.layer_input_bytes(job_.b);
  const bool alone = !job_.tensor.overlap;
  const double gather_s = alone ? job_.tensor_sum.seconds(job_.gathered_share() * x) / 2 : 0;
  const double sum_s = alone ? gather_s + job_.tensor_sum.seconds(x) / 2 : 0;
  const double exchange = job_.forward.sums * sum_s;
  const bool gathers_inputs = job_.tensor.sequence && !job_.keeps_gathered();
  const double gathers = gathers_inputs ? job_.forward.sums * gather_s : 0;
  Parts p;
  p.forward_s = joined(forward, stack.forward_host_s + host, exchange);
  p.input_s = joined(input, host_back + (in_full ? 1 : 0) * (stack.forward_host_s + host),
                     exchange + again.sums * sum_s);
  const double adds = accumulation_s(job_.layer.parameters(job_.tensor));
  p.weight_s = joined(k.weight_s + back + adds, host_back, gathers);
  return p;
}

/// Of the LM head; its parameters' gradients are the embedding's where both are one.
LayerSeconds::Parts LayerSeconds::head_by_parts() const {
  const TransformerSpec& model = job_.model;
  const double matrix =
      model.head_forward_flops(job_.b, job_.tensor) * ratio_of(ProductClass::head) / head_rate() +
      operands_s(model.head_operand_bytes(job_.b, job_.tensor));
  const int predictions = 1 + model.mtp_layers;
  const double logits =
      predictions *
      per_token_s(job_.stack.logits_traffic * static_cast<double>(model.vocab_rows(job_.tensor)));
  const std::optional<KernelLayer> measured = kernels_ ? kernel_head(job_) : std::nullopt;
  KernelLayer k = measured.value_or(KernelLayer{matrix, matrix, matrix});
  if (measured)  // of one token's prediction
    for (double* seconds : {&k.forward_s, &k.input_s, &k.weight_s}) *seconds *= predictions;
  return {k.forward_s + logits + head_casts_s(false), k.input_s + logits + head_casts_s(true),
          k.weight_s + accumulation_s(model.head_parameters(job_.tensor))};
}

StageSeconds LayerSeconds::by_parts(const LayerCount& count, bool first, bool last) const {
  const Parts head = last ? head_ : Parts{};
  const double embedding = first ? accumulation_s(job_.model.embedding_parameters(job_.tensor)) : 0;
  const auto [layers, again] = count;
  const double input_s = (layers - again) * kept_.input_s + again * again_.input_s + head.input_s;
  const double weight_s = layers * kept_.weight_s + head.weight_s + embedding;
  return {layers * kept_.forward_s + head.forward_s, input_s + weight_s, input_s, weight_s};
}

/// Never below the launches of its kernels, nor below reading the weights once.
double LayerSeconds::op_s(double flops, double kernels, double read_s, double repeated) const {
  return std::max({flops / rate_ + repeated, kernels * job_.device.launch_s, read_s});
}

StageSeconds LayerSeconds::of(const LayerCount& count, bool first, bool last,
                              std::int64_t weight_bytes) const {
  if (job_.stack.takes_layers_apart()) return by_parts(count, first, last);
  const int layers = count.layers;
  const StageFlops flops = stage_flops(job_, count, last);
  const double read_s = streaming_s(static_cast<double>(weight_bytes));
  const int layers_again = job_.layers_again(count);
  const double again = kForwardKernels * layers_again;
  const double repeated = layers * repeated_s_;
  const double repeated_back =
      repeated + (job_.selective() ? layers * streaming_s(job_.again.lone_bytes)
                                   : count.in_full * repeated_s_);
  const double half = kBackwardKernels / 2 * layers;
  const double masked =
      masked_share() * job_.forward.attention_flops / job_.tensor.degree;  // not executed
  const int attention_again = job_.makes_attention_again() ? layers_again : 0;
  // What products in other types than the model's take less, and their casts more.
  const double head_flops = last ? job_.model.head_forward_flops(job_.b, job_.tensor) : 0;
  const double head = changed_s(head_flops, ProductClass::head);
  const double changed = changed_s(job_.forward);
  const double products = products_s() - job_.forward.product_flops / (job_.tensor.degree * rate_);
  const double forward = layers * (changed + streaming_s(job_.forward.cast_bytes)) + head +
                         (last ? head_casts_s(false) : 0);
  const double input =
      layers * (2 * changed - products + streaming_s(job_.forward.cast_back_bytes)) + head +
      layers_again * (changed_s(job_.again) + streaming_s(job_.again.cast_bytes)) +
      (last ? head_casts_s(true) : 0);
  const double weight = layers * products + head;
  const double backward = flops.backward + flops.again - (2 * layers + attention_again) * masked;
  return {
      op_s(flops.forward - layers * masked, kForwardKernels * layers, read_s, repeated + forward),
      op_s(backward, kBackwardKernels * layers + again, read_s, repeated_back + input + weight),
      op_s(backward - flops.weight, half + again, read_s, repeated_back + input),
      op_s(flops.weight, half, read_s, weight)};
}

}  // namespace penstock
