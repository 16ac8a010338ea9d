// SPDX-License-Identifier: Apache-2.0
#include "models/cost/kept.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace penstock {
namespace {

std::int64_t rounded(double bytes) { return std::llround(bytes); }

/// What a layer keeps more than one of its family in 16 bits, whose layers a stack's numbers are
/// of.
double beyond_family_bytes(const StageJob& job) {
  const TransformerSpec& model = job.model;
  if (!model.own_form && !model.head_dim && !model.experts && !model.latent &&
      model.product_types == ProductTypes{})
    return 0;
  TransformerSpec usual = model.in_own_type();
  usual.own_form.reset();
  usual.head_dim.reset();
  usual.experts.reset();
  usual.latent.reset();
  return job.layer.kept(job.b, job.tensor, LayerPart::core_attn).bytes() -
         Layer(usual).kept(job.b, job.tensor, LayerPart::core_attn).bytes();
}

}  // namespace

double layer_bytes(const StageJob& job, LayerParts again) {
  const LayerKept kept = job.layer.kept(job.b, job.tensor, again);
  const StackSpec& stack = job.stack;
  // Selective checkpointing by a list of operations keeps what it lists, whatever kernels keep.
  const bool listed = again.contains(LayerPart::every_second_product);
  if (stack.kept_per_hidden <= 0 || listed) return kept.bytes();
  const double size = job.model.element_bytes() / 2;
  // What no rank divides: inputs of norms and of what follows them; with sequence parallelism one
  // gathered input, where linear layers keep it for W instead of gathering it again.
  const double inputs = job.tensor.sequence ? (job.keeps_gathered() ? 1 : 0) : 4;
  const double whole_on_each = size * (2 * inputs + stack.kept_whole);
  const double h = static_cast<double>(job.model.hidden_size);
  const double divided =
      (size * stack.kept_per_hidden - whole_on_each) * h +
      size * stack.kept_per_column * static_cast<double>(job.model.ffn_hidden_size);
  // Of attention's softmax the stack's numbers know nothing, and of what runs again.
  const double flash = job.layer.kept(job.b, job.tensor, LayerPart::core_attn).bytes();
  const double of_stack = job.b * static_cast<double>(job.model.seq_length) *
                          (divided / job.tensor.degree + whole_on_each * h);
  return std::max(of_stack + (kept.bytes() - flash) + beyond_family_bytes(job),
                  job.layer.input_bytes(job.b, job.tensor));
}

namespace {

double kept_logits_bytes(const StageJob& job) {
  const bool in_place = job.stack.cross_entropy == CrossEntropy::in_place;
  const double usual = in_place ? job.model.element_bytes() : 4;
  const double of_each = job.stack.logits_kept > 0 ? job.stack.logits_kept : usual;
  return job.model.logits_bytes(job.b, job.tensor) / 4 * of_each;
}

/// Returns the bytes of logits that are there beside the kept ones while the loss is made.
double logits_workspace_bytes(const StageJob& job) {
  const double separate = job.model.logits_workspace_bytes(job.b, job.tensor);
  const double element = job.model.element_bytes();
  switch (job.stack.cross_entropy) {
    case CrossEntropy::in_place: return 0;
    case CrossEntropy::fused: return separate * element / (4 + element);
    default: return separate;
  }
}

/// Returns the bytes of gradients that products leave behind, one of each shape.
double placeholder_bytes(const StageKinds& kinds) {
  const StageJob& job = kinds.front().job;
  if (!job.stack.gradient_placeholders) return 0;
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const auto& [of, count] : kinds)
    if (count.layers > 0) of.layer.add_shapes(of.tensor, shapes);
  double elements = 0;
  for (const auto& [rows, columns] : shapes) elements += static_cast<double>(rows * columns);
  return job.model.element_bytes() * elements;
}

LayerCount all_layers(const StageKinds& kinds) {
  LayerCount sum;
  for (const StageKind& kind : kinds) {
    sum.layers += kind.count.layers;
    sum.in_full += kind.count.in_full;
  }
  return sum;
}

/// Returns the bytes of activations that the backward makes again at once, beyond the inputs that
/// are kept: of layers of the largest kind.
double recomputed_bytes(const StageKinds& kinds) {
  double most = 0;
  const int layers = all_layers(kinds).layers;
  for (const auto& [job, count] : kinds) {
    if (count.layers == 0) continue;
    const double all = layer_bytes(job);
    if (job.selective()) most = std::max(most, all - layer_bytes(job, job.recompute.parts));
    if (job.recompute.in_full())
      most = std::max(most,
                      job.recompute.group(layers) * all - job.layer.input_bytes(job.b, job.tensor));
  }
  return most;
}

/// Returns the bytes that a microbatch keeps of a stage's layers, on the GPU or on its host.
double layers_bytes(const StageKinds& kinds) {
  const auto [layers, again] = all_layers(kinds);
  double kept = 0;
  for (const auto& [job, count] : kinds)
    if (count.layers > count.in_full)
      kept += (count.layers - count.in_full) *
              layer_bytes(job, job.selective() ? job.recompute.parts : LayerParts());
  const StageJob& job = kinds.front().job;
  const int group = job.recompute.group(layers);
  const double input = job.layer.input_bytes(job.b, job.tensor);
  return kept + (again + group - 1) / group * input;  // of whole groups and of what remains
}

}  // namespace

double offloaded_bytes(const StageKinds& kinds) {
  return kinds.front().job.recompute.offload * layers_bytes(kinds);
}

double passed_bytes(const StageJob& job) {
  return job.model.element_bytes() * job.b * static_cast<double>(job.model.seq_length) *
         static_cast<double>(job.model.key_size() + job.model.value_size()) / job.tensor.degree;
}

void set_kept_bytes(const StageKinds& kinds, bool first, bool last, PassCosts& costs) {
  const StageJob& job = kinds.front().job;
  const TransformerSpec& model = job.model;
  const int layers = all_layers(kinds).layers;
  const double input = job.layer.input_bytes(job.b, job.tensor);
  const double offloaded = offloaded_bytes(kinds);
  const double kept_logits = kept_logits_bytes(job);
  // The LM head keeps the inputs of the final norm and of its product; its W reads them and the
  // gradient of the logits, whatever layers recompute (Korthikanti et al., section 4.3).
  const double gradient = model.logits_bytes(job.b, job.tensor) / 4 * model.element_bytes();
  const double head = last ? std::min(kept_logits, gradient) + 2 * input : 0;
  const double mask = first && model.form().dropout ? input / model.element_bytes() : 0;
  costs.activation_bytes =
      rounded(layers_bytes(kinds) - offloaded + mask + (last ? kept_logits + 2 * input : 0));
  // W reads the inputs of its products, also those that I has made again.
  double for_weight = 0, largest = 0;
  for (const auto& [of, count] : kinds) {
    if (count.layers == 0 && kinds.size() > 1) continue;
    const double all = layer_bytes(of);
    for_weight += count.layers * std::min(of.layer.kept(of.b, of.tensor).until_weight, all);
    largest = std::max(largest, all);
  }
  costs.activation_after_input_bytes = rounded(for_weight + head);
  // A layer that runs without keeping its activations still makes them, one layer at a time; the
  // backward those of a group.
  const double recomputed = recomputed_bytes(kinds);
  const double made = std::min(recomputed, largest);
  const double logits_workspace = last ? logits_workspace_bytes(job) : 0;
  // Sequence parallelism gathers the input of one matrix at a time and does not keep it.
  const double gathered = job.tensor.sequence ? model.layer_input_bytes(job.b) : 0;
  // What comes round next arrives while attention is computed, in the backward with its gradient;
  // what is gathered is there as a whole.
  const double parts = job.context_exchange == ContextExchange::all_gather ? job.context - 1 : 1;
  const double next = job.context > 1 && layers > 0 ? parts * passed_bytes(job) : 0;
  // A layer is copied while the next one is computed.
  const double copied = layers > 0 ? std::min(2, layers) * offloaded / layers : 0;
  const double throughout = gathered + copied + placeholder_bytes(kinds);
  costs.forward_workspace_bytes = rounded(std::max(made, logits_workspace) + next + throughout);
  costs.backward_workspace_bytes =
      rounded(std::max(recomputed, logits_workspace) + 2 * next + throughout);
  costs.again_workspace_bytes =
      costs.backward_workspace_bytes - rounded(logits_workspace + gathered + 2 * next);
}

}  // namespace penstock
