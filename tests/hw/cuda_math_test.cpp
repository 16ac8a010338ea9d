// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a GPU against the host's, in both precisions.
#include "tests/hw/cuda_rig.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

namespace penstock::cuda_test {
namespace {

/// A calculation on device 0: makes tensors, calculates, returns results to compare.
using Calculation = std::function<std::vector<float>(Device&, Math&)>;

std::vector<float> on(const std::string& backend, const Calculation& calculate,
                      Precision precision = Precision::fp32) {
  RunSettings settings;
  settings.precision = backend == "cuda" ? precision : Precision::fp32;
  Opened run(backend, two_devices(), settings);
  Device& device = run.backend->device(0);
  std::vector<float> result = calculate(device, device.math());
  device.finish();
  return result;
}

/// The GPU gives the host's results to `tolerance` of their size, and the same bits twice.
void expect_as_on_host(const Calculation& calculate, float tolerance,
                       Precision precision = Precision::fp32) {
  const std::vector<float> host = on("host", calculate);
  const std::vector<float> gpu = on("cuda", calculate, precision);
  ASSERT_EQ(host.size(), gpu.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < host.size(); ++i) {
    difference += std::pow(static_cast<double>(host[i]) - static_cast<double>(gpu[i]), 2);
    size += std::pow(static_cast<double>(host[i]), 2);
  }
  EXPECT_GT(size, 0);
  EXPECT_LE(std::sqrt(difference / size), static_cast<double>(tolerance));
  const std::vector<float> again = on("cuda", calculate, precision);
  EXPECT_EQ(std::memcmp(gpu.data(), again.data(), gpu.size() * sizeof(float)), 0);
}

TEST_F(Gpu, MatrixProductsOfEveryTranspositionAgreeWithTheHost) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      SCOPED_TRACE(std::to_string(transpose_a) + std::to_string(transpose_b));
      expect_as_on_host(
          [=](Device& device, Math& math) {
            constexpr std::int64_t m = 96, n = 64, k = 160, batch = 3;
            Gemm shape{m, n, k, transpose_a, transpose_b};
            shape.lda = transpose_a ? m : k;
            shape.ldb = transpose_b ? k : n;
            shape.ldc = n;
            shape.alpha = 0.5F;
            shape.beta = 2;
            shape.batch = batch;
            shape.stride_a = m * k;
            shape.stride_b = n * k;
            shape.stride_c = m * n;
            const Tensor c = uploaded(device, numbers(batch * m * n, 3));
            math.gemm(shape, uploaded(device, numbers(batch * m * k, 1)),
                      uploaded(device, numbers(batch * n * k, 2)), c);
            return downloaded(device, c, batch * m * n);
          },
          1e-5F);
    }
  }
}

TEST_F(Gpu, LayerNormAndItsGradientsAgreeWithTheHost) {
  expect_as_on_host(
      [](Device& device, Math& math) {
        constexpr std::int64_t rows = 70, cols = 101;
        const auto make = [&](std::int64_t n, int seed) {
          return uploaded(device, numbers(static_cast<std::size_t>(n), seed));
        };
        const Tensor x = make(rows * cols, 1), gamma = make(cols, 2), beta = make(cols, 3);
        const Tensor mean = make(rows, 0), rstd = make(rows, 0), y = make(rows * cols, 0);
        const Tensor dgamma = make(cols, 5), dbeta = make(cols, 6), dx = make(rows * cols, 0);
        math.layer_norm(rows, cols, x, gamma, beta, y, mean, rstd);
        math.layer_norm_backward(rows, cols, y, x, gamma, mean, rstd, x, dx);
        math.layer_norm_backward_weight(rows, cols, y, x, mean, rstd, dgamma, dbeta);
        std::vector<float> all = downloaded(device, dx, rows * cols);
        for (const Tensor t : {dgamma, dbeta}) {
          const auto more = downloaded(device, t, cols);
          all.insert(all.end(), more.begin(), more.end());
        }
        return all;
      },
      1e-4F);
}

TEST_F(Gpu, AttentionGeluAndLossesAgreeWithTheHost) {
  expect_as_on_host(
      [](Device& device, Math& math) {
        constexpr std::int64_t rows = 64, keys = 32;
        const AttentionRows shape{rows, keys, true, 0.3F};
        const Tensor p = uploaded(device, numbers(rows * keys, 1));
        const Tensor d = uploaded(device, numbers(rows * keys, 2));
        const Tensor loss = uploaded(device, {0});
        const Tensor losses = uploaded(device, numbers(rows));
        const Tensor targets{device.allocate(kComputeQueue, rows * 4)};
        math.attention_softmax(shape, p);
        math.attention_softmax_backward(shape, p, d);
        math.gelu(rows * keys, d, d);
        math.gelu_backward(rows * keys, d, p, d);
        math.generate_tokens(
            {.seed = 7, .microbatch = 1, .sequences = 8, .seq_length = 8, .vocab_size = keys}, {},
            targets);
        math.cross_entropy(rows, keys, d, targets, losses, loss);
        math.cross_entropy_backward(rows, keys, targets, d);
        std::vector<float> all = downloaded(device, d, rows * keys);
        all.push_back(downloaded(device, loss, 1)[0]);
        return all;
      },
      1e-4F);
}

/// What a bf16 holds of each number, so that both precisions begin with the same.
std::vector<float> short_numbers(std::int64_t n, int seed) {
  std::vector<float> v = numbers(static_cast<std::size_t>(n), seed);
  for (float& x : v) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U);
  return v;
}

/// As working elements.
Tensor working(Device& device, const std::vector<float>& v) {
  const auto n = static_cast<std::int64_t>(v.size());
  const Tensor to{device.allocate(kComputeQueue, n * device.math().element_bytes())};
  device.math().round(n, uploaded(device, v), to);
  return to;
}

void append(std::vector<float>& all, Device& device, Tensor t, std::int64_t n) {
  const auto count = static_cast<std::size_t>(n);
  if (device.math().element_bytes() == 4) {
    const std::vector<float> more = downloaded(device, t, count);
    all.insert(all.end(), more.begin(), more.end());
    return;
  }
  std::vector<std::uint16_t> halves(count);
  device.download(halves.data(), t, 2 * n);
  for (const std::uint16_t h : halves)
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16));
}

constexpr struct {
  Precision precision;
  float tolerance;
} kBothPrecisions[] = {{Precision::fp32, 1e-5F}, {Precision::bf16, 1e-2F}};

TEST_F(Gpu, FusedAttentionAgreesWithTheHost) {
  // Lengths around tiles of 16, 32 and 64 rows; heads that fill a tile, that do not, and that are
  // no whole pieces of 16 bytes.
  const Attention shapes[] = {{2, 3, 150, 32, true},  {1, 2, 64, 64, true}, {1, 2, 65, 128, true},
                              {2, 2, 33, 40, true},   {3, 1, 16, 8, true},  {1, 3, 1, 16, true},
                              {1, 2, 97, 64, false},  {1, 2, 50, 5, true},  {1, 1, 31, 99, false},
                              {1, 1, 130, 128, true}, {2, 2, 48, 96, false}};
  std::size_t number = 0;
  for (const Attention& shape : shapes) {
    if ((kBrief && shape.rows() > 70) || is_left_out(number++)) continue;
    for (const auto& [precision, tolerance] : kBothPrecisions) {
      SCOPED_TRACE(fmt::format("{} of {}, {} heads of {}{}{}", shape.sequences, shape.seq_length,
                               shape.heads, shape.head_size, shape.causal ? ", causal" : "",
                               precision == Precision::bf16 ? ", bf16" : ""));
      const std::int64_t n = shape.rows() * shape.hidden();
      const auto forward_and_backward = [&](Device& device, Math& math) {
        const Tensor qkv = working(device, short_numbers(3 * n, 1));
        const Tensor dcontext = working(device, short_numbers(n, 2));
        const Tensor context = working(device, short_numbers(n, 3));
        const Tensor dqkv = working(device, short_numbers(3 * n, 4));
        const Tensor sums = uploaded(device, numbers(static_cast<std::size_t>(shape.sums())));
        const Tensor scratch = uploaded(device, numbers(static_cast<std::size_t>(shape.sums())));
        math.attention(shape, qkv, context, sums);
        math.attention_backward(shape, qkv, context, sums, dcontext, scratch, dqkv);
        std::vector<float> all;
        append(all, device, context, n);
        append(all, device, dqkv, 3 * n);
        return all;
      };
      expect_as_on_host(forward_and_backward, tolerance, precision);
    }
  }
}

/// A product with its epilogue, and what is beside it.
std::vector<float> with_epilogue(Device& device, Math& math, Epilogue::Kind kind, std::int64_t n,
                                 bool residual) {
  constexpr std::int64_t m = 48, k = 64;
  const bool gradient = kind == Epilogue::Kind::bias_gradient;
  Gemm shape{m, n, k, gradient, !gradient};
  shape.lda = gradient ? m : k, shape.ldb = gradient ? n : k, shape.ldc = n;
  shape.beta = gradient ? 1 : 0;
  shape.fp32_output = gradient;
  const auto made = [&](std::int64_t count, int seed) {
    return gradient ? uploaded(device, numbers(static_cast<std::size_t>(count), seed))
                    : working(device, short_numbers(count, seed));
  };
  const Tensor a = working(device, short_numbers(m * k, 1));
  const Tensor b = working(device, short_numbers(n * k, 2));
  const Tensor c = made(m * n, 3), bias = made(gradient ? m : n, 4), aux = made(m * n, 5);
  const bool with_aux = kind == Epilogue::Kind::bias_gelu || kind == Epilogue::Kind::gelu_backward;
  math.gemm_with(shape, a, b, c,
                 {kind, kind == Epilogue::Kind::gelu_backward ? Tensor{} : bias,
                  with_aux ? aux : Tensor{}, residual ? made(m * n, 6) : Tensor{}});
  std::vector<float> all;
  if (gradient) {
    all = downloaded(device, c, m * n);
    const std::vector<float> sums = downloaded(device, bias, m);
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  }
  append(all, device, c, m * n);
  if (with_aux) append(all, device, aux, m * n);
  return all;
}

TEST_F(Gpu, ProductsWithEpiloguesAgreeWithTheHost) {
  std::size_t number = 0;
  for (const auto kind : {Epilogue::Kind::bias, Epilogue::Kind::bias_gelu,
                          Epilogue::Kind::gelu_backward, Epilogue::Kind::bias_gradient}) {
    if (is_left_out(number++)) continue;
    for (const std::int64_t n : {std::int64_t{32}, std::int64_t{27}}) {  // 27: no auxiliary matrix
      for (const auto& [precision, tolerance] : kBothPrecisions) {
        for (const bool residual : {false, true}) {
          if (residual && kind != Epilogue::Kind::bias) continue;
          SCOPED_TRACE(fmt::format("epilogue {}, {} columns{}{}", static_cast<int>(kind), n,
                                   residual ? ", residual" : "",
                                   precision == Precision::bf16 ? ", bf16" : ""));
          expect_as_on_host(
              [&](Device& device, Math& math) {
                return with_epilogue(device, math, kind, n, residual);
              },
              tolerance, precision);
        }
      }
    }
  }
}

/// Every element kernel of `math` on arrays of n, each of them `offset` numbers into its block.
std::vector<float> element_by_element(Device& device, Math& math, std::int64_t n,
                                      std::int64_t offset) {
  const std::int64_t e = math.element_bytes();
  const auto fp32 = [&](int seed) {
    return uploaded(device, numbers(static_cast<std::size_t>(n + offset), seed)).at(4 * offset);
  };
  const auto short_ones = [&](int seed) {
    return working(device, short_numbers(n + offset, seed)).at(e * offset);
  };
  std::vector<float> all;
  const auto keep_fp32 = [&](Tensor t) {
    const auto more = downloaded(device, t, static_cast<std::size_t>(n));
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const bool momentum : {false, true}) {
    const StepTensors t{fp32(1), fp32(2), short_ones(3), fp32(4), momentum ? fp32(5) : Tensor{}};
    math.sgd_step(n, t, {0.3, 0.5, momentum ? 0.9 : 0, 0.1});
    for (const Tensor x : {t.master_out, t.gradient}) keep_fp32(x);
    if (momentum) keep_fp32(t.first_moment);
    append(all, device, t.working_out, n);
  }
  StepTensors t{fp32(1), fp32(2), short_ones(3), fp32(4), fp32(5), fp32(6)};
  math.zero(4 * n, t.second_moment);
  math.adamw_step(n, t, {.learning_rate = 0.1}, 3);
  math.adamw_step(n, t, {.learning_rate = 0.1, .nesterov = true}, 4);
  for (const Tensor x : {t.master_out, t.gradient, t.first_moment, t.second_moment}) keep_fp32(x);
  append(all, device, t.working_out, n);
  const StepTensors muon{fp32(1), fp32(2), short_ones(3), fp32(4), fp32(5)};
  const Tensor direction = short_ones(11);
  const MuonSettings settings{.learning_rate = 0.1, .gradient_scale = 0.5, .kept = 0.9};
  math.muon_direction(n, muon, settings, direction);
  append(all, device, direction, n);
  math.muon_step(n, muon, settings, direction);
  for (const Tensor x : {muon.master_out, muon.gradient, muon.first_moment}) keep_fp32(x);
  append(all, device, muon.working_out, n);
  const Tensor x = short_ones(7), y = short_ones(8), clipped = fp32(9), sum = fp32(10);
  math.blend(n, 0.5F, x, -2, y, y);
  math.add_tensors(n, x, y, x);
  math.clip(n, 0.25F, clipped);
  math.accumulate(n, clipped, sum);
  for (const Tensor z : {x, y}) append(all, device, z, n);
  keep_fp32(sum);
  math.fill_uniform(n, 3, 4, x);
  append(all, device, x, n);
  return all;
}

TEST_F(Gpu, ElementKernelsAgreeWithTheHostWhateverTheAlignment) {
  std::size_t number = 0;
  for (const std::int64_t n : {3001, 3000}) {
    for (const std::int64_t offset : {0, 1, 8}) {
      if (is_left_out(number++)) continue;
      for (const auto& [precision, tolerance] : kBothPrecisions) {
        SCOPED_TRACE(fmt::format("{} numbers from {} on{}", n, offset,
                                 precision == Precision::bf16 ? ", bf16" : ""));
        expect_as_on_host([&](Device& d, Math& m) { return element_by_element(d, m, n, offset); },
                          tolerance, precision);
      }
    }
  }
}

/// Steps of basis rotation through two renewals of its bases: the weights after each of them, and
/// the moments.
std::vector<float> rotated(Device& device, Math& math, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kSteps = 2 * kRotationEvery + 1;
  const std::int64_t n = rows * cols, scratch = rotation_scratch_numbers(rows, cols);
  const auto zeros = [&](std::int64_t count) {
    const Tensor t{device.allocate(kComputeQueue, 4 * count)};
    math.zero(4 * count, t);
    return t;
  };
  const Tensor weights = uploaded(device, numbers(static_cast<std::size_t>(n), 1));
  const StepTensors t{.master_in = weights,
                      .master_out = weights,
                      .working_out = working(device, short_numbers(n, 2)),
                      .gradient = zeros(n),
                      .first_moment = zeros(n),
                      .second_moment = zeros(n)};
  const Tensor kept = zeros(rotation_numbers(rows, cols)), room = zeros(scratch);
  // An epsilon that hides directions in which a gradient has nothing but rounding.
  const AdamwSettings settings{.learning_rate = 0.05, .epsilon = 1e-4, .gradient_scale = 0.5};
  std::vector<float> all;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    std::vector<float> gradient(static_cast<std::size_t>(n));
    std::uint32_t state = static_cast<std::uint32_t>(step);
    for (float& g : gradient) {
      state = state * 1664525U + 1013904223U;
      g = static_cast<float>(state >> 16) / 65536.0F - 0.5F;
    }
    device.upload(t.gradient, gradient.data(), bytes_of(gradient));
    math.rotated_step(rows, cols, t, kept, room, settings, step);
    append(all, device, t.working_out, n);
  }
  for (const Tensor& x : {weights, t.gradient, t.first_moment, t.second_moment}) {
    const auto more = downloaded(device, x, static_cast<std::size_t>(n));
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST_F(Gpu, StepsOfBasisRotationAgreeWithTheHost) {
  for (const auto& [rows, cols] : {std::pair{24, 40}, {33, 16}, {1, 7}}) {
    for (const auto& [precision, tolerance] : kBothPrecisions) {
      SCOPED_TRACE(
          fmt::format("{} x {}{}", rows, cols, precision == Precision::bf16 ? ", bf16" : ""));
      expect_as_on_host(
          [rows = rows, cols = cols](Device& device, Math& math) {
            return rotated(device, math, rows, cols);
          },
          tolerance, precision);
    }
  }
}

TEST_F(Gpu, EmbeddingsAndStoredProbabilitiesAgreeWithTheHost) {
  for (const std::int64_t cols : {27, 32}) {
    for (const auto& [precision, tolerance] : kBothPrecisions) {
      SCOPED_TRACE(fmt::format("{}{}", cols, precision == Precision::bf16 ? ", bf16" : ""));
      expect_as_on_host(
          [&](Device& device, Math& math) {
            constexpr std::int64_t rows = 12, length = 6, vocabulary = 9;
            const Tensor tokens{device.allocate(kComputeQueue, rows * 4)};
            math.generate_tokens({.seed = 5,
                                  .microbatch = 1,
                                  .sequences = 2,
                                  .seq_length = length,
                                  .vocab_size = vocabulary},
                                 tokens, {});
            const Tensor table = working(device, short_numbers(vocabulary * cols, 1));
            const Tensor places = working(device, short_numbers(length * cols, 2));
            const Tensor y = working(device, short_numbers(rows * cols, 3));
            math.embedding(rows, cols, length, tokens, table, places, y);
            const auto sums = [&](std::int64_t n, int seed) {
              return uploaded(device, numbers(static_cast<std::size_t>(n), seed));
            };
            const Tensor dtable = sums(vocabulary * cols, 4), dplaces = sums(length * cols, 5);
            math.embedding_backward(rows, cols, length, tokens, y, dtable, dplaces);
            const Tensor p = working(device, short_numbers(2 * cols * cols, 6));
            const Tensor d = working(device, short_numbers(2 * cols * cols, 7));
            const AttentionRows shape{2 * cols, cols, true, 0.3F};
            math.attention_softmax(shape, p);
            math.attention_softmax_backward(shape, p, d);
            std::vector<float> all;
            for (const auto& [t, n] :
                 {std::pair{y, rows * cols}, {p, 2 * cols * cols}, {d, 2 * cols * cols}})
              append(all, device, t, n);
            for (const auto& [t, n] :
                 {std::pair{dtable, vocabulary * cols}, {dplaces, length * cols}}) {
              const auto more = downloaded(device, t, static_cast<std::size_t>(n));
              all.insert(all.end(), more.begin(), more.end());
            }
            return all;
          },
          tolerance, precision);
    }
  }
}

}  // namespace
}  // namespace penstock::cuda_test
