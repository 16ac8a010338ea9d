// SPDX-License-Identifier: Apache-2.0
#include "models/cost/kernel_layer.hpp"

#include "models/kernels/kernel_times.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr double kMasterSumBytes = 4;

/// Returns the type of measured kernels of a class of products.
std::string kernel_type(const TransformerSpec& model, ProductClass of) {
  const NumberType type = model.product_types.of(of);
  return type == NumberType::model ? model.compute_type : std::string(facts_of(type).kernels);
}

/// Adds the three products of a matrix of so many rows and columns on a rank.
bool add_products(const StageJob& job, ProductClass of, double rows, double columns,
                  KernelLayer& sum) {
  const KernelTimes& times = *job.device.kernel_times;
  const std::string type = kernel_type(job.model, of);
  const double tokens = job.b * static_cast<double>(job.model.seq_length);
  const auto shape = [&](ProductPass pass) { return pass_shape(pass, tokens, rows, columns); };
  const auto forward = times.product_s(type, shape(ProductPass::forward));
  if (!forward) return false;
  const double longer = times.sustained(type);  // a training step is no burst
  sum.forward_s += longer * *forward;
  sum.input_s += longer * *times.product_s(type, shape(ProductPass::input));
  const double sum_bytes = std::min(kMasterSumBytes, job.model.bytes.gradients);
  sum.weight_s += longer * *times.accumulated_s(type, shape(ProductPass::weight), sum_bytes);
  return true;
}

void add_attention(const StageJob& job, KernelLayer& sum) {
  const TransformerSpec& model = job.model;
  const double t = job.tensor.degree, head = static_cast<double>(model.head_size());
  const auto kv_heads = static_cast<double>(model.num_query_groups);
  // Context ranks attend in as many steps, each of half of the pairs of its tokens with as many.
  const double steps = job.context;
  const AttentionShape shape{job.b * steps, static_cast<double>(model.seq_length) / steps,
                             static_cast<double>(model.num_attention_heads) / t,
                             std::max(1.0, kv_heads / t), head};
  const KernelTimes& times = *job.device.kernel_times;
  const auto kind = model.form().causal ? AttentionKind::causal : AttentionKind::full;
  auto seconds = times.attention_s(kind, kernel_type(model, ProductClass::attention), shape);
  if (!seconds) seconds = times.attention_s(kind, model.compute_type, shape);  // assumed no faster
  if (!seconds) return;
  *seconds *= steps;
  sum.attention_s = *seconds;
  sum.attention_backward_s = times.attention_backward * *seconds;
}

}  // namespace

std::optional<KernelLayer> kernel_layer(const StageJob& job) {
  if (!job.device.kernel_times) return std::nullopt;
  KernelLayer sum;
  const double t = job.tensor.degree;
  for (const Module& m : job.layer.modules()) {
    if (m.kind != Module::Kind::product) continue;
    const bool columns = m.by_columns;
    if (!add_products(job, m.of, static_cast<double>(m.rows) / (columns ? 1 : t),
                      static_cast<double>(m.columns) / (columns ? t : 1), sum))
      return std::nullopt;
  }
  if (job.model.flash_attention) add_attention(job, sum);
  return sum;
}

std::optional<KernelLayer> kernel_head(const StageJob& job) {
  if (!job.device.kernel_times) return std::nullopt;
  KernelLayer sum;
  const bool known =
      add_products(job, ProductClass::head, static_cast<double>(job.model.hidden_size),
                   static_cast<double>(job.model.vocab_rows(job.tensor)), sum);
  return known ? std::optional(sum) : std::nullopt;
}

}  // namespace penstock
