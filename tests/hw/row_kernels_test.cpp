// SPDX-License-Identifier: Apache-2.0
#include "hw/optimizer_kernels.hpp"
#include "hw/row_kernels.hpp"

#include "stage_rig.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace penstock::row_kernels_test {
namespace {

using kernels::HostTeam;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 37;  // neither a multiple of the team nor of a cache line

double d(float x) { return static_cast<double>(x); }

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(d(got[i]), want[i], tolerance) << i;
}
std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

/// Threads that share a row, as those of a CUDA block do.
class ThreadTeam {
 public:
  static constexpr int columns = 1;
  struct Shared {
    explicit Shared(int size) : values(static_cast<std::size_t>(size)), all_here(size) {}
    std::vector<float> values;
    std::barrier<> all_here;
  };
  ThreadTeam(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return std::ssize(shared_.values); }
  float sum(float x) const {
    return together(x, [](float a, float b) { return a + b; });
  }
  float max(float x) const {
    return together(x, [](float a, float b) { return std::max(a, b); });
  }

 private:
  template <class Combine>
  float together(float x, const Combine& combine) const {
    shared_.values[static_cast<std::size_t>(rank_)] = x;
    shared_.all_here.arrive_and_wait();
    float all = shared_.values[0];
    for (std::size_t i = 1; i < shared_.values.size(); ++i) all = combine(all, shared_.values[i]);
    shared_.all_here.arrive_and_wait();
    return all;
  }
  Shared& shared_;
  int rank_;
};

/// Runs `kernel(team)` alone on a copy of `data`, and with four threads on another; returns the
/// first after comparing.
template <class Kernel>
std::vector<float> on_both_teams(const std::vector<float>& data, const Kernel& kernel) {
  std::vector<float> alone = data, shared = data;
  kernel(HostTeam{}, alone.data());
  ThreadTeam::Shared state(4);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 4; ++r)
      threads.emplace_back([&, r] { kernel(ThreadTeam(state, r), shared.data()); });
  }
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(d(alone[i]), d(shared[i]), 3e-6) << i;
  return alone;
}

std::vector<float> nans(std::int64_t n) {
  return std::vector<float>(static_cast<std::size_t>(n), std::nanf(""));
}

struct NormCase {
  std::vector<float> x = random_values(kRows * kCols, 1, 3), gamma = random_values(kCols, 2),
                     beta = random_values(kCols, 3), dy = random_values(kRows * kCols, 4);
  std::vector<float> mean = nans(kRows), rstd = nans(kRows);
  std::vector<double> normed;

  NormCase() {
    for (std::int64_t r = 0; r < kRows; ++r) {
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < kCols; ++c) sum += d(x[at(r, c)]);
      const double centre = sum / kCols;
      for (std::int64_t c = 0; c < kCols; ++c)
        squares += (d(x[at(r, c)]) - centre) * (d(x[at(r, c)]) - centre);
      const double scale = 1 / std::sqrt(squares / kCols + 1e-5);
      for (std::int64_t c = 0; c < kCols; ++c) normed.push_back((d(x[at(r, c)]) - centre) * scale);
      mean[static_cast<std::size_t>(r)] = static_cast<float>(centre);
      rstd[static_cast<std::size_t>(r)] = static_cast<float>(scale);
    }
  }
  static std::size_t at(std::int64_t r, std::int64_t c) {
    return static_cast<std::size_t>(r * kCols + c);
  }
};

TEST(RowKernels, LayerNormIsItsFormula) {
  const NormCase n;
  const auto rows = kRows * kCols;
  // y, mean and rstd in one array.
  const std::vector<float> got =
      on_both_teams(nans(rows + 2 * kRows), [&](const auto& team, float* y) {
        for (std::int64_t r = 0; r < kRows; ++r)
          kernels::layer_norm_row(team, r, kCols, n.x.data(), n.gamma.data(), n.beta.data(), y,
                                  y + rows, y + rows + kRows);
      });
  std::vector<double> want;
  for (std::size_t i = 0; i < n.x.size(); ++i)
    want.push_back(n.normed[i] * d(n.gamma[i % kCols]) + d(n.beta[i % kCols]));
  for (const float m : n.mean) want.push_back(d(m));
  for (const float s : n.rstd) want.push_back(d(s));
  expect_near(got, want, 2e-6);
}

TEST(RowKernels, LayerNormBackwardIsItsFormula) {
  const NormCase n;
  const std::vector<float> residual = random_values(kRows * kCols, 8);
  std::vector<double> want;
  for (std::int64_t r = 0; r < kRows; ++r) {
    double g = 0, g_normed = 0;
    for (std::int64_t c = 0; c < kCols; ++c) {
      const std::size_t i = NormCase::at(r, c);
      g += d(n.dy[i]) * d(n.gamma[i % kCols]) / kCols;
      g_normed += d(n.dy[i]) * d(n.gamma[i % kCols]) * n.normed[i] / kCols;
    }
    for (std::int64_t c = 0; c < kCols; ++c) {
      const std::size_t i = NormCase::at(r, c);
      want.push_back(d(n.rstd[static_cast<std::size_t>(r)]) *
                     (d(n.dy[i]) * d(n.gamma[i % kCols]) - g - n.normed[i] * g_normed));
    }
  }
  const auto run = [&](const std::vector<float>& start, const float* beside) {
    return on_both_teams(start, [&](const auto& team, float* dx) {
      const float* dy = beside ? n.dy.data() : dx;  // without residual: in place
      for (std::int64_t r = 0; r < kRows; ++r)
        kernels::layer_norm_backward_row(team, r, kCols, dy, n.x.data(), n.gamma.data(),
                                         n.mean.data(), n.rstd.data(), beside, dx);
    });
  };
  expect_near(run(n.dy, nullptr), want, 2e-6);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += d(residual[i]);
  expect_near(run(nans(kRows * kCols), residual.data()), want, 2e-6);
}

TEST(RowKernels, GradientsOfNormAndBiasAreAddedColumnSums) {
  const NormCase n;
  const std::vector<float> before = random_values(3 * kCols, 8);
  const std::vector<float> got = on_both_teams(before, [&](const auto& team, float* sums) {
    constexpr int step = std::decay_t<decltype(team)>::columns;
    for (std::int64_t c = 0; c < kCols; c += step) {
      kernels::layer_norm_backward_columns(team, c, kRows, kCols, n.dy.data(), n.x.data(),
                                           n.mean.data(), n.rstd.data(), sums, sums + kCols);
      kernels::bias_backward_columns(team, c, kRows, kCols, n.dy.data(), sums + 2 * kCols);
    }
  });
  std::vector<double> want = doubles(before);
  for (std::size_t i = 0; i < n.dy.size(); ++i) {
    want[i % kCols] += d(n.dy[i]) * n.normed[i];
    want[kCols + i % kCols] += d(n.dy[i]);
    want[2 * kCols + i % kCols] += d(n.dy[i]);
  }
  expect_near(got, want, 3e-6);
}

/// Probabilities in double, and how many keys a row sees.
std::vector<double> slow_softmax(const AttentionRows& shape, const std::vector<float>& scores) {
  std::vector<double> p(scores.size(), 0.0);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::int64_t visible = shape.causal ? r % shape.keys + 1 : shape.keys;
    double sum = 0;
    for (std::int64_t k = 0; k < visible; ++k)
      sum += std::exp(d(scores[static_cast<std::size_t>(r * shape.keys + k)]) * d(shape.scale));
    for (std::int64_t k = 0; k < visible; ++k) {
      const auto i = static_cast<std::size_t>(r * shape.keys + k);
      p[i] = std::exp(d(scores[i]) * d(shape.scale)) / sum;
    }
  }
  return p;
}

TEST(RowKernels, AttentionSoftmaxSeesNoLaterKeyAndSumsToOne) {
  for (const bool causal : {true, false}) {
    const AttentionRows shape{2 * 7, 7, causal, 0.7F};
    const std::vector<float> scores = random_values(2 * 49, 1, 20);
    std::vector<float> hidden = scores;
    if (causal) {
      for (std::size_t i = 0; i < hidden.size(); ++i)
        if (i % 7 > i / 7 % 7) hidden[i] = std::nanf("");
    }
    const std::vector<float> got = on_both_teams(hidden, [&](const auto& team, float* p) {
      for (std::int64_t r = 0; r < shape.rows; ++r)
        kernels::attention_softmax_row(team, r, shape, p);
    });
    expect_near(got, slow_softmax(shape, scores), 2e-6);
    for (std::size_t i = 0; causal && i < got.size(); ++i)
      EXPECT_TRUE(got[i] == 0 || i % 7 <= i / 7 % 7) << i;
  }
}

TEST(RowKernels, AttentionSoftmaxHoldsLargeScores) {
  std::vector<float> scores{3e4F, 2e4F, -3e4F};
  kernels::attention_softmax_row(HostTeam{}, 0, {1, 3, false, 1}, scores.data());
  EXPECT_EQ(scores, (std::vector<float>{1, 0, 0}));
}

TEST(RowKernels, AttentionSoftmaxBackwardIsItsFormula) {
  const AttentionRows shape{2 * 7, 7, true, 0.7F};
  const std::vector<double> p = slow_softmax(shape, random_values(2 * 49, 1, 4));
  const std::vector<float> probabilities(p.begin(), p.end());
  const std::vector<float> dp = random_values(2 * 49, 2);
  std::vector<double> want;
  for (std::size_t i = 0; i < p.size(); ++i) {
    double sum = 0;
    for (std::size_t k = i / 7 * 7; k < i / 7 * 7 + 7; ++k) sum += p[k] * d(dp[k]);
    want.push_back(d(shape.scale) * p[i] * (d(dp[i]) - sum));
  }
  std::vector<float> hidden = dp;
  for (std::size_t i = 0; i < hidden.size(); ++i)
    if (i % 7 > i / 7 % 7) hidden[i] = std::nanf("");
  const std::vector<float> got = on_both_teams(hidden, [&](const auto& team, float* g) {
    for (std::int64_t r = 0; r < shape.rows; ++r)
      kernels::attention_softmax_backward_row(team, r, shape, probabilities.data(), g);
  });
  expect_near(got, want, 1e-6);
}

double slow_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(RowKernels, GeluIsTheTanhFormAndItsDerivative) {
  std::vector<float> z = random_values(200, 1, 6);
  z.insert(z.end(), {0, 100, -100, 1e4F, -1e4F});
  const std::vector<float> dy = random_values(std::ssize(z), 2);
  std::vector<double> want, want_dz;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double h = 1e-5, x = d(z[i]);
    want.push_back(slow_gelu(x));
    want_dz.push_back(d(dy[i]) * (slow_gelu(x + h) - slow_gelu(x - h)) / (2 * h));
  }
  expect_near(on_both_teams(z, [&](const auto& team,
                                   float* y) { kernels::gelu_each(team, std::ssize(z), y, y); }),
              want, 1e-6);
  expect_near(on_both_teams(dy,
                            [&](const auto& team, float* dz) {
                              kernels::gelu_backward_each(team, std::ssize(z), dz, z.data(), dz);
                            }),
              want_dz, 3e-6);
}

TEST(RowKernels, BiasAndResidualAreAddedToEveryRow) {
  const std::vector<float> y = random_values(kRows * kCols, 1), bias = random_values(kCols, 2),
                           residual = random_values(kRows * kCols, 3);
  for (const float* beside : {residual.data(), static_cast<const float*>(nullptr)}) {
    std::vector<double> want;
    for (std::size_t i = 0; i < y.size(); ++i)
      want.push_back(d(y[i]) + d(bias[i % kCols]) + (beside ? d(beside[i]) : 0));
    expect_near(on_both_teams(y,
                              [&](const auto& team, float* out) {
                                for (std::int64_t r = 0; r < kRows; ++r)
                                  kernels::add_bias_row(team, r, kCols, bias.data(), beside, out);
                              }),
                want, 1e-6);
  }
}

TEST(RowKernels, BlendsAreWeightedSums) {
  const std::vector<float> x = random_values(kCols, 1), y = random_values(kCols, 2);
  std::vector<double> want;
  for (std::size_t i = 0; i < x.size(); ++i) want.push_back(0.75 * d(x[i]) - 2 * d(y[i]));
  expect_near(on_both_teams(x,
                            [&](const auto& team, float* sum) {
                              kernels::blend_each(team, kCols, 0.75F, sum, -2, y.data(), sum);
                            }),
              want, 1e-6);
}

TEST(RowKernels, SumsRoundsAndCopiesAreElementByElement) {
  const std::vector<float> a = random_values(kCols, 1), b = random_values(kCols, 2);
  std::vector<float> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  EXPECT_EQ(on_both_teams(a, [&](const auto& team,
                                 float* x) { kernels::add_each(team, kCols, x, b.data(), x); }),
            sum);
  EXPECT_EQ(
      on_both_teams(nans(kCols), [&](const auto& team,
                                     float* x) { kernels::round_each(team, kCols, a.data(), x); }),
      a);
  HostMath math = immediate_math();
  Memory from(a), to(b);
  math.copy(kCols * 4, from.tensor(), to.tensor());
  EXPECT_EQ(to.values(), a);
  math.zero(kCols * 4, to.tensor());
  EXPECT_EQ(to.values(), std::vector<float>(a.size()));
}

TEST(RowKernels, UniformNumbersFillTheirIntervalAndDependOnAllOfTheCounter) {
  const auto filled = [](std::uint64_t seed, std::uint64_t stream) {
    return on_both_teams(nans(4096), [&](const auto& team, float* x) {
      kernels::fill_uniform_each(team, 4096, seed, stream, x);
    });
  };
  const std::vector<float> x = filled(1, 2);
  EXPECT_NE(x, filled(1, 3));
  EXPECT_NE(x, filled(2, 2));
  EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0) / 4096, 0, 4 * std::sqrt(1.0 / 3 / 4096));
  EXPECT_NEAR(dot(x, x) / 4096, 1.0 / 3, 0.02);
  EXPECT_GE(*std::ranges::min_element(x), -1.0F);
  EXPECT_LT(*std::ranges::max_element(x), 1.0F);
  EXPECT_EQ(kernels::uniform(~0ULL), 1 - 0x1p-23F);
  EXPECT_EQ(kernels::uniform(0), -1.0F);
}

TEST(RowKernels, TargetsAreTheNextTokensAndLowTokensAreFrequent) {
  const TokenSource source{
      .seed = 7, .microbatch = 3, .sequences = 50, .seq_length = 100, .vocab_size = 1000};
  std::vector<std::int32_t> tokens(5000), targets(5000);
  kernels::generate_tokens_each(HostTeam{}, source, tokens.data(), targets.data());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_GE(tokens[i], 0);
    ASSERT_LT(tokens[i], 1000);
    ASSERT_TRUE(i % 100 == 99 || targets[i] == tokens[i + 1]) << i;
  }
  // A product of two uniform numbers is below x with probability x (1 - ln x): 0.597 for 1/4.
  const auto low = std::ranges::count_if(tokens, [](int t) { return t < 250; });
  EXPECT_NEAR(static_cast<double>(low) / 5000, 0.25 * (1 + std::log(4)), 0.03);
  TokenSource next = source;
  next.microbatch = 4;
  std::vector<std::int32_t> others(5000);
  kernels::generate_tokens_each(HostTeam{}, next, others.data(), nullptr);
  EXPECT_NE(others, tokens);
  kernels::generate_tokens_each(HostTeam{}, source, nullptr, others.data());
  EXPECT_EQ(others, targets);
}

TEST(RowKernels, EmbeddingAddsATokenAndAPositionAndItsGradientAddsThemUp) {
  const std::vector<std::int32_t> tokens{2, 0, 2, 2, 3, 0};  // two sequences of three; 1 is absent
  const std::vector<float> table = random_values(4 * kCols, 1),
                           positions = random_values(3 * kCols, 2);
  const std::vector<float> dy = random_values(kRows * kCols, 3),
                           before = random_values(7 * kCols, 4);
  std::vector<double> want, sums = doubles(before);
  for (std::size_t r = 0; r < 6; ++r) {
    const auto t = static_cast<std::size_t>(tokens[r]);
    for (std::size_t c = 0; c < kCols; ++c) {
      want.push_back(d(table[t * kCols + c]) + d(positions[r % 3 * kCols + c]));
      sums[t * kCols + c] += d(dy[r * kCols + c]);
      sums[(4 + r % 3) * kCols + c] += d(dy[r * kCols + c]);
    }
  }
  expect_near(on_both_teams(nans(kRows * kCols),
                            [&](const auto& team, float* y) {
                              for (std::int64_t r = 0; r < kRows; ++r)
                                kernels::embedding_row(team, r, kCols, 3, tokens.data(),
                                                       table.data(), positions.data(), y);
                            }),
              want, 1e-6);
  expect_near(on_both_teams(before,
                            [&](const auto& team, float* gradient) {
                              for (std::int64_t r = 0; r < kRows; ++r)
                                kernels::token_table_backward_row(
                                    team, r, kRows, kCols, tokens.data(), dy.data(), gradient);
                              for (std::int64_t p = 0; p < 3; ++p)
                                kernels::position_table_backward_row(
                                    team, p, kRows, kCols, 3, dy.data(), gradient + 4 * kCols);
                            }),
              sums, 1e-6);
}

TEST(RowKernels, CrossEntropyAndItsGradientAreTheirFormulas) {
  const std::vector<std::int32_t> targets{0, 5, 36, 1, 1, 20};
  const std::vector<float> logits = random_values(kRows * kCols, 1, 30);
  std::vector<double> gradient;
  double loss = 0;
  for (std::size_t r = 0; r < 6; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < kCols; ++c) sum += std::exp(d(logits[r * kCols + c]));
    const auto target = static_cast<std::size_t>(targets[r]);
    loss += (std::log(sum) - d(logits[r * kCols + target])) / kRows;
    for (std::size_t c = 0; c < kCols; ++c)
      gradient.push_back((std::exp(d(logits[r * kCols + c])) / sum - (c == target)) / kRows);
  }
  const std::vector<float> losses = on_both_teams(nans(kRows + 1), [&](const auto& team, float* l) {
    for (std::int64_t r = 0; r < kRows; ++r)
      kernels::cross_entropy_row(team, r, kCols, logits.data(), targets.data(), l);
    // The team's first thread wrote the losses.
    team.sum(0);
    kernels::mean_of(team, kRows, l, l + kRows);
  });
  EXPECT_NEAR(d(losses.back()), loss, 1e-5);
  expect_near(on_both_teams(logits,
                            [&](const auto& team, float* l) {
                              for (std::int64_t r = 0; r < kRows; ++r)
                                kernels::cross_entropy_backward_row(team, r, kRows, kCols,
                                                                    targets.data(), l);
                            }),
              gradient, 1e-6);
}

TEST(RowKernels, SquaredErrorAndItsGradientAreTheirFormulas) {
  const std::vector<float> y = random_values(kCols, 1);
  std::vector<float> start = random_values(kCols + 1, 2);  // the targets, in place; and the loss
  std::vector<double> want;
  double loss = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double error = d(y[i]) - d(start[i]);
    want.push_back(error / kCols);
    loss += error * error / kCols / 2;
  }
  want.push_back(loss);
  start.back() = std::nanf("");
  expect_near(on_both_teams(start,
                            [&](const auto& team, float* dy) {
                              kernels::squared_error_all(team, kCols, y.data(), dy, dy, dy + kCols);
                            }),
              want, 1e-6);
}

/// Kernels that load neighbours at once give the bits of those that do not, where no sum is theirs.
TEST(RowKernels, PiecesOfElementKernelsAreTheirElements) {
  constexpr std::int64_t n = 40;
  const std::vector<float> x = random_values(n, 1), gradient = random_values(n, 2);
  const auto after = [&]<int N>(std::integral_constant<int, N>) {
    std::vector<float> w = x, out = nans(n), working = nans(n), g = gradient, m = x,
                       v = std::vector<float>(n, 0.5F), filled = nans(n);
    const kernels::StepPointers<float> p{w.data(), out.data(), working.data(),
                                         g.data(), m.data(),   v.data()};
    kernels::adamw_each<N>(HostTeam{}, n, p, kernels::factors(AdamwSettings{}, 2));
    kernels::sgd_each<N>(HostTeam{}, n, p, kernels::factors(SgdSettings{.momentum = 0.9}));
    kernels::blend_each<N>(HostTeam{}, n, 2, out.data(), -1, m.data(), g.data());
    kernels::fill_uniform_each<N>(HostTeam{}, n, 3, 4, filled.data());
    for (const auto* more : {&working, &g, &m, &v, &filled})
      out.insert(out.end(), more->begin(), more->end());
    return out;
  };
  const std::vector<float> one_by_one = after(std::integral_constant<int, 1>{});
  EXPECT_EQ(after(std::integral_constant<int, 4>{}), one_by_one);
  EXPECT_EQ(after(std::integral_constant<int, 8>{}), one_by_one);
}

struct StepCase {
  std::vector<float> weights = random_values(kCols, 1), none = std::vector<float>(kCols);
  Memory in{weights}, out{nans(kCols)}, working{nans(kCols)}, gradient{none}, m{none}, v{none};
  HostMath math = immediate_math();

  std::vector<float> next_gradient(std::uint64_t step) {
    std::vector<float> g = random_values(kCols, 100 + step, 0.1F);
    gradient.set(g);
    return g;
  }
};

TEST(HostMath, SgdStepIsItsFormulaAndZeroesTheGradient) {
  StepCase s;
  const std::vector<float> g = s.next_gradient(0);
  std::vector<double> want;
  for (std::size_t i = 0; i < g.size(); ++i) want.push_back(d(s.weights[i]) - 0.3 * 0.25 * d(g[i]));
  s.math.sgd_step(kCols,
                  {s.in.tensor(), s.out.tensor(), s.working.tensor(), s.gradient.tensor(), {}, {}},
                  {0.3, 0.25});
  expect_near(s.out.values(), want, 1e-7);
  EXPECT_EQ(s.working.values(), s.out.values());
  EXPECT_EQ(s.in.values(), s.weights);
  EXPECT_EQ(s.gradient.values(), s.none);
  s.next_gradient(0);
  s.math.sgd_step(kCols, {s.in.tensor(), s.in.tensor(), {}, s.gradient.tensor(), {}, {}},
                  {0.3, 0.25});
  EXPECT_EQ(s.in.values(), s.out.values());
}

TEST(HostMath, AdamwStepsAreThoseOfDoublePrecision) {
  StepCase s;
  const AdamwSettings a{0.01, 0.9, 0.99, 1e-8, 0.1, 0.5};
  std::vector<double> w = doubles(s.weights), m(w.size()), v(w.size());
  for (int step = 1; step <= 50; ++step) {
    const std::vector<float> g = s.next_gradient(static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double scaled = 0.5 * d(g[i]);
      w[i] -= a.learning_rate * a.weight_decay * w[i];
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * scaled;
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * scaled * scaled;
      w[i] -= a.learning_rate * (m[i] / (1 - std::pow(a.beta1, step))) /
              (std::sqrt(v[i] / (1 - std::pow(a.beta2, step))) + a.epsilon);
    }
    s.math.adamw_step(kCols,
                      {s.in.tensor(), s.in.tensor(), s.working.tensor(), s.gradient.tensor(),
                       s.m.tensor(), s.v.tensor()},
                      a, step);
    EXPECT_EQ(s.gradient.values(), s.none);
  }
  expect_near(s.in.values(), w, 5e-6);
  expect_near(s.m.values(), m, 1e-7);
  expect_near(s.v.values(), v, 1e-7);
  EXPECT_EQ(s.working.values(), s.in.values());
}

double element(const std::vector<float>& x, std::int64_t start, std::int64_t leading,
               bool transposed, std::int64_t r, std::int64_t c) {
  return d(x[static_cast<std::size_t>(start + (transposed ? c * leading + r : r * leading + c))]);
}

TEST(HostMath, GemmIsItsFormulaForAllLayoutsAndDoesNotReadCWithoutBeta) {
  HostMath math = immediate_math();
  for (int variant = 0; variant < 8; ++variant) {
    Gemm g;
    g.m = 5, g.n = 7, g.k = 3;
    g.transpose_a = (variant & 1) != 0, g.transpose_b = (variant & 2) != 0;
    g.lda = 9, g.ldb = 8, g.ldc = 11;
    g.alpha = 0.5F, g.beta = (variant & 4) != 0 ? 1.0F : 0.0F;
    g.batch = 3, g.stride_a = 100, g.stride_b = 90, g.stride_c = 80;
    const std::vector<float> a = random_values(300, 1), b = random_values(300, 2);
    const std::vector<float> before = g.beta != 0 ? random_values(300, 3) : nans(300);
    const Memory ma(a), mb(b), mc(before);
    math.gemm(g, ma.tensor(), mb.tensor(), mc.tensor());
    const std::vector<float> c = mc.values();
    for (std::int64_t n = 0; n < g.batch * g.m * g.n; ++n) {
      const std::int64_t i = n / (g.m * g.n), row = n / g.n % g.m, col = n % g.n;
      const auto place = static_cast<std::size_t>(i * g.stride_c + row * g.ldc + col);
      double want = g.beta != 0 ? d(before[place]) : 0;
      for (std::int64_t k = 0; k < g.k; ++k)
        want += 0.5 * element(a, i * g.stride_a, g.lda, g.transpose_a, row, k) *
                element(b, i * g.stride_b, g.ldb, g.transpose_b, k, col);
      ASSERT_NEAR(d(c[place]), want, 1e-6) << variant;
    }
  }
}

TEST(HostMath, ProductsOfSeveralThreadsAtOnceAreTheSameBits) {
  const std::vector<float> a = random_values(96 * 96, 1), b = random_values(96 * 96, 2);
  Gemm g;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 96;
  const auto product = [&] {
    HostMath math = immediate_math();
    const Memory ma(a), mb(b), mc(nans(96 * 96));
    math.gemm(g, ma.tensor(), mb.tensor(), mc.tensor());
    return mc.values();
  };
  const std::vector<float> alone = product();
  std::vector<int> different(4);
  {
    std::vector<std::jthread> threads;
    for (int& count : different)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) count += product() != alone;
      });
  }
  EXPECT_EQ(different, std::vector<int>(4));
}

TEST(HostMath, WorkLooksAtMemoryWhenItRunsNotWhenItIsIssued) {
  std::vector<std::function<void()>> queue;
  HostMath math([&](std::function<void()> work) { queue.push_back(std::move(work)); });
  std::vector<float> a{1, 2}, sum{0, 0};
  Block late_a, late_sum;
  math.add_tensors(2, {&late_a, 0}, {&late_a, 0}, {&late_sum, 0});
  late_a = {a.data(), 8};
  late_sum = {sum.data(), 8};
  EXPECT_EQ(sum, (std::vector<float>{0, 0}));
  for (const auto& work : queue) work();
  EXPECT_EQ(sum, (std::vector<float>{2, 4}));
}

TEST(HostMath, NamesTheBlas) { EXPECT_NE(host_blas().find("OpenBLAS"), std::string::npos); }

}  // namespace
}  // namespace penstock::row_kernels_test
