// SPDX-License-Identifier: Apache-2.0
#include "hw/host/attention.hpp"

#include "hw/host/products.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace penstock {
namespace {

constexpr std::int64_t kRows = 64;  // at a time

/// One head of one sequence; of every matrix, where its first row begins.
struct Head {
  const Attention& shape;
  std::int64_t qkv_at, context_at, sums_at;

  Head(const Attention& the_shape, std::int64_t sequence, std::int64_t head)
      : shape(the_shape),
        qkv_at((sequence * shape.seq_length * 3 * shape.heads + head) * shape.head_size),
        context_at((sequence * shape.seq_length * shape.heads + head) * shape.head_size),
        sums_at((sequence * shape.heads + head) * shape.seq_length) {}

  std::int64_t wide() const { return 3 * shape.hidden(); }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape.head_size)); }
  std::int64_t keys_of(std::int64_t row) const { return shape.causal ? row + 1 : shape.seq_length; }
};

/// Rows `first` to `first + rows` of a head, and the keys that the last of them sees.
struct Rows {
  std::int64_t first, rows, keys;

  Rows(const Head& head, std::int64_t begin)
      : first(begin),
        rows(std::min(kRows, head.shape.seq_length - begin)),
        keys(head.keys_of(begin + rows - 1)) {}
};

template <class Work>
void for_heads(const Attention& shape, const Work& work) {
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    for (std::int64_t h = 0; h < shape.heads; ++h) work(Head(shape, s, h));
  }
}

/// scale q k^T of these rows, rows x keys.
void score(const Head& head, const Rows& r, const float* qkv, float* scores) {
  const float* q = qkv + head.qkv_at + r.first * head.wide();
  const float* k = qkv + head.qkv_at + head.shape.hidden();
  multiply(r.rows, r.keys, head.shape.head_size, head.scale(), {q, head.wide()},
           {k, head.wide(), true}, 0, scores, r.keys);
}

/// Scores become probabilities, 0 beyond `visible`; returns log2 of their sum before.
float softmax(std::int64_t keys, std::int64_t visible, float* scores) {
  const float largest = *std::max_element(scores, scores + visible);
  float sum = 0;
  for (std::int64_t i = 0; i < visible; ++i) sum += scores[i] = std::exp(scores[i] - largest);
  for (std::int64_t i = 0; i < keys; ++i) scores[i] = i < visible ? scores[i] / sum : 0;
  return largest * std::numbers::log2e_v<float> + std::log2(sum);
}

void attend_rows(const Head& head, const Rows& r, const float* qkv, float* scores, float* context,
                 float* log_sums) {
  score(head, r, qkv, scores);
  for (std::int64_t i = 0; i < r.rows; ++i) {
    log_sums[head.sums_at + r.first + i] =
        softmax(r.keys, head.keys_of(r.first + i), scores + i * r.keys);
  }
  const std::int64_t h = head.shape.hidden();
  multiply(r.rows, head.shape.head_size, r.keys, 1, {scores, r.keys},
           {qkv + head.qkv_at + 2 * h, head.wide()}, 0, context + head.context_at + r.first * h, h);
}

/// Probabilities become ds = scale p (dp - sum(dcontext context)) by what dp holds.
void through_softmax(const Head& head, const Rows& r, const float* context, const float* dcontext,
                     const float* p, float* dp) {
  const std::int64_t h = head.shape.hidden();
  for (std::int64_t i = 0; i < r.rows; ++i) {
    const std::int64_t at = head.context_at + (r.first + i) * h;
    float sum = 0;
    for (std::int64_t c = 0; c < head.shape.head_size; ++c)
      sum += dcontext[at + c] * context[at + c];
    for (std::int64_t k = i * r.keys; k < (i + 1) * r.keys; ++k)
      dp[k] = head.scale() * p[k] * (dp[k] - sum);
  }
}

void recompute(const Head& head, const Rows& r, const float* qkv, const float* log_sums, float* p) {
  score(head, r, qkv, p);
  for (std::int64_t i = 0; i < r.rows; ++i) {
    const std::int64_t visible = head.keys_of(r.first + i);
    for (std::int64_t k = 0; k < r.keys; ++k) {
      float& x = p[i * r.keys + k];
      x = k < visible
              ? std::exp2(x * std::numbers::log2e_v<float> - log_sums[head.sums_at + r.first + i])
              : 0;
    }
  }
}

void backward_rows(const Head& head, const Rows& r, const float* qkv, const float* context,
                   const float* log_sums, const float* dcontext, float* p, float* dp, float* dqkv) {
  const std::int64_t h = head.shape.hidden();
  const std::int64_t d = head.shape.head_size;
  const float* q = qkv + head.qkv_at;
  const float* dc = dcontext + head.context_at + r.first * h;
  float* dq = dqkv + head.qkv_at;
  recompute(head, r, qkv, log_sums, p);
  multiply(r.rows, r.keys, d, 1, {dc, h}, {q + 2 * h, head.wide(), true}, 0, dp, r.keys);
  multiply(r.keys, d, r.rows, 1, {p, r.keys, true}, {dc, h}, 1, dq + 2 * h, head.wide());
  through_softmax(head, r, context, dcontext, p, dp);
  const std::int64_t at = r.first * head.wide();
  multiply(r.rows, d, r.keys, 1, {dp, r.keys}, {q + h, head.wide()}, 0, dq + at, head.wide());
  multiply(r.keys, d, r.rows, 1, {dp, r.keys, true}, {q + at, head.wide()}, 1, dq + h, head.wide());
}

std::size_t scores_of(const Attention& shape) {
  return static_cast<std::size_t>(std::min(kRows, shape.seq_length) * shape.seq_length);
}

}  // namespace

void attend(const Attention& shape, const float* qkv, float* context, float* log_sums) {
  static thread_local std::vector<float> scores;
  scores.resize(scores_of(shape));
  for_heads(shape, [&](const Head& head) {
    for (std::int64_t first = 0; first < shape.seq_length; first += kRows)
      attend_rows(head, Rows(head, first), qkv, scores.data(), context, log_sums);
  });
}

void attend_backward(const Attention& shape, const float* qkv, const float* context,
                     const float* log_sums, const float* dcontext, float* dqkv) {
  static thread_local std::vector<float> p, dp;
  p.resize(scores_of(shape)), dp.resize(scores_of(shape));
  std::fill_n(dqkv, shape.rows() * 3 * shape.hidden(), 0.0F);
  for_heads(shape, [&](const Head& head) {
    for (std::int64_t first = 0; first < shape.seq_length; first += kRows)
      backward_rows(head, Rows(head, first), qkv, context, log_sums, dcontext, p.data(), dp.data(),
                    dqkv);
  });
}

}  // namespace penstock
