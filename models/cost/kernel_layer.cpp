// SPDX-License-Identifier: Apache-2.0
#include "models/cost/kernel_layer.hpp"

#include "models/kernels/kernel_times.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Adds the three products of a matrix of so many rows and columns on a rank.
bool add_products(const StageJob& job, double rows, double columns, KernelLayer& sum) {
  const KernelTimes& times = *job.device.kernel_times;
  const std::string& type = job.model.compute_type;
  const double tokens = job.b * static_cast<double>(job.model.seq_length);
  const auto shape = [&](ProductPass pass) { return pass_shape(pass, tokens, rows, columns); };
  const auto forward = times.product_s(type, shape(ProductPass::forward));
  if (!forward) return false;
  const double longer = times.sustained(type);  // a training step is no burst
  sum.forward_s += longer * *forward;
  sum.input_s += longer * *times.product_s(type, shape(ProductPass::input));
  sum.weight_s += longer * *times.accumulated_s(type, shape(ProductPass::weight));
  return true;
}

void add_attention(const StageJob& job, KernelLayer& sum) {
  const TransformerSpec& model = job.model;
  const double t = job.tensor.degree, head = static_cast<double>(model.head_size());
  const double kv_heads = static_cast<double>(model.kv_size()) / head;
  const AttentionShape shape{job.b, static_cast<double>(model.seq_length),
                             static_cast<double>(model.num_attention_heads) / t,
                             std::max(1.0, kv_heads / t), head};
  const KernelTimes& times = *job.device.kernel_times;
  const auto kind = model.form().causal ? AttentionKind::causal : AttentionKind::full;
  const auto seconds = times.attention_s(kind, model.compute_type, shape);
  if (!seconds) return;
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
    if (!add_products(job, static_cast<double>(m.rows) / (columns ? 1 : t),
                      static_cast<double>(m.columns) / (columns ? t : 1), sum))
      return std::nullopt;
  }
  if (job.model.flash_attention) add_attention(job, sum);
  return sum;
}

std::optional<KernelLayer> kernel_head(const StageJob& job) {
  if (!job.device.kernel_times) return std::nullopt;
  KernelLayer sum;
  const bool known = add_products(job, static_cast<double>(job.model.hidden_size),
                                  static_cast<double>(job.model.vocab_rows(job.tensor)), sum);
  return known ? std::optional(sum) : std::nullopt;
}

}  // namespace penstock
