#include "scenarios/stack_parts.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

/// Keys that say something only of layers taken apart.
constexpr const char* kOfLayers[] = {
    "attention_efficiency", "misaligned_attention", "operand_traffic", "forward_traffic",
    "backward_traffic",     "accumulation",         "logits_traffic",  "forward_host",
    "backward_host",        "tensor_host"};

}  // namespace

StackSpec read_stack(const Section& section) {
  StackSpec stack;
  const auto take = [&](const char* key, double& value) {
    value = section.number(key).value_or(value);
  };
  stack.name = section.text("name").value_or("inline stack");
  take("matrix_efficiency", stack.matrix_efficiency);
  take("attention_efficiency", stack.attention_efficiency);
  take("misaligned_attention", stack.misaligned_attention);
  take("operand_traffic", stack.operand_traffic);
  take("forward_traffic", stack.forward_traffic);
  take("backward_traffic", stack.backward_traffic);
  take("accumulation", stack.accumulation);
  take("logits_traffic", stack.logits_traffic);
  take("forward_host", stack.forward_host_s);
  take("backward_host", stack.backward_host_s);
  take("tensor_host", stack.tensor_host_s);
  take("link_efficiency", stack.link_efficiency);
  stack.link_latency_s = section.number("link_latency");
  stack.node_latency_s = section.number("node_latency");
  stack.overlaps_reduction = section.choice("reduction_overlap").value_or(0) == 1;
  take("optimizer_traffic", stack.optimizer_traffic);
  take("iteration_overhead", stack.iteration_overhead_s);
  take("kept_per_hidden", stack.kept_per_hidden);
  take("kept_per_column", stack.kept_per_column);
  stack.gathers_again = section.choice("gathered_inputs").value_or(0) == 1;
  take("logits_kept", stack.logits_kept);
  stack.weight_bytes = section.number("weight_bytes");
  stack.gradient_bytes = section.number("gradient_bytes");
  stack.optimizer_bytes = section.number("optimizer_bytes");
  for (const char* key : {"matrix_efficiency", "attention_efficiency", "link_efficiency"})
    if (section.has(key) && section.number(key).value_or(1) <= 0)
      section.refuse(key, fmt::format("'{}' must be more than 0", key));
  for (const char* key : kOfLayers)
    if (section.has(key) && !section.has("matrix_efficiency"))
      section.refuse(key, fmt::format("'{}' needs 'matrix_efficiency'", key));
  return stack;
}

void apply_to_model(const StackSpec& stack, TransformerSpec& model) {
  model.bytes.weights = stack.weight_bytes.value_or(model.bytes.weights);
  model.bytes.gradients = stack.gradient_bytes.value_or(model.bytes.gradients);
  model.bytes.optimizer = stack.optimizer_bytes.value_or(model.bytes.optimizer);
}

void apply_to_links(const StackSpec& stack, Cluster& cluster) {
  if (stack.link_efficiency != 1 && stack.link_efficiency > 0)
    scale_bandwidth(cluster, stack.link_efficiency);
  if (cluster.link || cluster.network) return;
  const auto slow = [&](LinkSpec& intra, LinkSpec& inter) {
    intra.latency_s = stack.node_latency_s.value_or(intra.latency_s);
    inter.latency_s = stack.link_latency_s.value_or(inter.latency_s);
  };
  slow(cluster.intra, cluster.inter);
  for (NodeGroup& group : cluster.groups) slow(group.node.intra, group.node.inter);
}

}  // namespace penstock
