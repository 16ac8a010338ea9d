// SPDX-License-Identifier: Apache-2.0
#include "hw/kernel_measurement.hpp"

#include "hw/math.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr double kKernelDeadline_s = 300;
constexpr std::int64_t kSides[] = {256, 1024, 4096, 8192};
constexpr std::int64_t kSequences[] = {256, 1024, 2048, 4096, 8192};
constexpr std::int64_t kHeads = 16, kHeadSize = 128;

/// Blocks of one device, given back at the end, filled as in a run: zeros take less power.
class KernelBlocks {
 public:
  explicit KernelBlocks(Device& device) : device_(device) {}
  ~KernelBlocks() {
    for (Block* block : blocks_) device_.release(kComputeQueue, block);
  }
  KernelBlocks(const KernelBlocks&) = delete;
  KernelBlocks& operator=(const KernelBlocks&) = delete;

  Tensor elements(std::int64_t count) {
    const Tensor made = bytes(count * device_.math().element_bytes());
    device_.math().fill_uniform(count, 1, blocks_.size(), made);
    return made;
  }
  Tensor zeros(std::int64_t count) {
    const Tensor made = bytes(count);
    device_.math().zero(count, made);
    return made;
  }

 private:
  Tensor bytes(std::int64_t count) {
    blocks_.push_back(device_.allocate(kComputeQueue, count));
    return {blocks_.back(), 0};
  }

  Device& device_;
  std::vector<Block*> blocks_;
};

class KernelMeasurement {
 public:
  KernelMeasurement(const KernelRequest& request, Device& device, RunControl& control)
      : request_(request), device_(device), control_(control) {}

  void run(MeasuredKernels& out) {
    for (const std::int64_t m : kSides)
      for (const std::int64_t n : kSides)
        for (const std::int64_t k : kSides)
          if (std::max({m, n, k}) <= request_.largest) measure_product(m, n, k, out);
    for (const std::int64_t seq : kSequences)
      if (seq <= request_.largest) measure_attention(seq, out);
    for (const std::int64_t side : kSides)
      if (side <= request_.largest) measure_copy(4 * side * side, out);
  }

 private:
  double seconds(const std::function<void()>& issue) {
    std::vector<double> rows;
    for (int row = -1; row < request_.rows; ++row) {
      const Event begin = device_.record(kComputeQueue);
      for (int i = 0; i < request_.in_row; ++i) issue();
      const Event end = device_.record(kComputeQueue);
      device_.finish();
      if (row >= 0) rows.push_back((end->time_s() - begin->time_s()) / request_.in_row);
      control_.progress();
    }
    std::ranges::nth_element(rows, rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2));
    return rows[rows.size() / 2];
  }

  void measure_product(std::int64_t m, std::int64_t n, std::int64_t k, MeasuredKernels& out) {
    KernelBlocks blocks(device_);
    Math& math = device_.math();
    const auto add = [&](Gemm shape, Tensor a, Tensor b, Tensor c) {
      const double time = seconds([&] { math.gemm(shape, a, b, c); });
      out.products.push_back({"bf16", static_cast<double>(m), static_cast<double>(n),
                              static_cast<double>(k), shape.fp32_output, time});
    };
    const Tensor a = blocks.elements(m * k), b = blocks.elements(k * n);
    add({.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n}, a, b, blocks.elements(m * n));
    add({.m = m,
         .n = n,
         .k = k,
         .transpose_a = true,
         .lda = m,
         .ldb = n,
         .ldc = n,
         .beta = 1,
         .fp32_output = true},
        a, b, blocks.zeros(4 * m * n));
  }

  void measure_attention(std::int64_t seq, MeasuredKernels& out) {
    KernelBlocks blocks(device_);
    Math& math = device_.math();
    const Attention shape{1, kHeads, seq, kHeadSize};
    const std::int64_t n = shape.rows() * shape.hidden();
    const Tensor qkv = blocks.elements(3 * n), context = blocks.elements(n);
    const Tensor sums = blocks.zeros(4 * shape.sums()), scratch = blocks.zeros(4 * shape.sums());
    const Tensor dcontext = blocks.elements(n), dqkv = blocks.elements(3 * n);
    const double forward = seconds([&] { math.attention(shape, qkv, context, sums); });
    const double backward = seconds(
        [&] { math.attention_backward(shape, qkv, context, sums, dcontext, scratch, dqkv); });
    out.attention.push_back(
        {"bf16", 1, static_cast<double>(seq), kHeads, kHeadSize, forward, backward});
  }

  void measure_copy(std::int64_t bytes, MeasuredKernels& out) {
    KernelBlocks blocks(device_);
    const Tensor from = blocks.elements(bytes / device_.math().element_bytes());
    const Tensor to = blocks.zeros(bytes);
    out.copies.push_back(
        {static_cast<double>(bytes), seconds([&] { device_.math().copy(bytes, from, to); })});
  }

  const KernelRequest& request_;
  Device& device_;
  RunControl& control_;
};

/// Returns a plan of one device without ops, as the backend wants one.
RunPlan plan_of_one_device() {
  RunPlan plan;
  plan.name = "kernels";
  plan.program.placement = loop_placement(1, 1, 1);
  plan.program.ops.end_device();
  plan.costs.resize(1);
  plan.layers = {1};
  return plan;
}

}  // namespace

MeasuredKernels measure_kernels(
    const KernelRequest& request,
    const std::function<std::unique_ptr<Backend>(const BackendRequest&)>& open) {
  const RunPlan plan = plan_of_one_device();
  RunSettings settings;
  settings.precision = Precision::bf16;
  settings.deadline_s = kKernelDeadline_s;
  RunControl control(settings.deadline_s);
  SingleProcess group;
  const auto backend = open({plan, settings, control, group, {0}});
  backend->start();
  MeasuredKernels out;
  out.machine = backend->describe();
  KernelMeasurement(request, backend->device(0), control).run(out);
  return out;
}

}  // namespace penstock
