// SPDX-License-Identifier: Apache-2.0
// Attention without stored probabilities on the host, against its formulas in double precision.
#include "hw/host/attention.hpp"

#include "stage_rig.hpp"

#include <gtest/gtest.h>

namespace penstock::attention_test {
namespace {

using Matrix = std::vector<double>;

/// One number at a time, with the probabilities of each row in memory.
class SlowAttention {
 public:
  SlowAttention(const Attention& shape, const std::vector<float>& qkv)
      : shape_(shape),
        qkv_(qkv),
        context(size(shape.hidden())),
        dqkv(size(3 * shape.hidden())),
        log_sums(static_cast<std::size_t>(shape.sums())) {}

  void run(const std::vector<float>& dcontext) {
    for (std::int64_t s = 0; s < shape_.sequences; ++s)
      for (std::int64_t h = 0; h < shape_.heads; ++h)
        for (std::int64_t q = 0; q < shape_.seq_length; ++q) row(s, h, q, dcontext);
  }

 private:
  std::size_t size(std::int64_t columns) const {
    return static_cast<std::size_t>(shape_.rows() * columns);
  }
  std::size_t at(std::int64_t s, std::int64_t h, std::int64_t row, std::int64_t part) const {
    return static_cast<std::size_t>((s * shape_.seq_length + row) * 3 * shape_.hidden() +
                                    part * shape_.hidden() + h * shape_.head_size);
  }
  void row(std::int64_t s, std::int64_t h, std::int64_t q, const std::vector<float>& dcontext) {
    const std::int64_t keys = shape_.causal ? q + 1 : shape_.seq_length;
    const auto d = static_cast<std::size_t>(shape_.head_size);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const std::size_t own = static_cast<std::size_t>((s * shape_.seq_length + q) * shape_.hidden() +
                                                     h * shape_.head_size);
    Matrix p(static_cast<std::size_t>(keys)), dp(p.size());
    double sum = 0, through = 0;
    for (std::int64_t k = 0; k < keys; ++k) {
      double& x = p[static_cast<std::size_t>(k)];
      for (std::size_t i = 0; i < d; ++i)
        x += scale * value(at(s, h, q, 0) + i) * value(at(s, h, k, 1) + i);
      sum += x = std::exp(x);
    }
    log_sums[static_cast<std::size_t>((s * shape_.heads + h) * shape_.seq_length + q)] =
        std::log2(sum);
    for (std::int64_t k = 0; k < keys; ++k) {
      double& x = p[static_cast<std::size_t>(k)];
      x /= sum;
      for (std::size_t i = 0; i < d; ++i) {
        const double g = static_cast<double>(dcontext[own + i]);
        context[own + i] += x * value(at(s, h, k, 2) + i);
        dp[static_cast<std::size_t>(k)] += g * value(at(s, h, k, 2) + i);
        dqkv[at(s, h, k, 2) + i] += x * g;
      }
      through += x * dp[static_cast<std::size_t>(k)];
    }
    for (std::int64_t k = 0; k < keys; ++k) {
      const double ds =
          scale * p[static_cast<std::size_t>(k)] * (dp[static_cast<std::size_t>(k)] - through);
      for (std::size_t i = 0; i < d; ++i) {
        dqkv[at(s, h, q, 0) + i] += ds * value(at(s, h, k, 1) + i);
        dqkv[at(s, h, k, 1) + i] += ds * value(at(s, h, q, 0) + i);
      }
    }
  }
  double value(std::size_t i) const { return static_cast<double>(qkv_[i]); }

  const Attention& shape_;
  const std::vector<float>& qkv_;

 public:
  Matrix context, dqkv, log_sums;
};

void expect_near(const std::vector<float>& got, const Matrix& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance) << what << " " << i;
}

TEST(Attention, IsItsFormulasForwardAndBackward) {
  for (const bool causal : {true, false}) {
    for (const std::int64_t length : {1, 5, 64, 65, 150}) {  // rows go 64 at a time
      SCOPED_TRACE(std::to_string(length) + (causal ? " causal" : ""));
      const Attention shape{2, 3, length, 5, causal};
      const std::vector<float> qkv = random_values(shape.rows() * 3 * shape.hidden(), 1, 2);
      const std::vector<float> dcontext = random_values(shape.rows() * shape.hidden(), 2);
      SlowAttention slow(shape, qkv);
      slow.run(dcontext);
      std::vector<float> context(dcontext.size(), NAN), dqkv(qkv.size(), NAN);
      std::vector<float> log_sums(static_cast<std::size_t>(shape.sums()), NAN);
      attend(shape, qkv.data(), context.data(), log_sums.data());
      attend_backward(shape, qkv.data(), context.data(), log_sums.data(), dcontext.data(),
                      dqkv.data());
      expect_near(context, slow.context, 2e-6, "context");
      expect_near(log_sums, slow.log_sums, 4e-6, "log sums");
      expect_near(dqkv, slow.dqkv, 1e-5, "gradient");
    }
  }
}

TEST(Attention, HoldsLargeScores) {
  const Attention shape{1, 1, 2, 1, true};
  const std::vector<float> qkv{300, 200, 1, 300, 100, 5};  // scores 6e4 of the first, 3e4
  std::vector<float> context(2), log_sums(2);
  attend(shape, qkv.data(), context.data(), log_sums.data());
  EXPECT_EQ(context, (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace penstock::attention_test
