// SPDX-License-Identifier: Apache-2.0
#include "models/cost/kernel_layer.hpp"

#include "models/kernels/kernel_times.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kMasterSumBytes = 4;
constexpr double kLargeSide = 8192;  // of a product that fills a device

/// The backward of attention on latents takes so many times as long, over its forward, as that of
/// heads of 128: with 16 to 128 heads 1.1 to 1.4 on B200 (SimuMax's measured system file,
/// configs/system/b200_bf16_ceperm.json).
constexpr double kLatentBackward = 1.2;

/// Returns how much longer products of a class take in training than measured kernels of this type:
/// a step is no burst, and a stack says what else.
double training_pace(const StageJob& job, ProductClass of, const std::string& type) {
  const double narrow = job.model.is_narrow(of) ? 1 + job.stack.narrow_slowdown : 1;
  return job.device.kernel_times->sustained(type) * (1 + job.stack.product_slowdown) * narrow;
}

/// Returns the type of measured kernels of a class of products.
std::string kernel_type(const TransformerSpec& model, ProductClass of) {
  const NumberType type = model.product_types.of(of);
  return type == NumberType::model ? model.compute_type : std::string(facts_of(type).kernels);
}

/// Adds the three products of so many tokens and a matrix of so many rows and columns on a rank.
bool add_products(const StageJob& job, ProductClass of, double tokens, double rows, double columns,
                  KernelLayer& sum) {
  const KernelTimes& times = *job.device.kernel_times;
  const std::string type = kernel_type(job.model, of);
  const auto shape = [&](ProductPass pass) { return pass_shape(pass, tokens, rows, columns); };
  const auto forward = times.product_s(type, shape(ProductPass::forward));
  if (!forward) return false;
  const double longer = training_pace(job, of, type);
  sum.forward_s += longer * *forward;
  sum.input_s += longer * *times.product_s(type, shape(ProductPass::input));
  const double sum_bytes = std::min(kMasterSumBytes, job.model.bytes.gradients);
  const ProductShape weight = shape(ProductPass::weight);
  // A stack that says what adding up moves does it in a kernel of its own.
  sum.weight_s +=
      longer * (job.stack.accumulation > 0 ? *times.product_s(type, weight)
                                           : *times.accumulated_s(type, weight, sum_bytes));
  return true;
}

/// Returns what a FLOP of large dense products of this type takes; 0 where none were measured.
double seconds_per_flop(const KernelTimes& times, const std::string& type) {
  const ProductShape large{kLargeSide, kLargeSide, kLargeSide};
  return times.product_s(type, large).value_or(0) / (2 * large.m * large.n * large.k);
}

/// Returns the rows that grouped kernels of a type were measured to add to each expert's.
double padding_of(const KernelTimes& times, const std::string& type) {
  const auto law = std::ranges::find(times.experts, type, &ExpertsLaw::type);
  return law == times.experts.end() ? 0 : law->padding;
}

/// Adds the grouped products of routed experts, as measured where one GPU has all experts of a
/// layer, with as many rows for each: with several GPUs, inference frameworks were measured with
/// all of their tokens on each. What was measured contains routing and permutation and the
/// activation, which modules count by what they move; I and W take what is left, and W reads and
/// writes the sums of gradients. Kernels in fp8 stand for other types of 8 bits. Returns false
/// where none were measured.
bool add_experts(const StageJob& job, KernelLayer& sum) {
  const KernelTimes& times = *job.device.kernel_times;
  const TransformerSpec& model = job.model;
  const Experts& experts = *model.experts;
  const double tokens = job.b * static_cast<double>(model.seq_length) / job.tensor.degree;
  const ExpertsShape shape{
      .tokens = tokens * job.expert.tensor,
      .hidden = static_cast<double>(model.hidden_size),
      .inter = static_cast<double>(experts.width) / job.expert.tensor,
      .topk = static_cast<double>(experts.top_k),
      .experts = std::max(1.0, static_cast<double>(experts.count) / job.expert.degree),
      .gated = model.form().gated_mlp,
      .load = job.expert.rows};
  const std::string type = kernel_type(model, ProductClass::experts);
  std::string measured = type;
  std::optional<double> seconds = times.experts_s(type, shape);
  for (const char* other : {"fp8", "fp8_block"})
    if (!seconds && type != model.compute_type) seconds = times.experts_s(measured = other, shape);
  if (!seconds) return false;
  if (job.expert.skew > 0) {
    ExpertsShape skewed = shape;
    skewed.skew = 1 + job.expert.skew;
    seconds = std::max(*seconds, *times.experts_s(measured, skewed));
  }
  const double sums = 2 * std::min(kMasterSumBytes, model.bytes.gradients) *
                      static_cast<double>(job.layer.expert_parameters());
  const double bytes_per_s = job.device.memory_bytes_per_s * job.device.memory_efficiency;
  double moved = 0;  // bytes
  for (const Module& m : job.layer.modules())
    if (m.again_with.overlaps(LayerPart::moe) && m.kind == Module::Kind::elementwise &&
        !m.again_with.overlaps(LayerPart::shared_experts) && m.name != "sorting")
      moved +=
          job.expert.rows * tokens * model.element_bytes() * static_cast<double>(m.moved.divided);
  // They were measured in bursts and with weights that nobody filled, which draw little power: with
  // the rows that they add they reach no more than dense products do. One expert has no others.
  const double rows = shape.tokens * shape.topk * shape.load / shape.experts;
  const double padded = shape.experts > 1 ? 1 + padding_of(times, measured) / rows : 1;
  const double burst_s = std::max(0.0, *seconds - moved / bytes_per_s);
  const double products_s =
      training_pace(job, ProductClass::experts, type) *
      std::max(burst_s,
               padded * job.forward.class_flops[static_cast<std::size_t>(ProductClass::experts)] /
                   job.tensor.degree * seconds_per_flop(times, type));
  sum.experts_s = products_s;
  sum.forward_s += products_s;
  sum.input_s += products_s;
  sum.weight_s += products_s + sums / bytes_per_s;
  return true;
}

void add_attention(const StageJob& job, KernelLayer& sum) {
  const TransformerSpec& model = job.model;
  // Ranks that exchange heads have whole sequences of a part of them.
  const double steps = job.ring(), t = job.tensor.degree * job.context / steps;
  const double head = static_cast<double>(model.head_size());
  const auto kv_heads = static_cast<double>(model.num_query_groups);
  // A ring attends in as many steps, each of half of the pairs of its tokens with as many.
  const double seq = static_cast<double>(model.seq_length) / steps;
  const KernelTimes& times = *job.device.kernel_times;
  const auto kind = model.latent          ? AttentionKind::mla
                    : model.form().causal ? AttentionKind::causal
                                          : AttentionKind::full;
  const auto seconds_at = [&](double length) {
    const AttentionShape shape{job.b * job.context * seq / length, length,
                               static_cast<double>(model.num_attention_heads) / t,
                               std::max(1.0, kv_heads / t), head};
    const std::string type = kernel_type(model, ProductClass::attention);
    auto s = times.attention_s(kind, type, shape);
    if (s) return s;
    s = times.attention_s(kind, model.compute_type, shape);  // assumed no faster
    if (!s || !model.latent) return s;
    // In fp8 it is assumed to gain what attention of heads of 128 was measured to gain.
    AttentionShape heads = shape;
    heads.head_dim = 128;
    const auto narrow = times.attention_s(AttentionKind::causal, type, heads);
    const auto wide = times.attention_s(AttentionKind::causal, model.compute_type, heads);
    if (narrow && wide) *s *= std::min(1.0, *narrow / *wide);
    return s;
  };
  if (!seconds_at(seq)) return;
  // Documents, and queries with a window, are as many shorter sequences as have their tokens and
  // their pairs. Documents are of many lengths, so that no step from a block of a kernel to the
  // next is seen.
  const auto seconds_of = [&](double pairs) {
    if (pairs == 1) return *seconds_at(seq);
    constexpr double kBlock = 128;
    const double length = std::max(kBlock, pairs * seq);
    const double low = std::floor(length / kBlock) * kBlock;
    return std::lerp(*seconds_at(low), *seconds_at(low + kBlock), (length - low) / kBlock);
  };
  const double windowed = model.windowed_layers();
  double seconds = (1 - windowed) * seconds_of(job.attended);
  if (windowed > 0) seconds += windowed * seconds_of(job.attended * model.windowed_pairs());
  seconds *= steps * (1 + job.stack.product_slowdown);
  sum.attention_s = seconds;
  sum.attention_backward_s =
      times.attention_backward * (model.latent ? kLatentBackward : 1) * seconds;
}

/// Adds attention whose scores pass memory, as Megatron-LM's kernels without flash attention: its
/// products by heads, the softmax and dropout. Masked pairs are computed; the softmax of a causal
/// model (megatron/fused_kernels/scaled_upper_triang_masked_softmax.h) does not read them but
/// writes zeros, forward and backward.
void add_plain_attention(const StageJob& job, KernelLayer& sum) {
  const TransformerSpec& model = job.model;
  const LayerForm form = model.form();
  const double seq = static_cast<double>(model.seq_length);
  const double queries =
      job.b * seq * static_cast<double>(model.num_attention_heads) / job.tensor.degree;
  const auto head = static_cast<double>(model.head_size());
  const KernelTimes& times = *job.device.kernel_times;
  const std::string type = kernel_type(model, ProductClass::attention);
  const auto scores = times.product_s(type, {queries, seq, head});
  const auto values = times.product_s(type, {queries, head, seq});
  if (!scores || !values) return;
  const double e = model.element_bytes(), read = form.causal ? 0.5 : 1;
  const double mask = 1;  // bytes
  const double softmax = (read + 1) * e, softmax_back = (2 * read + 1) * e;
  const double dropout = form.dropout ? 2 * e + mask : 0;
  const double bytes_per_s = job.device.memory_bytes_per_s * job.device.memory_efficiency;
  const double pairs_s = bytes_per_s > 0 ? queries * seq / bytes_per_s : 0;  // a byte of each pair
  const double longer = training_pace(job, ProductClass::attention, type);
  sum.attention_s = longer * (*scores + *values) + (softmax + dropout) * pairs_s;
  // Gradients of queries, keys and values are products like the values', those of probabilities
  // like the scores.
  sum.attention_backward_s = longer * (*scores + 3 * *values) + (softmax_back + dropout) * pairs_s;
}

/// Returns whether heads have sides that tensor cores take.
bool heads_are_aligned(const TransformerSpec& model) {
  constexpr std::int64_t kTensorCoreMultiple = 8;
  return model.head_size() % kTensorCoreMultiple == 0;
}

}  // namespace

std::optional<KernelLayer> kernel_layer(const StageJob& job) {
  if (!job.device.kernel_times) return std::nullopt;
  KernelLayer sum;
  const double tokens = job.b * static_cast<double>(job.model.seq_length);
  bool experts = false;
  for (const Module& m : job.layer.modules()) {
    if (m.kind != Module::Kind::product) continue;
    if (m.divided_by == Module::DividedBy::experts) {
      experts = true;
      continue;
    }
    const bool columns = m.by_columns, own = m.divided_by == Module::DividedBy::nobody;
    const double t = own ? 1 : job.tensor.degree;
    const double here = own && job.tensor.sequence ? tokens / job.tensor.degree : tokens;
    if (!add_products(job, m.of, here, static_cast<double>(m.rows) / (columns ? 1 : t),
                      static_cast<double>(m.columns) / (columns ? t : 1), sum))
      return std::nullopt;
  }
  if (experts && !add_experts(job, sum)) return std::nullopt;
  if (job.model.flash_attention)
    add_attention(job, sum);
  else if (!job.model.latent && job.context == 1 && heads_are_aligned(job.model))
    add_plain_attention(job, sum);
  return sum;
}

std::optional<KernelLayer> kernel_head(const StageJob& job) {
  if (!job.device.kernel_times) return std::nullopt;
  KernelLayer sum;
  const bool known =
      add_products(job, ProductClass::head, job.b * static_cast<double>(job.model.seq_length),
                   static_cast<double>(job.model.hidden_size),
                   static_cast<double>(job.model.vocab_rows(job.tensor)), sum);
  return known ? std::optional(sum) : std::nullopt;
}

}  // namespace penstock
