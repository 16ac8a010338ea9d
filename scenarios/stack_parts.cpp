// SPDX-License-Identifier: Apache-2.0
#include "scenarios/stack_parts.hpp"

#include "models/kernels/kernel_times.hpp"

#include <fmt/format.h>

#include <cmath>

namespace penstock {
namespace {

constexpr StackNumber kNumbers[] = {
    {"matrix_efficiency", &StackSpec::matrix_efficiency, Dimension::fraction},
    {"attention_efficiency", &StackSpec::attention_efficiency, Dimension::fraction, true},
    {"misaligned_attention", &StackSpec::misaligned_attention, Dimension::fraction, true},
    {"misaligned_head", &StackSpec::misaligned_head, Dimension::fraction, true},
    {"product_slowdown", &StackSpec::product_slowdown, Dimension::fraction, true},
    {"narrow_slowdown", &StackSpec::narrow_slowdown, Dimension::fraction, true},
    {"beside_exchanges", &StackSpec::beside_exchanges, Dimension::fraction, true},
    {"operand_traffic", &StackSpec::operand_traffic, Dimension::number, true},
    {"forward_traffic", &StackSpec::forward_traffic, Dimension::number, true},
    {"backward_traffic", &StackSpec::backward_traffic, Dimension::number, true},
    {"accumulation", &StackSpec::accumulation, Dimension::number, true},
    {"logits_traffic", &StackSpec::logits_traffic, Dimension::number, true},
    {"forward_host", &StackSpec::forward_host_s, Dimension::time, true},
    {"backward_host", &StackSpec::backward_host_s, Dimension::time, true},
    {"tensor_host", &StackSpec::tensor_host_s, Dimension::time, true},
    {"link_efficiency", &StackSpec::link_efficiency, Dimension::fraction},
    {"link_latency", &StackSpec::link_latency_s, Dimension::time},
    {"node_latency", &StackSpec::node_latency_s, Dimension::time},
    {"speed_spread", &StackSpec::speed_spread, Dimension::fraction},
    {"optimizer_traffic", &StackSpec::optimizer_traffic, Dimension::number},
    {"iteration_overhead", &StackSpec::iteration_overhead_s, Dimension::time},
    {"kept_per_hidden", &StackSpec::kept_per_hidden, Dimension::number, false, true},
    {"kept_per_column", &StackSpec::kept_per_column, Dimension::number, false, true},
    {"kept_whole", &StackSpec::kept_whole, Dimension::number, false, true},
    {"logits_kept", &StackSpec::logits_kept, Dimension::number, false, true},
    {"weight_bytes", &StackSpec::weight_bytes, Dimension::number, false, true},
    {"gradient_bytes", &StackSpec::gradient_bytes, Dimension::number, false, true},
    {"fp16_gradient_bytes", &StackSpec::fp16_gradient_bytes, Dimension::number, false, true},
    {"optimizer_bytes", &StackSpec::optimizer_bytes, Dimension::number, false, true},
    {"reserved", &StackSpec::reserved_bytes, Dimension::bytes, false, true},
    {"allocator_slack", &StackSpec::allocator_slack, Dimension::fraction, false, true}};

/// A product and attention of a large layer, at which a device's own shares of peak are taken.
constexpr ProductShape kLargeProduct{8192, 8192, 8192};
constexpr AttentionShape kLargeAttention{1, 4096, 64, 8, 128};

/// Scales kernel times to what products and attention reach on the very machine, where its device
/// says that (`matrix_efficiency`, `attention_efficiency`): software, power and cooling differ.
void scale_to_machine(const DeviceSpec& device, KernelTimes& times) {
  const double peak = times.peak_flops_per_s;
  if (const auto s = times.product_s("bf16", kLargeProduct); s && device.matrix_efficiency > 0) {
    const double flops = 2 * kLargeProduct.m * kLargeProduct.n * kLargeProduct.k;
    const double factor = device.matrix_efficiency * peak * *s / flops;
    for (ProductLaw& law : times.products) law.flops_per_s *= factor, law.sustained = 1;
    for (ExpertsLaw& law : times.experts) law.flops_per_s *= factor;
  }
  const auto attention = times.attention_s(AttentionKind::causal, "bf16", kLargeAttention);
  if (!attention || device.attention_efficiency <= 0) return;
  // Forward and backward: 2 and 5 products of s^2 / 2 pairs.
  const double both = (2 + 5) * kLargeAttention.batch * kLargeAttention.heads *
                      kLargeAttention.seq * kLargeAttention.seq * kLargeAttention.head_dim;
  const double factor =
      device.attention_efficiency * peak * *attention * (1 + times.attention_backward) / both;
  for (AttentionLaw& law : times.attention)
    for (double& rate : law.flops_per_s) rate *= factor;
}

}  // namespace

std::span<const StackNumber> stack_numbers() { return kNumbers; }

StackSpec read_stack(const Section& section) {
  StackSpec stack;
  stack.name = section.text("name").value_or("inline stack");
  stack.fitted_on = section.text("fitted_on").value_or("");
  stack.matrix_efficiency_of = section.text("matrix_efficiency_of").value_or("");
  stack.overlaps_reduction = section.choice("reduction_overlap").value_or(0) == 1;
  stack.measured_kernels = section.choice("kernels").value_or(0) == 1;
  stack.gathers_again = section.choice("gathered_inputs").value_or(0) == 1;
  stack.cross_entropy = CrossEntropy(section.choice("cross_entropy").value_or(0));
  stack.gradient_placeholders = section.boolean("gradient_placeholders").value_or(false);
  stack.cuda_graphs = section.boolean("cuda_graphs").value_or(false);
  for (const StackNumber& number : kNumbers) {
    if (const auto value = section.number(number.key))
      std::visit([&](auto field) { stack.*field = *value; }, number.field);
    if (number.of_layers && section.has(number.key) && !section.has("matrix_efficiency"))
      section.refuse(number.key, fmt::format("'{}' needs 'matrix_efficiency'", number.key));
  }
  if (stack.measured_kernels && !section.has("logits_traffic"))
    stack.logits_traffic = logits_traffic_of(stack.cross_entropy);
  if (stack.measured_kernels && !section.has("matrix_efficiency"))
    section.refuse("kernels", "'kernels' needs 'matrix_efficiency', for devices without them");
  if (stack.cuda_graphs) stack.forward_host_s = stack.backward_host_s = stack.tensor_host_s = 0;
  if (stack.allocator_slack.value_or(0) >= 1)
    section.refuse("allocator_slack", "'allocator_slack' must be below 100%");
  for (const char* key : {"matrix_efficiency", "attention_efficiency", "link_efficiency"})
    if (section.has(key) && section.number(key).value_or(1) <= 0)
      section.refuse(key, fmt::format("'{}' must be more than 0", key));
  return stack;
}

void apply_to_model(const StackSpec& stack, TransformerSpec& model) {
  if (model.element_bytes() > 2) return;  // a stack's bytes are those of mixed precision
  model.bytes.weights = stack.weight_bytes.value_or(model.bytes.weights);
  model.bytes.gradients = stack.gradient_bytes.value_or(model.bytes.gradients);
  model.bytes.optimizer = stack.optimizer_bytes.value_or(model.bytes.optimizer);
  if (model.compute_type != "fp16" || !stack.fp16_gradient_bytes) return;
  model.bytes.gradients = model.bytes.reduced = *stack.fp16_gradient_bytes;
}

void apply_to_cluster(const StackSpec& stack, Cluster& cluster) {
  if (stack.link_efficiency != 1 && stack.link_efficiency > 0)
    scale_bandwidth(cluster, stack.link_efficiency);
  const auto apply = [&](NodeSpec& node) {
    node.intra.latency_s = stack.node_latency_s.value_or(node.intra.latency_s);
    node.inter.latency_s = stack.link_latency_s.value_or(node.inter.latency_s);
    node.device.allocator_slack = stack.allocator_slack.value_or(node.device.allocator_slack);
    if (auto times = stack.measured_kernels ? load_kernel_times(node.device) : std::nullopt) {
      if (node.attachment == Attachment::port)  // of the links' rate, not of the share reached
        node.measured = collective_laws(*times, node.intra.bytes_per_s / stack.link_efficiency);
      scale_to_machine(node.device, *times);
      node.device.kernel_times = std::make_shared<const KernelTimes>(*std::move(times));
    }
    if (stack.cuda_graphs) node.device.launch_s = 0;
    if (stack.reserved_bytes) node.device.reserved_bytes = std::llround(*stack.reserved_bytes);
  };
  apply(cluster);
  for (NodeGroup& group : cluster.groups) apply(group.node);
  if (cluster.link && stack.link_latency_s) cluster.link->latency_s = *stack.link_latency_s;
}

}  // namespace penstock
