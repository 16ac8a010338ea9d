// SPDX-License-Identifier: Apache-2.0
// The arithmetic of Math that is not a matrix product, written once for the host and for CUDA.
//
// A kernel is run by a Team: rank() of size() threads that share a row, a column or a whole array,
// sum(x) and max(x) over the team (the result on every thread, after all have got there). On the
// host a team is one thread; on CUDA a block. *_row: one team per row. *_columns: one team per
// Team::columns neighbouring columns, whose threads share the rows. *_each: one team per array (on
// CUDA the whole grid; sum is not used). Kernels keep to one place per thread where a result may
// overwrite an operand. T is the working type; computing is in fp32.
// N neighbours are loaded and stored at once, on CUDA 16 bytes at a time, where the pieces of all
// rows are aligned; else 1. `cols` or `n` is a multiple of it. It decides the order of a row's
// sums.
//   layer norm   y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + 1e-5)
//                dx = rstd (g - mean(g) - xh mean(g xh)), g = dy gamma, xh = (x - mean) rstd
//   softmax      p = exp(s x - max) / sum, dx = s p (dp - sum(p dp))
//   GELU         x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): 0.5 x (1 + tanh u)
// The optimizers' kernels are in hw/optimizer_kernels.hpp.
// Sources: Ba et al., 2016 (layer norm); Hendrycks and Gimpel, 2016 (GELU); Steele et al.,
// OOPSLA'14 (the hash's finalizer, SplitMix64).
#pragma once

#include "hw/math.hpp"

#include <cmath>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#define PENSTOCK_HD __host__ __device__
#else
#define PENSTOCK_HD
#endif

namespace penstock::kernels {

PENSTOCK_HD inline float to_float(float x) { return x; }
template <class T>
PENSTOCK_HD T from_float(float x);
template <>
PENSTOCK_HD inline float from_float<float>(float x) {
  return x;
}
#ifdef __CUDA_BF16_TYPES_EXIST__
PENSTOCK_HD inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <>
PENSTOCK_HD inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16(x);
}
#endif

/// One thread alone; 16 columns are a cache line of floats.
struct HostTeam {
  static constexpr int columns = 16;
  PENSTOCK_HD std::int64_t rank() const { return 0; }
  PENSTOCK_HD std::int64_t size() const { return 1; }
  PENSTOCK_HD float sum(float x) const { return x; }
  PENSTOCK_HD float max(float x) const { return x; }
};

/// N neighbours.
template <class T, int N>
struct Pack {
  T at[N];
};
#ifdef __CUDA_ARCH__
inline constexpr bool kOnGpu = true;
#else
inline constexpr bool kOnGpu = false;
#endif
/// 16 bytes, which a thread of a GPU loads at once.
struct alignas(16) Words {
  std::uint32_t at[4];
};
template <int N, class T>
PENSTOCK_HD Pack<T, N> load(const T* from) {
  Pack<T, N> pack;
  if constexpr (kOnGpu && sizeof pack % sizeof(Words) == 0) {
    Words words[sizeof pack / sizeof(Words)];
    for (std::size_t w = 0; w < sizeof pack / sizeof(Words); ++w)
      words[w] = reinterpret_cast<const Words*>(from)[w];
    memcpy(&pack, words, sizeof pack);
  } else {
    for (int k = 0; k < N; ++k) pack.at[k] = from[k];
  }
  return pack;
}
template <int N, class T>
PENSTOCK_HD void store(T* to, const Pack<T, N>& pack) {
  if constexpr (kOnGpu && sizeof pack % sizeof(Words) == 0) {
    Words words[sizeof pack / sizeof(Words)];
    memcpy(words, &pack, sizeof pack);
    for (std::size_t w = 0; w < sizeof pack / sizeof(Words); ++w)
      reinterpret_cast<Words*>(to)[w] = words[w];
  } else {
    for (int k = 0; k < N; ++k) to[k] = pack.at[k];
  }
}
/// The N floats f(k).
template <int N, class T, class F>
PENSTOCK_HD void store_each(T* to, const F& f) {
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) pack.at[k] = from_float<T>(f(k));
  store<N>(to, pack);
}
/// f(first of N) for all of the team's.
template <int N, class Team, class F>
PENSTOCK_HD void each_pack(const Team& team, std::int64_t n, const F& f) {
  for (std::int64_t i = team.rank() * N; i < n; i += team.size() * N) f(i);
}

// Counter-based randomness.

PENSTOCK_HD inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
PENSTOCK_HD inline std::uint64_t hash(std::uint64_t seed, std::uint64_t stream,
                                      std::uint64_t index) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  return mix(index * golden + mix(stream * golden + mix(seed + golden)));
}
/// In [-1, 1), all 24 bits of a float.
PENSTOCK_HD inline float uniform(std::uint64_t hash) {
  return static_cast<float>(hash >> 40) * 0x1p-23F - 1.0F;
}
PENSTOCK_HD inline std::int32_t markov_token(const TokenSource& source, std::uint64_t stream,
                                             std::int64_t position) {
  const auto vocabulary = static_cast<std::uint64_t>(source.vocab_size);
  std::uint64_t state = hash(source.seed, stream, 0) % vocabulary;
  for (std::int64_t i = 1; i <= position; ++i) {
    const std::uint64_t eighth = hash(source.seed, stream, static_cast<std::uint64_t>(i)) >> 61;
    const std::uint64_t branch = eighth < 4 ? 0 : eighth < 6 ? 1 : eighth - 4;
    state = (static_cast<std::uint64_t>(source.multiplier) * state + 1 + branch) % vocabulary;
  }
  return static_cast<std::int32_t>(state);
}
PENSTOCK_HD inline std::int32_t token(const TokenSource& source, std::int64_t sequence,
                                      std::int64_t position) {
  const std::uint64_t stream =
      (static_cast<std::uint64_t>(source.microbatch) << 32) + static_cast<std::uint64_t>(sequence);
  if (source.kind == TokenSource::Kind::markov) return markov_token(source, stream, position);
  if (source.kind == TokenSource::Kind::text) {
    const auto windows = static_cast<std::uint64_t>(source.text_bytes - source.seq_length);
    return source
        .text[hash(source.seed, stream, 0) % windows + static_cast<std::uint64_t>(position)];
  }
  // The product of two uniform numbers, so that low tokens are frequent and there is something to
  // learn.
  const std::uint64_t h = hash(source.seed, stream, static_cast<std::uint64_t>(position));
  const std::uint64_t skewed = ((h >> 32) * (h & 0xffffffffU)) >> 32;
  return static_cast<std::int32_t>((skewed * static_cast<std::uint64_t>(source.vocab_size)) >> 32);
}

// Layer norm.

template <int N = 1, class Team, class T>
PENSTOCK_HD void layer_norm_row(const Team& team, std::int64_t row, std::int64_t cols, const T* x,
                                const T* gamma, const T* beta, T* y, float* mean, float* rstd) {
  x += row * cols;
  y += row * cols;
  float sum = 0;
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(x + i);
    for (int k = 0; k < N; ++k) sum += to_float(v.at[k]);
  });
  const float centre = team.sum(sum) / static_cast<float>(cols);
  float squares = 0;
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(x + i);
    for (int k = 0; k < N; ++k) {
      const float d = to_float(v.at[k]) - centre;
      squares += d * d;
    }
  });
  const float scale = 1.0F / std::sqrt(team.sum(squares) / static_cast<float>(cols) + 1e-5F);
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(x + i), g = load<N>(gamma + i), b = load<N>(beta + i);
    store_each<N>(y + i, [&](int k) {
      const float normed = (to_float(v.at[k]) - centre) * scale;
      return normed * to_float(g.at[k]) + to_float(b.at[k]);
    });
  });
  if (team.rank() != 0) return;
  mean[row] = centre;
  rstd[row] = scale;
}

/// `residual` may be null.
template <int N = 1, class Team, class T>
PENSTOCK_HD void layer_norm_backward_row(const Team& team, std::int64_t row, std::int64_t cols,
                                         const T* dy, const T* x, const T* gamma, const float* mean,
                                         const float* rstd, const T* residual, T* dx) {
  const std::int64_t start = row * cols;
  float sum = 0;
  float sum_normed = 0;
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto d = load<N>(dy + start + i), v = load<N>(x + start + i), w = load<N>(gamma + i);
    for (int k = 0; k < N; ++k) {
      const float g = to_float(d.at[k]) * to_float(w.at[k]);
      sum += g;
      sum_normed += g * (to_float(v.at[k]) - mean[row]) * rstd[row];
    }
  });
  const float mean_g = team.sum(sum) / static_cast<float>(cols);
  const float mean_normed = team.sum(sum_normed) / static_cast<float>(cols);
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto d = load<N>(dy + start + i), v = load<N>(x + start + i), w = load<N>(gamma + i);
    Pack<T, N> beside{};
    if (residual) beside = load<N>(residual + start + i);
    store_each<N>(dx + start + i, [&](int k) {
      const float g = to_float(d.at[k]) * to_float(w.at[k]);
      const float normed = (to_float(v.at[k]) - mean[row]) * rstd[row];
      const float through = rstd[row] * (g - mean_g - normed * mean_normed);
      return through + (residual ? to_float(beside.at[k]) : 0.0F);
    });
  });
}

/// Columns from `first` on of a row: n of them, in pieces of N where they are all there.
template <int N, int kColumns, class T>
PENSTOCK_HD void load_columns(const T* row, int n, float* to) {
  if (N > 1 && n == kColumns) {
    for (int j = 0; j < kColumns; j += N) {
      const auto v = load<N>(row + j);
      for (int k = 0; k < N; ++k) to[j + k] = to_float(v.at[k]);
    }
    return;
  }
  for (int j = 0; j < n; ++j) to[j] = to_float(row[j]);
}

/// The columns from `first` on of dgamma += sum dy xh, dbeta += sum dy.
template <int N = 1, class Team, class T>
PENSTOCK_HD void layer_norm_backward_columns(const Team& team, std::int64_t first,
                                             std::int64_t rows, std::int64_t cols, const T* dy,
                                             const T* x, const float* mean, const float* rstd,
                                             float* dgamma, float* dbeta) {
  const std::int64_t left = cols - first;
  const int n = left < Team::columns ? static_cast<int>(left) : Team::columns;
  float gamma_sum[Team::columns] = {};
  float beta_sum[Team::columns] = {};
  for (std::int64_t r = team.rank(); r < rows; r += team.size()) {
    float g[Team::columns], v[Team::columns];
    load_columns<N, Team::columns>(dy + r * cols + first, n, g);
    load_columns<N, Team::columns>(x + r * cols + first, n, v);
    for (int j = 0; j < n; ++j) {
      gamma_sum[j] += g[j] * (v[j] - mean[r]) * rstd[r];
      beta_sum[j] += g[j];
    }
  }
  for (int j = 0; j < n; ++j) {
    const float gamma_total = team.sum(gamma_sum[j]);
    const float beta_total = team.sum(beta_sum[j]);
    if (team.rank() != 0) continue;
    dgamma[first + j] += gamma_total;
    dbeta[first + j] += beta_total;
  }
}

/// The columns from `first` on of gradient += sum dy.
template <int N = 1, class Team, class T>
PENSTOCK_HD void bias_backward_columns(const Team& team, std::int64_t first, std::int64_t rows,
                                       std::int64_t cols, const T* dy, float* gradient) {
  const std::int64_t left = cols - first;
  const int n = left < Team::columns ? static_cast<int>(left) : Team::columns;
  float sum[Team::columns] = {};
  for (std::int64_t r = team.rank(); r < rows; r += team.size()) {
    float g[Team::columns];
    load_columns<N, Team::columns>(dy + r * cols + first, n, g);
    for (int j = 0; j < n; ++j) sum[j] += g[j];
  }
  for (int j = 0; j < n; ++j) {
    const float total = team.sum(sum[j]);
    if (team.rank() == 0) gradient[first + j] += total;
  }
}

// Attention.

PENSTOCK_HD inline std::int64_t visible_keys(const AttentionRows& shape, std::int64_t row) {
  return shape.causal ? row % shape.keys + 1 : shape.keys;
}

/// Keys that do not count are loaded with their neighbours, and not looked at.
template <int N = 1, class Team, class T>
PENSTOCK_HD void attention_softmax_row(const Team& team, std::int64_t row,
                                       const AttentionRows& shape, T* scores) {
  scores += row * shape.keys;
  const std::int64_t visible = visible_keys(shape, row);
  float largest = -INFINITY;
  each_pack<N>(team, visible, [&](std::int64_t i) {
    const auto x = load<N>(scores + i);
    for (int k = 0; k < N && i + k < visible; ++k)
      largest = std::fmax(largest, to_float(x.at[k]) * shape.scale);
  });
  largest = team.max(largest);
  float sum = 0;
  each_pack<N>(team, visible, [&](std::int64_t i) {
    const auto x = load<N>(scores + i);
    for (int k = 0; k < N && i + k < visible; ++k)
      sum += std::exp(to_float(x.at[k]) * shape.scale - largest);
  });
  const float inverse = 1.0F / team.sum(sum);
  each_pack<N>(team, shape.keys, [&](std::int64_t i) {
    const auto x = load<N>(scores + i);
    store_each<N>(scores + i, [&](int k) {
      return i + k < visible ? std::exp(to_float(x.at[k]) * shape.scale - largest) * inverse : 0.0F;
    });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void attention_softmax_backward_row(const Team& team, std::int64_t row,
                                                const AttentionRows& shape, const T* probabilities,
                                                T* gradient) {
  probabilities += row * shape.keys;
  gradient += row * shape.keys;
  const std::int64_t visible = visible_keys(shape, row);
  float sum = 0;
  each_pack<N>(team, visible, [&](std::int64_t i) {
    const auto p = load<N>(probabilities + i), g = load<N>(gradient + i);
    for (int k = 0; k < N && i + k < visible; ++k) sum += to_float(p.at[k]) * to_float(g.at[k]);
  });
  const float mean = team.sum(sum);
  each_pack<N>(team, shape.keys, [&](std::int64_t i) {
    const auto p = load<N>(probabilities + i), g = load<N>(gradient + i);
    store_each<N>(gradient + i, [&](int k) {
      if (i + k >= visible) return 0.0F;
      return shape.scale * to_float(p.at[k]) * (to_float(g.at[k]) - mean);
    });
  });
}

// Element by element.

/// 1 / (1 + exp(-2u)), u as above.
PENSTOCK_HD inline float gelu_gate(float x) {
  return 1.0F / (1.0F + std::exp(-1.5957691216F * (x + 0.044715F * x * x * x)));
}
PENSTOCK_HD inline float gelu(float x) { return x * gelu_gate(x); }
PENSTOCK_HD inline float gelu_derivative(float x) {
  const float gate = gelu_gate(x);
  const float slope = 1.5957691216F * (1.0F + 3.0F * 0.044715F * x * x);
  return gate + x * gate * (1.0F - gate) * slope;
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void gelu_each(const Team& team, std::int64_t n, const T* z, T* y) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto x = load<N>(z + i);
    store_each<N>(y + i, [&](int k) { return gelu(to_float(x.at[k])); });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void gelu_backward_each(const Team& team, std::int64_t n, const T* dy, const T* z,
                                    T* dz) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto g = load<N>(dy + i), x = load<N>(z + i);
    store_each<N>(dz + i,
                  [&](int k) { return to_float(g.at[k]) * gelu_derivative(to_float(x.at[k])); });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void add_each(const Team& team, std::int64_t n, const T* a, const T* b, T* sum) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto x = load<N>(a + i), y = load<N>(b + i);
    store_each<N>(sum + i, [&](int k) { return to_float(x.at[k]) + to_float(y.at[k]); });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void blend_each(const Team& team, std::int64_t n, float a, const T* x, float b,
                            const T* y, T* sum) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto v = load<N>(x + i), w = load<N>(y + i);
    store_each<N>(sum + i, [&](int k) { return a * to_float(v.at[k]) + b * to_float(w.at[k]); });
  });
}

/// `residual` may be null.
template <int N = 1, class Team, class T>
PENSTOCK_HD void add_bias_row(const Team& team, std::int64_t row, std::int64_t cols, const T* bias,
                              const T* residual, T* y) {
  y += row * cols;
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(y + i), b = load<N>(bias + i);
    Pack<T, N> beside{};
    if (residual) beside = load<N>(residual + row * cols + i);
    store_each<N>(y + i, [&](int k) {
      return to_float(v.at[k]) + to_float(b.at[k]) + (residual ? to_float(beside.at[k]) : 0.0F);
    });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void round_each(const Team& team, std::int64_t n, const float* fp32, T* working) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto x = load<N>(fp32 + i);
    store_each<N>(working + i, [&](int k) { return x.at[k]; });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void fill_uniform_each(const Team& team, std::int64_t n, std::uint64_t seed,
                                   std::uint64_t stream, T* to) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    store_each<N>(to + i, [&](int k) {
      return uniform(hash(seed, stream, static_cast<std::uint64_t>(i + k)));
    });
  });
}

// Embedding. Gradients are summed in the order of the rows, so no atomics are needed.

/// Returns a token as it counts in a rank's part of the vocabulary; -1: another rank has it.
PENSTOCK_HD inline std::int32_t within(const TokenSource& source, std::int32_t token) {
  const std::int64_t own = token - source.first;
  return source.count == 0                ? token
         : own >= 0 && own < source.count ? static_cast<std::int32_t>(own)
                                          : -1;
}

/// Either of `tokens` and `targets` may be null.
template <class Team>
PENSTOCK_HD void generate_tokens_each(const Team& team, const TokenSource& source,
                                      std::int32_t* tokens, std::int32_t* targets) {
  const std::int64_t n = source.sequences * source.seq_length;
  for (std::int64_t i = team.rank(); i < n; i += team.size()) {
    const std::int64_t sequence = source.first_sequence + i / source.seq_length;
    const std::int64_t position = i % source.seq_length;
    if (tokens) tokens[i] = within(source, token(source, sequence, position));
    if (targets) targets[i] = within(source, token(source, sequence, position + 1));
  }
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void embedding_row(const Team& team, std::int64_t row, std::int64_t cols,
                               std::int64_t seq_length, const std::int32_t* tokens,
                               const T* token_table, const T* position_table, T* y) {
  // Of a rank's part of the vocabulary: 0 for the others' tokens, positions on one rank alone.
  if (position_table == nullptr || tokens[row] < 0) {
    const T* known = tokens[row] >= 0 ? token_table + tokens[row] * cols
                     : position_table ? position_table + row % seq_length * cols
                                      : nullptr;
    each_pack<N>(team, cols, [&](std::int64_t i) {
      store_each<N>(y + row * cols + i,
                    [&](int k) { return known != nullptr ? to_float(known[i + k]) : 0.0F; });
    });
    return;
  }
  add_each<N>(team, cols, token_table + tokens[row] * cols,
              position_table + row % seq_length * cols, y + row * cols);
}

/// gradient += dy, a row of `cols`.
template <int N, class Team, class T>
PENSTOCK_HD void add_gradient_row(const Team& team, std::int64_t cols, const T* dy,
                                  float* gradient) {
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto g = load<N>(dy + i);
    const auto before = load<N>(gradient + i);
    store_each<N>(gradient + i, [&](int k) { return before.at[k] + to_float(g.at[k]); });
  });
}

/// The gradient of the token of `row`, by the team of the first row that has this token.
template <int N = 1, class Team, class T>
PENSTOCK_HD void token_table_backward_row(const Team& team, std::int64_t row, std::int64_t rows,
                                          std::int64_t cols, const std::int32_t* tokens,
                                          const T* dy, float* dtoken_table) {
  if (tokens[row] < 0) return;  // another rank's
  for (std::int64_t r = 0; r < row; ++r) {
    if (tokens[r] == tokens[row]) return;
  }
  float* gradient = dtoken_table + tokens[row] * cols;
  for (std::int64_t r = row; r < rows; ++r) {
    if (tokens[r] == tokens[row]) add_gradient_row<N>(team, cols, dy + r * cols, gradient);
  }
}

/// The gradient of one position, a row of the position table.
template <int N = 1, class Team, class T>
PENSTOCK_HD void position_table_backward_row(const Team& team, std::int64_t position,
                                             std::int64_t rows, std::int64_t cols,
                                             std::int64_t seq_length, const T* dy,
                                             float* dposition_table) {
  float* gradient = dposition_table + position * cols;
  for (std::int64_t r = position; r < rows; r += seq_length)
    add_gradient_row<N>(team, cols, dy + r * cols, gradient);
}

// Losses.

struct SoftmaxSums {
  float largest;
  float sum;  ///< of exp(x - largest)
};

template <int N = 1, class Team, class T>
PENSTOCK_HD SoftmaxSums softmax_sums(const Team& team, std::int64_t n, const T* x) {
  float largest = -INFINITY;
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto v = load<N>(x + i);
    for (int k = 0; k < N; ++k) largest = std::fmax(largest, to_float(v.at[k]));
  });
  largest = team.max(largest);
  float sum = 0;
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto v = load<N>(x + i);
    for (int k = 0; k < N; ++k) sum += std::exp(to_float(v.at[k]) - largest);
  });
  return {largest, team.sum(sum)};
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void cross_entropy_row(const Team& team, std::int64_t row, std::int64_t vocab_size,
                                   const T* logits, const std::int32_t* targets,
                                   float* row_losses) {
  logits += row * vocab_size;
  const SoftmaxSums sums = softmax_sums<N>(team, vocab_size, logits);
  if (team.rank() != 0) return;
  row_losses[row] = std::log(sums.sum) + sums.largest - to_float(logits[targets[row]]);
}

/// `mean` (one) of `values`; one team.
template <class Team>
PENSTOCK_HD void mean_of(const Team& team, std::int64_t n, const float* values, float* mean) {
  float sum = 0;
  for (std::int64_t i = team.rank(); i < n; i += team.size()) sum += values[i];
  sum = team.sum(sum);
  if (team.rank() == 0) *mean = sum / static_cast<float>(n);
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void cross_entropy_backward_row(const Team& team, std::int64_t row, std::int64_t rows,
                                            std::int64_t vocab_size, const std::int32_t* targets,
                                            T* logits) {
  logits += row * vocab_size;
  const SoftmaxSums sums = softmax_sums<N>(team, vocab_size, logits);
  const float share = 1.0F / static_cast<float>(rows);
  const float scale = share / sums.sum;
  each_pack<N>(team, vocab_size, [&](std::int64_t i) {
    const auto v = load<N>(logits + i);
    store_each<N>(logits + i, [&](int k) {
      const float p = std::exp(to_float(v.at[k]) - sums.largest) * scale;
      return i + k == targets[row] ? p - share : p;
    });
  });
}

// The same of ranks that have a part of the vocabulary each: what they exchange are the largest
// logit, the sum of exp(logit - largest) and the target's logit of each row. A target is -1 where
// another rank has it.

template <int N = 1, class Team, class T>
PENSTOCK_HD void row_maximum(const Team& team, std::int64_t row, std::int64_t cols, const T* x,
                             float* maxima) {
  float largest = -INFINITY;
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(x + row * cols + i);
    for (int k = 0; k < N; ++k) largest = std::fmax(largest, to_float(v.at[k]));
  });
  largest = team.max(largest);
  if (team.rank() == 0) maxima[row] = largest;
}

template <int N = 1, class Team>
PENSTOCK_HD void maximum_each(const Team& team, std::int64_t n, const float* x, float* maxima) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto a = load<N>(x + i);
    const auto b = load<N>(maxima + i);
    store_each<N>(maxima + i, [&](int k) { return std::fmax(a.at[k], b.at[k]); });
  });
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void vocabulary_part_row(const Team& team, std::int64_t row, std::int64_t cols,
                                     const T* logits, const std::int32_t* targets,
                                     const float* maxima, float* sums, float* target_logits) {
  logits += row * cols;
  float sum = 0;
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(logits + i);
    for (int k = 0; k < N; ++k) sum += std::exp(to_float(v.at[k]) - maxima[row]);
  });
  sum = team.sum(sum);
  if (team.rank() != 0) return;
  sums[row] = sum;
  target_logits[row] = targets[row] < 0 ? 0.0F : to_float(logits[targets[row]]);
}

/// Target logits become losses.
template <class Team>
PENSTOCK_HD void vocabulary_losses_each(const Team& team, std::int64_t rows, const float* maxima,
                                        const float* sums, float* losses) {
  for (std::int64_t r = team.rank(); r < rows; r += team.size())
    losses[r] = std::log(sums[r]) + maxima[r] - losses[r];
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void vocabulary_backward_row(const Team& team, std::int64_t row, std::int64_t rows,
                                         std::int64_t cols, const std::int32_t* targets,
                                         const float* maxima, const float* sums, T* logits) {
  logits += row * cols;
  const float share = 1.0F / static_cast<float>(rows);
  const float scale = share / sums[row];
  each_pack<N>(team, cols, [&](std::int64_t i) {
    const auto v = load<N>(logits + i);
    store_each<N>(logits + i, [&](int k) {
      const float p = std::exp(to_float(v.at[k]) - maxima[row]) * scale;
      return i + k == targets[row] ? p - share : p;
    });
  });
}

/// One team.
template <class Team, class T>
PENSTOCK_HD void squared_error_all(const Team& team, std::int64_t n, const T* y, const T* target,
                                   T* dy, float* loss) {
  const float share = 1.0F / static_cast<float>(n);
  float sum = 0;
  for (std::int64_t i = team.rank(); i < n; i += team.size()) {
    const float d = to_float(y[i]) - to_float(target[i]);
    sum += d * d;
    dy[i] = from_float<T>(d * share);
  }
  sum = team.sum(sum);
  if (team.rank() == 0) *loss = sum * share / 2;
}

// Mixtures of experts.

template <class Team, class T>
PENSTOCK_HD void largest_row(const Team& team, std::int64_t row, std::int64_t cols, int count,
                             const T* values, std::int32_t* chosen) {
  if (team.rank() != 0) return;
  values += row * cols;
  chosen += row * count;
  for (int j = 0; j < count; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < cols; ++e) {
      bool taken = false;
      for (int i = 0; i < j; ++i) taken = taken || chosen[i] == e;
      if (!taken && (best < 0 || to_float(values[e]) > to_float(values[best]))) best = e;
    }
    chosen[j] = static_cast<std::int32_t>(best);
  }
}

/// Counts the copies that were sent to the kind `kind`.
template <class Team>
PENSTOCK_HD void copies_of_kind(const Team& team, std::int64_t kind, std::int64_t copies,
                                const std::int32_t* chosen, std::int32_t* counts) {
  if (team.rank() != 0) return;
  std::int32_t count = 0;
  for (std::int64_t i = 0; i < copies; ++i) count += chosen[i] == kind ? 1 : 0;
  counts[kind] = count;
}
/// Gives the copies of a kind their places, behind those of the kinds before it.
template <class Team>
PENSTOCK_HD void places_of_kind(const Team& team, std::int64_t kind, std::int64_t copies,
                                const std::int32_t* chosen, const std::int32_t* counts,
                                std::int32_t* places) {
  if (team.rank() != 0) return;
  std::int32_t next = 0;
  for (std::int64_t k = 0; k < kind; ++k) next += counts[k];
  for (std::int64_t i = 0; i < copies; ++i)
    if (chosen[i] == kind) places[i] = next++;
}

/// Returns the probability of a kind in a row; 1 where there are none.
template <class T>
PENSTOCK_HD float weight_of_copy(std::int64_t row, int kinds, std::int32_t kind,
                                 const T* probabilities) {
  return probabilities == nullptr ? 1.0F : to_float(probabilities[row * kinds + kind]);
}

template <class Team, class T>
PENSTOCK_HD void spread_row(const Team& team, std::int64_t row, std::int64_t cols, int per_row,
                            int kinds, const std::int32_t* chosen, const std::int32_t* places,
                            const T* x, const T* probabilities, T* copies) {
  for (std::int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
    const float weight = weight_of_copy(row, kinds, chosen[i], probabilities);
    for (std::int64_t c = team.rank(); c < cols; c += team.size())
      copies[places[i] * cols + c] = from_float<T>(weight * to_float(x[row * cols + c]));
  }
}

template <class Team, class T>
PENSTOCK_HD void gather_row(const Team& team, std::int64_t row, std::int64_t cols, int per_row,
                            int kinds, const std::int32_t* chosen, const std::int32_t* places,
                            const T* copies, const T* probabilities, const T* residual, T* y) {
  for (std::int64_t c = team.rank(); c < cols; c += team.size()) {
    float sum = residual == nullptr ? 0.0F : to_float(residual[row * cols + c]);
    for (std::int64_t i = row * per_row; i < (row + 1) * per_row; ++i)
      sum += weight_of_copy(row, kinds, chosen[i], probabilities) *
             to_float(copies[places[i] * cols + c]);
    y[row * cols + c] = from_float<T>(sum);
  }
}

template <class Team, class T>
PENSTOCK_HD void gather_backward_row(const Team& team, std::int64_t row, std::int64_t cols,
                                     int per_row, int kinds, const std::int32_t* chosen,
                                     const std::int32_t* places, const T* dy, const T* copies,
                                     T* dprobabilities) {
  dprobabilities += row * kinds;
  if (team.rank() == 0)
    for (int k = 0; k < kinds; ++k) dprobabilities[k] = from_float<T>(0.0F);
  for (std::int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
    float sum = 0;
    for (std::int64_t c = team.rank(); c < cols; c += team.size())
      sum += to_float(dy[row * cols + c]) * to_float(copies[places[i] * cols + c]);
    sum = team.sum(sum);
    if (team.rank() == 0) dprobabilities[chosen[i]] = from_float<T>(sum);
  }
}

}  // namespace penstock::kernels
