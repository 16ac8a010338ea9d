// SPDX-License-Identifier: Apache-2.0
// Stacks: a layer taken apart costs what its parts cost, and the neutral stack says nothing.
#include "models/stack.hpp"

#include "models/kernels/kernel_times.hpp"
#include "models/layer/module.hpp"
#include "models/stage_costs.hpp"
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace penstock::stack_test {
namespace {

/// Half of the peak, and nothing else takes time.
StackSpec plain_stack() {
  StackSpec stack;
  stack.matrix_efficiency = 0.5;
  return stack;
}

DeviceSpec streaming_device() {
  DeviceSpec device = plain_device();
  device.memory_bytes_per_s = 1e12;
  device.memory_efficiency = 1;
  return device;
}

std::vector<StageCosts> costs_with(const StackSpec& stack, const TransformerSpec& model,
                                   const std::vector<int>& layers, StageCostOptions options = {}) {
  options.stack = stack;
  return stage_costs(model, streaming_device(), layers, options);
}

TEST(Stack, TakesALayerApart) {
  const TransformerSpec gpt = gpt_small();
  const auto c = costs_with(plain_stack(), gpt, {4, 4, 4});
  EXPECT_DOUBLE_EQ(c[1][OpKind::forward].seconds, 4 * gpt.layer_forward_flops(1) / 0.5e12);
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward].seconds, 2 * c[1][OpKind::forward].seconds);
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward].seconds,
                   c[1][OpKind::backward_input].seconds + c[1][OpKind::backward_weight].seconds);
  EXPECT_NEAR(c[2][OpKind::forward].seconds,
              c[1][OpKind::forward].seconds + gpt.head_forward_flops(1) / 0.5e12, 1e-12);
}

TEST(Stack, FlashAttentionLeavesOutWhatIsMasked) {
  const TransformerSpec llama = llama_3_8b();
  const double s = costs_with(plain_stack(), llama, {16, 16})[0][OpKind::forward].seconds;
  EXPECT_NEAR(s, 16 * (llama.layer_weight_flops(1) + llama.layer_attention_flops(1) / 2) / 0.5e12,
              1e-9);
}

TEST(Stack, WhatWasMeasuredOfADeviceGoesBeforeIt) {
  const TransformerSpec llama = llama_3_8b();
  DeviceSpec device = streaming_device();
  device.matrix_efficiency = 0.25;
  device.attention_efficiency = 0.125;
  const double s =
      stage_costs(llama, device, {16, 16}, {.stack = plain_stack()})[0][OpKind::forward].seconds;
  EXPECT_NEAR(
      s,
      16 * (llama.layer_weight_flops(1) / 0.25e12 + llama.layer_attention_flops(1) / 2 / 0.125e12),
      1e-9);
}

TEST(Stack, HeadsThatTensorCoresCannotTakeAreSlow) {
  StackSpec stack = plain_stack();
  stack.misaligned_attention = 0.05;
  TransformerSpec gpt = gpt_small();  // heads of 64
  const double aligned = costs_with(stack, gpt, {4, 4, 4})[1][OpKind::forward].seconds;
  EXPECT_DOUBLE_EQ(aligned, costs_with(plain_stack(), gpt, {4, 4, 4})[1][OpKind::forward].seconds);
  gpt.hidden_size = 756;
  gpt.num_attention_heads = 9;  // of 84
  const double misaligned = costs_with(stack, gpt, {4, 4, 4})[1][OpKind::forward].seconds;
  const double attention = 4 * gpt.layer_attention_flops(1);
  EXPECT_NEAR(misaligned - costs_with(plain_stack(), gpt, {4, 4, 4})[1][OpKind::forward].seconds,
              attention / 0.05e12 - attention / 0.5e12, 1e-9);
}

TEST(Stack, AVocabularyThatNobodyPaddedMakesASlowHead) {
  StackSpec stack = plain_stack();
  stack.misaligned_head = 0.05;
  TransformerSpec gpt = gpt_small();
  gpt.vocab_size = 50257;
  const auto more = [&](const StageCostOptions& options) {
    return costs_with(stack, gpt, {4, 4, 4}, options)[2][OpKind::forward].seconds -
           costs_with(plain_stack(), gpt, {4, 4, 4}, options)[2][OpKind::forward].seconds;
  };
  const double head = gpt.head_forward_flops(1);
  EXPECT_NEAR(more({}), head / 0.05e12 - head / 0.5e12, 1e-9);
  EXPECT_DOUBLE_EQ(more({.tensor = {2, false}}), 0);  // pads it
  gpt.vocab_size = 50264;
  EXPECT_DOUBLE_EQ(more({}), 0);
}

TEST(Stack, ThePaceIsTheMedianOfTheSlowest) {
  EXPECT_NEAR(slowest_pace({1}, {1}, 0.01), 1, 1e-12);
  // Phi(0.544952) = sqrt(1/2)
  EXPECT_NEAR(slowest_pace({1}, {2}, 0.01), 1.00544952, 1e-8);
  EXPECT_NEAR(slowest_pace({1, 1}, {1, 1}, 0.01), 1.00544952, 1e-8);
  // The light stage never binds, the one without work does not count.
  EXPECT_NEAR(slowest_pace({1, 0.5, 0}, {2, 2, 2}, 0.01), 1.00544952, 1e-8);
  EXPECT_DOUBLE_EQ(slowest_pace({1, 1}, {64, 64}, 0), 1);
}

TEST(Stack, OperandsAreReadAndWrittenByEveryProduct) {
  StackSpec stack = plain_stack();
  stack.operand_traffic = 1;
  const TransformerSpec gpt = gpt_small();
  const auto with = costs_with(stack, gpt, {4, 4, 4}),
             without = costs_with(plain_stack(), gpt, {4, 4, 4});
  // 12 h^2 weights; columns in and out: h + 3h, h + h, h + 4h, 4h + h.
  const double h = 768, tokens = 1024, bytes = 2 * (12 * h * h + tokens * 16 * h);
  EXPECT_NEAR(with[1][OpKind::forward].seconds - without[1][OpKind::forward].seconds,
              4 * bytes / 1e12, 1e-12);
  EXPECT_NEAR(with[1][OpKind::backward].seconds - without[1][OpKind::backward].seconds,
              2 * 4 * bytes / 1e12, 1e-12);
}

TEST(Stack, WhatRanksExchangeHidesTheHost) {
  StackSpec stack = plain_stack();
  const TransformerSpec gpt = gpt_small();
  const StageCostOptions unlinked{.tensor = {4, true}};
  const double gpu = costs_with(stack, gpt, {4, 4, 4}, unlinked)[1][OpKind::forward].seconds / 4;
  stack.forward_host_s = 100 * gpu;
  StageCostOptions linked = unlinked;
  linked.tensor_sum = CollectivePrice{30 * gpu};  // a layer's F has two all-reduces
  EXPECT_NEAR(costs_with(stack, gpt, {4, 4, 4}, unlinked)[1][OpKind::forward].seconds / 4,
              100 * gpu, 1e-3 * gpu);
  EXPECT_NEAR(costs_with(stack, gpt, {4, 4, 4}, linked)[1][OpKind::forward].seconds / 4,
              std::pow(std::pow(100, 4) + std::pow(61, 4), 0.25) * gpu - 60 * gpu, 1e-3 * gpu);
}

TEST(Stack, AddsTrafficAndGradientsOfEveryBackward) {
  StackSpec stack = plain_stack();
  stack.forward_traffic = 10;
  stack.accumulation = 8;
  const TransformerSpec gpt = gpt_small();
  const auto with = costs_with(stack, gpt, {4, 4, 4}),
             without = costs_with(plain_stack(), gpt, {4, 4, 4});
  EXPECT_NEAR(with[1][OpKind::forward].seconds - without[1][OpKind::forward].seconds,
              4 * 10 * 1024.0 * 768 / 1e12, 1e-12);
  EXPECT_NEAR(with[1][OpKind::backward].seconds - without[1][OpKind::backward].seconds,
              4 * 8 * static_cast<double>(gpt.layer_parameters()) / 1e12, 1e-12);
}

TEST(Stack, HostAndGpuJoinSmoothly) {
  const TransformerSpec gpt = gpt_small();
  const double gpu = costs_with(plain_stack(), gpt, {4, 4, 4})[1][OpKind::forward].seconds / 4;
  StackSpec stack = plain_stack();
  const auto layer_s = [&](double host_s) {
    stack.forward_host_s = host_s;
    return costs_with(stack, gpt, {4, 4, 4})[1][OpKind::forward].seconds / 4;
  };
  EXPECT_NEAR(layer_s(100 * gpu), 100 * gpu, 1e-6 * gpu);
  EXPECT_NEAR(layer_s(gpu / 100), gpu, 1e-6 * gpu);
  EXPECT_NEAR(layer_s(gpu), std::pow(2, 0.25) * gpu, 1e-9);
}

TEST(Stack, AStageWithoutLayersTakesNoTime) {
  StackSpec stack = plain_stack();
  stack.forward_host_s = stack.backward_host_s = 1;
  const auto c = costs_with(stack, gpt_small(), {6, 0, 6});
  EXPECT_EQ(c[1][OpKind::forward].seconds, 0);
  EXPECT_EQ(c[1][OpKind::backward].seconds, 0);
  EXPECT_EQ(c[1].activation_bytes, 0);
}

TEST(Stack, SaysWhatIsKept) {
  StackSpec stack = plain_stack();
  stack.kept_per_hidden = 40;
  stack.kept_per_column = 2;
  const double tokens = 1024, columns = 4 * 768.0;
  TransformerSpec gpt = gpt_small();
  gpt.flash_attention = true;
  const auto whole = costs_with(stack, gpt, {4, 4, 4});
  EXPECT_EQ(whole[1].activation_bytes, std::llround(4 * tokens * (40 * 768 + 2 * columns)));
  const auto divided = costs_with(stack, gpt, {4, 4, 4}, {.tensor = {4, true}});
  EXPECT_EQ(divided[1].activation_bytes,
            std::llround(4 * tokens * ((38 * 768 + 2 * columns) / 4 + 2 * 768)));
  const auto gathered = [](const StageCosts& c) {
    return c.ops[3].recipe.bytes(Axis::tensor, Collective::all_gather);
  };
  EXPECT_EQ(gathered(divided[1]), 0);
  stack.gathers_again = true;
  const auto again = costs_with(stack, gpt, {4, 4, 4}, {.tensor = {4, true}});
  EXPECT_EQ(again[1].activation_bytes, std::llround(4 * tokens * (40 * 768 + 2 * columns) / 4));
  EXPECT_EQ(gathered(again[1]), std::llround(4 * 2 * tokens * 2 * 768));
}

// 1024 x 50257 logits in bf16, and a layer's matrices: 3 h x h, h x h, h x 4h, 4h x h.
TEST(Stack, SaysHowTheLossIsMadeAndWhatGradientsLeaveBehind) {
  const TransformerSpec gpt = gpt_small();
  const double logits = 1024.0 * static_cast<double>(gpt.vocab_rows({}));
  StackSpec stack = plain_stack();
  const auto last = [&] { return costs_with(stack, gpt, {4, 4, 4})[2]; };
  const StageCosts separate = last();
  EXPECT_EQ(separate.forward_workspace_bytes, std::llround(6 * logits));
  stack.cross_entropy = CrossEntropy::fused;
  const StageCosts fused = last();
  EXPECT_EQ(fused.forward_workspace_bytes, std::llround(2 * logits));
  EXPECT_EQ(fused.activation_bytes, separate.activation_bytes);
  stack.cross_entropy = CrossEntropy::in_place;
  const StageCosts in_place = last();
  EXPECT_EQ(in_place.forward_workspace_bytes, 0);
  EXPECT_EQ(in_place.activation_bytes, separate.activation_bytes - std::llround(2 * logits));

  stack.gradient_placeholders = true;
  const double left = 2.0 * 12 * 768 * 768;
  EXPECT_EQ(last().forward_workspace_bytes, std::llround(left));
  EXPECT_EQ(last().backward_workspace_bytes, std::llround(left));
  const auto divided = costs_with(stack, gpt, {4, 4, 4}, {.tensor = {4, false}});
  // Parts of qkv 3/4 h x h and of the projection 1/4 h x h; those of up and down are alike, h x h.
  EXPECT_EQ(divided[1].forward_workspace_bytes, std::llround(2.0 * 2 * 768 * 768));
}

StackSpec keeping_stack() {
  StackSpec stack = plain_stack();
  stack.kept_per_hidden = 40;
  stack.kept_per_column = 2;
  stack.kept_whole = 0.2;
  stack.logits_kept = 4;
  return stack;
}

TEST(Stack, MoreRecomputationKeepsNoMoreAndTakesNoLess) {
  for (StackSpec stack : {StackSpec{}, plain_stack(), keeping_stack()})
    for (TransformerSpec model : {gpt_small(), llama_3_8b()})
      for (const bool flash : {false, true})
        for (const TensorParallel tensor : {TensorParallel{}, {4, false}, {4, true}})
          for (const int context : {1, 2}) {
            model.flash_attention = flash;
            StageCostOptions options{.tensor = tensor, .context = context};
            const int third = model.num_layers / 3;
            const std::vector<int> layers{third, third, model.num_layers - 2 * third};
            std::vector<std::vector<StageCosts>> all;
            for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full}) {
              options.recompute = Recomputation(r);
              all.push_back(costs_with(stack, model, layers, options));
            }
            for (std::size_t s = 0; s < layers.size(); ++s) {
              for (std::size_t r = 1; r < all.size(); ++r) {
                EXPECT_LE(all[r][s].activation_bytes, all[r - 1][s].activation_bytes);
                EXPECT_GE(all[r][s][OpKind::backward].seconds,
                          all[r - 1][s][OpKind::backward].seconds * (1 - 1e-12));
              }
              EXPECT_EQ(all[0][s].activation_bytes == all[1][s].activation_bytes, flash);
            }
          }
}

TEST(Stack, WithoutFlashAttentionProbabilitiesAreKept) {
  TransformerSpec gpt = gpt_small();  // 12 heads, 1024 tokens; dropout: 2 + 2 + 1 bytes
  const auto plain = costs_with(keeping_stack(), gpt, {4, 4, 4});
  gpt.flash_attention = !gpt.flash_attention;
  const auto other = costs_with(keeping_stack(), gpt, {4, 4, 4});
  EXPECT_EQ(std::abs(plain[1].activation_bytes - other[1].activation_bytes),
            4 * 5 * std::int64_t{12} * 1024 * 1024);
}

TEST(Stack, SinglePrecisionKeepsTwice) {
  TransformerSpec llama = llama_3_8b();
  llama.flash_attention = true;
  for (const TensorParallel tensor : {TensorParallel{}, {4, false}, {4, true}}) {
    llama.compute_type = "bf16";
    const auto half = costs_with(keeping_stack(), llama, {16, 16}, {.tensor = tensor});
    llama.compute_type = "fp32";
    const auto single = costs_with(keeping_stack(), llama, {16, 16}, {.tensor = tensor});
    EXPECT_NEAR(static_cast<double>(single[0].activation_bytes),
                2.0 * static_cast<double>(half[0].activation_bytes), 1);
  }
}

TEST(Stack, LayersKeepWhatTheyHaveBeyondTheirFamily) {
  StackSpec stack = plain_stack();
  stack.kept_per_hidden = 40;
  const TransformerSpec usual = llama_3_8b();
  TransformerSpec wide = usual, same = usual;
  wide.head_dim = 256;
  LayerForm form = wide.form();
  form.norms = 4;
  wide.own_form = form;
  same.own_form = same.form();
  const auto kept = [&](const TransformerSpec& model, const StackSpec& with) {
    return static_cast<double>(costs_with(with, model, {4, 4, 4})[1].activation_bytes);
  };
  EXPECT_EQ(kept(same, stack), kept(usual, stack));
  EXPECT_EQ(kept(wide, stack) - kept(usual, stack), kept(wide, {}) - kept(usual, {}));
  EXPECT_GT(kept(wide, stack), kept(usual, stack));
}

TEST(Stack, AParallelResidualSumsOncePerLayer) {
  TransformerSpec usual = llama_3_8b(), parallel = usual;
  LayerForm form = parallel.form();
  form.parallel_residual = true;
  parallel.own_form = form;
  const auto exchanged = [](const TransformerSpec& model) {
    StageCostOptions options;
    options.tensor = {4, false};
    std::int64_t bytes = 0;
    const std::vector<StageCosts> costs = costs_with({}, model, {4, 4, 4}, options);
    for (const Segment& s : costs[1].ops[0].recipe.segments)
      if (s.lane == Lane::exchange) bytes += s.bytes;
    return bytes;
  };
  EXPECT_GT(exchanged(parallel), 0);
  EXPECT_EQ(exchanged(usual), 2 * exchanged(parallel));
}

TEST(Stack, OptimizerMovesWhatItSays) {
  StackSpec stack;  // neutral but for this
  stack.optimizer_traffic = 30;
  stack.iteration_overhead_s = 1;
  const auto c = costs_with(stack, gpt_small(), {4, 4, 4});
  EXPECT_NEAR(c[1].step_s,
              1 + 30 * 4.0 * static_cast<double>(gpt_small().layer_parameters()) / 1e12, 1e-9);
  EXPECT_DOUBLE_EQ(c[1][OpKind::forward].seconds,
                   costs_with({}, gpt_small(), {4, 4, 4})[1][OpKind::forward].seconds);
}

/// Products at 0.25 TFLOP/s forward and whatever their sides, attention at 0.125, each kernel 1 us.
KernelTimes slow_kernels() {
  KernelTimes times;
  times.device = "plain";
  times.peak_flops_per_s = 1e12;
  times.memory_bytes_per_s = 1e12;
  times.multiprocessors = 1e-9;  // so no wave is left open
  times.attention_backward = 3;
  ProductLaw product;
  product.type = "bf16";
  product.flops_per_s = 0.25e12;
  product.launch_s = 1e-6;
  product.bytes_per_s = product.split_bytes_per_s = 1e12;
  product.tile_losses = {0, 0, 0};
  product.split_s = 1e9;
  product.patience_s = 1;
  times.products = {product};
  AttentionLaw attention;
  attention.type = "bf16";
  attention.head_dims = {128};
  attention.flops_per_s = {0.125e12};
  attention.launch_s = 1e-6;
  attention.bytes_per_s = attention.kv_bytes_per_s = 1e30;
  times.attention = {attention};
  return times;
}

TEST(Stack, MeasuredKernelsGoBeforeEfficiencies) {
  const TransformerSpec llama = llama_3_8b();
  DeviceSpec device = plain_device();  // of no bandwidth: nothing but kernels takes time
  const auto seconds = [&](int tensor, OpKind kind) {
    return stage_costs(llama, device, {1, 1, 1},
                       {.tensor = {.degree = tensor}, .stack = plain_stack()})[1][kind]
        .seconds;
  };
  const double efficient = seconds(1, OpKind::forward);
  device.kernel_times = std::make_shared<const KernelTimes>(slow_kernels());
  const double products = llama.layer_weight_flops(1) / 0.25e12;
  const double attention = llama.layer_attention_flops(1) / 2 / 0.125e12;  // half is masked
  EXPECT_NE(seconds(1, OpKind::forward), efficient);
  EXPECT_NEAR(seconds(1, OpKind::forward), products + attention + 5e-6, 1e-6);
  EXPECT_NEAR(seconds(1, OpKind::backward_input), products + 3 * attention + 7e-6, 1e-5);
  // 2 bytes of each element's sum take time of their own.
  const double matrices = llama.layer_weight_flops(1) / (2.0 * 8192);
  EXPECT_NEAR(seconds(1, OpKind::backward_weight), products + 2 * matrices / 1e12 + 4e-6, 1e-5);
  EXPECT_NEAR(seconds(4, OpKind::forward), (products + attention) / 4 + 5e-6, 1e-5);
}

TEST(Stack, ScoresOfAttentionThatIsNotFlashPassMemory) {
  const TransformerSpec gpt = gpt_small();
  const auto seconds = [&](double bytes_per_s, OpKind kind) {
    DeviceSpec device = streaming_device();
    device.memory_bytes_per_s = bytes_per_s;
    device.kernel_times = std::make_shared<const KernelTimes>(slow_kernels());
    return stage_costs(gpt, device, {1, 1, 1}, {.stack = plain_stack()})[1][kind].seconds;
  };
  const double flops = gpt.layer_weight_flops(1) + gpt.layer_attention_flops(1);
  EXPECT_NEAR(seconds(0, OpKind::forward), flops / 0.25e12, 1e-5);
  const double moved = Layer(gpt).work(1, {}).moved_bytes;
  const double pairs =
      static_cast<double>(gpt.num_attention_heads * gpt.seq_length * gpt.seq_length);
  // Half of the scores are read by the softmax, all written; dropout reads, writes and has a mask.
  EXPECT_NEAR(seconds(1e12, OpKind::forward) - seconds(0, OpKind::forward),
              (moved + (1 + 2 + 5) * pairs) / 1e12, 1e-9);
  EXPECT_NEAR(seconds(1e12, OpKind::backward_input) - seconds(0, OpKind::backward_input),
              (0.8 * moved + (2 + 2 + 5) * pairs) / 1e12, 1e-9);
}

TEST(Stack, OfATypeWithoutKernelsTheEfficienciesHold) {
  TransformerSpec llama = llama_3_8b();
  DeviceSpec device = plain_device();
  device.kernel_times = std::make_shared<const KernelTimes>(slow_kernels());
  llama.compute_type = "fp32";
  const auto forward = [&](const DeviceSpec& d) {
    return stage_costs(llama, d, {1, 1, 1}, {.stack = plain_stack()})[1][OpKind::forward].seconds;
  };
  EXPECT_EQ(forward(device), forward(plain_device()));
}

}  // namespace
}  // namespace penstock::stack_test
